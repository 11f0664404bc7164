// Events of the audit log as entries of a plan's timeline: text, tone and kind.

import { shortId } from "../format.js";

const TEXTS = {
  "plan.created": () => ["created", "", "off"],
  "plan.moved": (f) => [`${f.phase}: ${f.state}`, f.was ? `was ${f.was}` : "", toneOfMove(f)],
  "plan.deleted": () => ["deleted", "", "off"],
  "plan.spawned": (f) => ["created a sub-plan", f.title || f.name || "", "off"],
  "plan.merged": (f) => ["merged a sub-plan", f.part ? `part ${f.part}` : "", "good"],
  "plan.published": (f) => [`published as ${f.branch}`, f.remote || "", "good"],
  "plan.comment_added": (f) => [`comment ${f.comment}`, f.actor || "", "need"],
  "plan.comment_resolved": (f) => [`comment ${f.comment} resolved`, f.actor || "", "good"],
  "plan.comment_declined": (f) => [`comment ${f.comment} declined`, f.actor || "", "need"],
  "plan.comment_reopened": (f) => [`comment ${f.comment} reopened`, "", "need"],
  "plan.corrected": (f) => [`corrected${f.decision ? ` at decision ${f.decision}` : ""}`, "", "need"],
  "plan.rebased": () => ["merged the current files of the repository", "", "good"],
  "conflict.kept": (f) => [f.child ? "conflict between sub-plans" : "conflict with the repository", f.path || "", "need"],
  "conflict.resolved": (f) => ["conflict resolved", f.path || "", "good"],
  "approval.requested": (f) => ["requested approval", f.what || (f.number ? `call ${f.number}` : ""), "need"],
  "approval.given": (f) => [
    f.approval === "denied" ? "denied" : f.rule ? "approved by a rule" : "approved",
    [f.number && `call ${f.number}`, f.rule && `rule ${shortId(f.rule)}`].filter(Boolean).join(" · "),
    f.approval === "denied" ? "bad" : "good",
  ],
  "check.ended": (f) => [`check ${f.check}`, f.verdict.replace(/_/g, " "), f.verdict === "passed" ? "good" : "bad"],
  "review.changed": (f) => [f.accepted === false ? "left out" : "reviewed", f.path || f.subject || "", "off"],
  "sandbox.created": (f) => ["sandbox created", f.strategy ? f.strategy.replace(/_/g, " ") : "", "off"],
  "sandbox.removed": () => ["sandbox removed", "", "off"],
  "apply.started": (f) => [`${f.kind === "undo" ? "undo" : "apply"} started`, files(f.files), "run"],
  "apply.ended": (f) => [
    `${f.kind === "undo" ? "undo" : "apply"} ${f.done ? "done" : "refused: no file was changed"}`,
    files(f.files),
    f.done ? "good" : "bad",
  ],
  "decision.made": (f) => [`decision ${f.number}`, f.made_by || "", "good"],
  "decision.superseded": (f) => [`decision ${f.number} superseded`, "", "need"],
  "budget.opened": () => ["budget opened", "", "off"],
  "budget.raised": () => ["budget raised", "", "good"],
  "budget.nearly_spent": () => ["budget nearly spent", "", "need"],
  "job.submitted": () => ["queued for a worker", "", "off"],
  "job.claimed": (f) => [`taken by ${f.worker}`, f.attempt > 1 ? `attempt ${f.attempt}` : "", "run"],
  "job.retried": (f) => ["retried", f.error || "", "need"],
  "job.reclaimed": (f) => ["moved to another worker", f.error || "", "need"],
  "job.handed_on": () => ["phase done, queued for the next", "", "off"],
  "job.cancel_requested": (f) => ["cancel requested", f.reason || "", "need"],
  "job.cancelled": (f) => ["stopped: all processes ended", f.reason || "", "off"],
  "job.failed": (f) => ["job failed", f.error || "", "bad"],
  "job.succeeded": () => ["job succeeded", "", "off"],
};

// Events of a person's actions: these entries name the user. Entries of the worker do not repeat it.
const NAMES_USER = /^(plan\.(created|corrected|comment_\w+)|approval\.given|review\.changed|conflict\.resolved|budget\.raised|job\.(submitted|cancel_requested)|apply\.ended)$/;

const files = (count) => (count === undefined ? "" : `${count} ${count === 1 ? "file" : "files"}`);

function toneOfMove(facts) {
  if (["complete", "applied"].includes(facts.state)) return "good";
  if (facts.state === "errored") return "bad";
  if (["waiting", "constrained"].includes(facts.state)) return "need";
  return facts.state === "processing" ? "run" : "off";
}

export const KINDS = [
  ["calls", "Tool calls"],
  ["models", "Model calls"],
  ["checks", "Checks"],
  ["decisions", "Decisions"],
  ["moves", "States & workers"],
];

function kindOf(type) {
  if (type.startsWith("tool_call.")) return "calls";
  if (type.startsWith("model_call.")) return "models";
  if (type.startsWith("check.") || type.startsWith("review.")) return "checks";
  if (type.startsWith("decision.") || type === "plan.corrected") return "decisions";
  return "moves";
}

// The entries of the timeline, from events in the order of their positions. The start and end of a call are one
// entry, phases are headings, and event types without a text are skipped.
export function timelineOf(events) {
  const entries = [];
  const open = new Map();
  for (const event of events) {
    const facts = event.facts || {};
    const kind = kindOf(event.type);
    if (kind === "calls" || kind === "models") {
      joinCall(entries, open, event, facts, kind);
    } else if (event.type === "plan.moved" && facts.state === "queued" && isNewPhase(facts)) {
      entries.push({ key: event.position, heading: facts.phase, time: event.time, kind });
    } else if (TEXTS[event.type]) {
      const [what, more, tone] = TEXTS[event.type](facts);
      const by = NAMES_USER.test(event.type) && facts.by ? `by ${facts.by}` : "";
      const all = [more, by].filter(Boolean).join(" · ");
      entries.push({ key: event.position, type: event.type, what, more: all, tone, time: event.time, kind });
    }
  }
  return entries;
}

const isNewPhase = (facts) => !facts.was || !facts.was.startsWith(`${facts.phase}/`);

function joinCall(entries, open, event, facts, kind) {
  const id = `${kind}:${kind === "calls" ? facts.number : facts.call}`;
  if (event.type.endsWith(".started")) {
    const what = kind === "calls" ? facts.tool : "model call";
    const more = kind === "calls" ? "" : facts.node || "";
    const entry = { key: event.position, kind, what, more, tone: "run", time: event.time, number: facts.number };
    open.set(id, entry);
    entries.push(entry);
    return;
  }
  const entry = open.get(id);
  if (!entry) return;
  open.delete(id);
  entry.ended = event.time;
  entry.tone = toneOfEnd(facts.state);
  if (kind === "models" && facts.tokens) entry.more += ` · ${facts.tokens.toLocaleString("en")} tokens`;
}

function toneOfEnd(state) {
  if (state === "failed" || state === "forfeited" || state === "denied") return "bad";
  return "off";
}

// Which node of which actor asks a model now: `builtin/executor:think` from the last call without an end.
export function runningNodes(events) {
  const open = new Map();
  for (const event of events) {
    if (event.type === "model_call.started") open.set(event.facts.call, (event.facts.node || "").split(".")[0]);
    if (event.type === "model_call.ended") open.delete(event.facts.call);
    if (event.type === "plan.moved" && event.facts.state !== "processing") open.clear();
  }
  return new Set(open.values());
}

// The last job that applied or undid the plan: {what, state, job, error}, or null. A failed job is forgotten once the
// plan moves on: then the plan's own status counts.
export function lastPlanJob(events) {
  let last = null;
  for (const event of events) {
    const [what] = (event.facts?.kind ?? "").split(":");
    if (event.type.startsWith("job.") && ["apply", "undo"].includes(what)) {
      last = { what, state: event.type.slice(4), job: event.subject, error: event.facts.error ?? null };
    } else if (event.type === "plan.moved" && last?.state === "failed") {
      last = null;
    }
  }
  return last;
}

// Whether a cancel was requested and the plan's job has not ended yet. If the end of the job is known before the end
// of the plan, the plan is stopping until it no longer runs.
export function isStopping(events, running) {
  let asked = null;
  let ended = false;
  for (const event of events) {
    if (event.type === "job.cancel_requested") {
      asked = event.subject;
      ended = false;
    } else if (asked && event.subject === asked) {
      ended ||= ["job.cancelled", "job.succeeded", "job.failed"].includes(event.type);
    } else if (event.type === "job.claimed") {
      asked = null; // resumed
    }
  }
  return asked !== null && (!ended || running);
}
