// What the page calls things: states, events, times and amounts, in the words of the command line.
// Pure functions; nothing here knows about elements.

import { duration } from "../format.js";

const STANDINGS = {
  queued: ["Queued", "wait"],
  processing: ["Running", "run"],
  waiting: ["Waiting", "need"],
  complete: ["Done", "good"],
  errored: ["Failed", "bad"],
  cancelled: ["Cancelled", "off"],
  applied: ["Applied", "done"],
  constrained: ["Not applied", "need"],
  rejected: ["Rejected", "off"],
  undone: ["Undone", "off"],
};

const PHASE_VERBS = { strategize: "Strategizing", execute: "Executing", apply: "Applying" };

const NEEDS_WORDS = {
  approval: "Needs approval",
  question: "Asks a question",
  budget: "Out of budget",
  conflict: "Conflict",
  review: "Ready to review",
  error: "Failed",
};

const DEEDS_FROM = { apply: ["complete", "constrained", "errored"], undo: ["applied"] };
const DEEDS_OVER = ["failed", "succeeded", "cancelled"];

export const PHASES = ["strategize", "execute", "apply"];

// The badge of a plan: one or two words, and a tone. A plan that is being stopped is never called stopped.
export function standing(plan, stopping, deed = null) {
  if (stopping) return ["Stopping…", "need"];
  if (deed && !DEEDS_OVER.includes(deed.state) && DEEDS_FROM[deed.what].includes(plan.state)) {
    return [deed.what === "undo" ? "Undoing…" : "Applying…", "run"];
  }
  if (plan.waiting_for?.for === "sub-plans" && !plan.needs) return ["Sub-plans at work", "run"];
  if (plan.needs && plan.needs !== "error" && NEEDS_WORDS[plan.needs] && plan.state !== "constrained") {
    return [NEEDS_WORDS[plan.needs], plan.needs === "review" ? "good" : "need"];
  }
  if (plan.state === "processing") return [PHASE_VERBS[plan.phase] || "Running", "run"];
  return STANDINGS[plan.state] || [plan.state || "not begun", "off"];
}

// Of a sub-plan's row, which has a status in words already.
export function toneOf(state, status) {
  if (status === "merged") return "good";
  return (STANDINGS[state] || ["", "off"])[1];
}

// Of a check: whether it passed on the files as they are now, and what is said of it.
export const hasPassed = (check) => check.verdict === "passed" && !check.stale;
export const verdictOf = (check) => (check.stale ? `${check.verdict} on other files` : check.verdict);

export const isOver = (plan) => ["cancelled", "applied", "rejected", "undone"].includes(plan.state);
export const isRunning = (plan) => ["queued", "processing"].includes(plan.state);

// How far each phase is: done, now, failed or to come.
export function phaseMarks(plan) {
  const at = PHASES.indexOf(plan.phase);
  return PHASES.map((phase, place) => {
    if (place < at) return [phase, "done"];
    if (place > at) return [phase, "to come"];
    if (plan.state === "applied") return [phase, "done"];
    if (plan.state === "undone") return [phase, "taken back"];
    if (plan.state === "complete") return [phase, "done"];
    if (["errored", "cancelled", "rejected"].includes(plan.state)) return [phase, "failed"];
    return [phase, plan.state === "waiting" || plan.state === "constrained" ? "waiting" : "now"];
  });
}

export function clock(iso) {
  if (!iso) return "";
  return new Date(iso).toLocaleTimeString("en-GB", { hour12: false });
}

export function took(from, to) {
  if (!from || !to) return "";
  const seconds = (new Date(to) - new Date(from)) / 1000;
  return seconds < 1 ? "< 1 s" : duration(seconds);
}

export const percent = (share) => (share === null || share === undefined ? "" : `${Math.round(share * 100)} %`);

// What isolates the plan's commands, and what its lack means.
export function isolationOf(plan) {
  if (plan.isolation !== "none") return plan.isolation || "";
  return "none: its commands can read and change whatever the worker's user can";
}

// A model may be named by a file: who provides it and the file's name say enough.
export function shortModel(name) {
  const steps = (name || "").split("/").filter(Boolean);
  return steps.length > 3 ? `${steps[0]}/…/${steps[steps.length - 1]}` : name || "";
}
