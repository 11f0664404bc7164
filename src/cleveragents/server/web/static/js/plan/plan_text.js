// Words of the plan pages: the status badge, check results, phases, times. Pure functions without elements.

import { duration } from "../format.js";
import { isParked } from "../groups.js";

// Every plan status of the API with its tone.
const TONES = {
  queued: "wait",
  planning: "run",
  running: "run",
  waiting: "need",
  paused: "wait",
  ready: "good",
  unchanged: "done",
  merged: "done",
  applying: "run",
  blocked: "need",
  applied: "done",
  undone: "off",
  discarded: "off",
  failed: "bad",
  cancelled: "off",
};

const APPLY_FROM = ["ready", "blocked"];
const JOB_ENDED = ["failed", "succeeded", "cancelled"];

export const PHASES = ["strategize", "execute", "apply"];

export const toneOf = (status) => TONES[status] || "off";

// The badge of a plan: [status, tone, note]. A plan whose processes are still being ended is `running`, even if it is
// stored as cancelled; one with a queued apply job is `applying` before a worker takes the job.
export function statusOf(plan, stopping = false, job = null) {
  if (stopping) return ["running", "run", "Stopping: waiting for its processes to end"];
  const pending = job && !JOB_ENDED.includes(job.state) ? job.what : null;
  if (pending === "apply" && APPLY_FROM.includes(plan.status)) return ["applying", "run", ""];
  const tone = isParked(plan) ? "wait" : toneOf(plan.status);
  return [plan.status, tone, pending === "undo" && plan.status === "applied" ? "Undoing …" : ""];
}

// The server's explanation of the status, without the status in front.
export function explanationOf(plan) {
  const meaning = plan.meaning || "";
  return meaning.startsWith(plan.status) ? meaning.slice(plan.status.length).replace(/^[:;] /, "") : meaning;
}

// A stale check ran before the files changed: it does not count as passed.
export const hasPassed = (check) => check.verdict === "passed" && !check.stale;
export const verdictOf = (check) => (check.stale ? `${check.verdict}, out of date` : check.verdict);

/** Whether the user can take an action now. `rollback` here means: withdraw a revision that has no good result. */
export const isPossible = (plan, name) => (plan.can || []).includes(name) && (name !== "rollback" || isRevisedBadly(plan));

const isRevisedBadly = (plan) => (plan.steps || []).some((step) => step.action === "plan.rollback" && !("checkpoint" in step.options));

/** Whether the plan is over: no agent reads its comments any more. */
export const isFinal = (plan) => ["applied", "undone", "discarded", "cancelled"].includes(plan.status);

export const isRunning = (plan) => ["queued", "processing"].includes(plan.state);

// Each phase with its mark: done, now, waiting, failed, undone or pending.
export function phaseMarks(plan) {
  const at = PHASES.indexOf(plan.phase);
  return PHASES.map((phase, place) => {
    if (place < at) return [phase, "done"];
    if (place > at) return [phase, "pending"];
    if (plan.state === "applied") return [phase, "done"];
    if (plan.state === "undone") return [phase, "undone"];
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

// The isolation of the plan's commands, with a warning where there is none.
export function isolationOf(plan) {
  if (plan.isolation !== "none") return plan.isolation || "";
  return "none: commands run with all rights of the worker's user";
}

// A model name without the directories of a script's path: provider and file name.
export function shortModel(name) {
  const steps = (name || "").split("/").filter(Boolean);
  return steps.length > 3 ? `${steps[0]}/…/${steps[steps.length - 1]}` : name || "";
}
