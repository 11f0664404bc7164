// The conversation of a plan as entries: messages, steps, tool calls, checks and the actions of people, in order.
//
// The output of a plan is the order of events as its worker saw it. Times have a resolution of a second, so calls are
// found by their lines in the output: a line names the tool, and its first argument is in the summary of the call.
// Output is bounded. A call without a line keeps its place before the next call, so that no call is missing.

import { timelineOf } from "./event_text.js";

const MOST = 3000;
const PEOPLE = /^(plan\.corrected|apply\.ended|budget\.raised|job\.cancel_requested|conflict\.resolved)$/;

// Collects the pieces of a plan's output as messages, tool lines, steps and checks.
export class Transcript {
  constructor() {
    this.entries = [];
    this._actor = "";
    this._message = null;
    this._tools = [];
  }

  add({ kind, text, number, time }) {
    if (kind === "node") this._see(text);
    else if (kind === "model") this._say(text, number, time);
    else if (kind === "progress") text.split("\n").forEach((line, at) => this._note(line, `${number}.${at}`, time));
    if (this.entries.length > MOST) this.entries = this.entries.slice(-MOST);
  }

  _see(text) {
    const seen = parsed(text) ?? {};
    this._actor = seen.actor || this._actor;
    if (seen.event === "thinking") this._message = null;
    // With several open calls, nothing says which of them is done.
    if (seen.event === "tool_done" && this._tools.length === 1) this._tools[0].result = seen.text || "";
    if (seen.event === "tool_done") this._tools = this._tools.slice(1);
  }

  _say(text, number, time) {
    if (!this._message) {
      this._message = { key: `m${number}`, kind: "message", actor: this._actor, text: "", time };
      this.entries.push(this._message);
    }
    this._message.text += text;
  }

  _note(line, key, time) {
    if (!line) return;
    this._message = null;
    const [, tool, what] = /^ {2}(\S+) ?(.*)$/.exec(line) ?? [];
    const [, step] = /^step (\d+ of \d+: .*)$/.exec(line) ?? [];
    const [, check] = /^check (.*)$/.exec(line) ?? [];
    if (tool) {
      const entry = { key: `t${key}`, kind: "tool", tool, what, time, result: "" };
      this._tools.push(entry);
      this.entries.push(entry);
    } else if (line.startsWith("    it failed")) {
      this._tools = this._tools.slice(1);
    } else if (step) {
      // A resumed plan names its step again.
      const same = this.entries.findLast((one) => one.kind === "step")?.text === step;
      if (!same) this.entries.push({ key: `s${key}`, kind: "step", text: step, time });
    } else if (check) {
      this.entries.push({ key: `c${key}`, kind: "check", text: check, time });
    }
  }
}

// The entries of the conversation: {key, kind, …} with `kind` message, step, call, check or act.
export function conversationOf(transcript, plan, events) {
  const answered = withoutAnswer(transcript.entries, plan.answer);
  return withActs(withChecks(withCalls(answered, plan.calls || []), plan.checks || [], events), plan, events);
}

// The answer is shown last, not twice.
function withoutAnswer(entries, answer) {
  const same = (one) => one.kind === "message" && one.text.trim() === (answer || "").trim();
  const last = entries.findLastIndex(same);
  return last < 0 || !answer ? entries : entries.filter((_, at) => at !== last);
}

function withCalls(entries, calls) {
  const found = [];
  let next = 0;
  const place = (end) => {
    for (; next < end; next += 1) found.push({ key: `call${calls[next].number}`, kind: "call", call: calls[next] });
  };
  for (const entry of entries) {
    if (entry.kind !== "tool") {
      found.push(entry);
      continue;
    }
    const at = calls.findIndex((call, index) => index >= next && isSame(entry, call));
    if (at < 0) continue;
    place(at + 1);
    Object.assign(found.at(-1), { time: entry.time, result: entry.result });
  }
  place(calls.length);
  return found;
}

const squeezed = (text) => text.replace(/[\s"'\\]+/g, "");

// Whether a line of the output is about a call: the same tool, and the same beginning of its first argument.
function isSame(line, call) {
  if (line.tool !== call.tool) return false;
  const first = /^\{"[^"]*": \[?"?([^",\]}]*)/.exec(line.what)?.[1] ?? "";
  return squeezed(call.what).includes(squeezed(first).slice(0, 40));
}

// Each check with the verdict of its run. The latest run has its details.
function withChecks(entries, checks, events) {
  const ended = events.filter((event) => event.type === "check.ended");
  const left = new Map(checks.map((check) => [check.name, runsOf(check, ended)]));
  const found = [];
  for (const entry of [...entries].reverse()) {
    if (entry.kind !== "check") {
      found.push(entry);
      continue;
    }
    const check = checks.find((one) => entry.text.endsWith(one.command));
    const run = check && left.get(check.name).pop();
    found.push({ ...entry, name: check?.name ?? entry.text, verdict: run?.verdict ?? "running", details: run?.details });
  }
  found.reverse();
  // A check without a line in the output: its output was removed, or it is the reviewer's.
  const lost = checks.filter((check) => check.name !== "review" && left.get(check.name).length && !entries.some((one) => one.kind === "check"));
  return [...found, ...lost.map((check) => ({ key: `lost-${check.name}`, kind: "check", ...left.get(check.name).at(-1), name: check.name }))];
}

function runsOf(check, ended) {
  const runs = ended.filter((event) => event.facts.check === check.name).map((event) => ({ verdict: event.facts.verdict.replace(/_/g, " ") }));
  const last = { verdict: check.stale ? `${check.verdict}, out of date` : check.verdict, details: check.details };
  return [...runs.slice(0, -1), last];
}

// Actions of people happen while the plan rests, so their times place them.
function withActs(entries, plan, events) {
  const guidance = new Map((plan.corrections || []).map((one) => [one.created, one]));
  const acts = timelineOf(events.filter((event) => PEOPLE.test(event.type))).map((entry) => ({
    key: `a${entry.key}`,
    kind: "act",
    text: [entry.what, entry.more].filter(Boolean).join(" · "),
    guidance: entry.type === "plan.corrected" ? nearest(guidance, entry.time) : null,
    tone: entry.tone,
    time: entry.time,
  }));
  const found = [];
  let last = "";
  for (const entry of entries) {
    last = entry.time || last;
    while (acts.length && last > acts[0].time) found.push(acts.shift());
    found.push(entry);
  }
  return [...found, ...acts];
}

function nearest(guidance, time) {
  const far = (one) => Math.abs(new Date(one.created) - new Date(time));
  return [...guidance.values()].sort((a, b) => far(a) - far(b))[0]?.guidance ?? null;
}

// The object in a message that is JSON alone, with or without a code fence; null for prose.
export function parsed(text) {
  const bare = text.trim().replace(/^```(?:json)?\s*([\s\S]*?)\s*```$/, "$1");
  if (!bare.startsWith("{")) return null;
  try {
    return JSON.parse(bare);
  } catch {
    return null;
  }
}
