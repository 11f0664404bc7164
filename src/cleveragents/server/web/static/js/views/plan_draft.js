// The form of a new plan as a request body, and its errors by field.

import { refusalsOf } from "./plan_refusals.js";

export const EMPTY = {
  goal: "",
  action: "",
  arguments: {},
  resource: "",
  actor: "",
  model: "",
  profile: "",
  checks: "",
  invariants: "",
  usd: "",
  tokens: "",
  steps: "",
  seconds: "",
  apply: "",
  branch: "",
  parallel: "",
};

const LIMITS = ["usd", "tokens", "steps", "seconds"];

/** The body of POST /plans, without empty fields. */
export function bodyOf(draft) {
  const limits = Object.fromEntries(LIMITS.filter((name) => draft[name] !== "").map((name) => [name, Number(draft[name])]));
  const body = {
    resource: draft.resource,
    actor: draft.actor.trim(),
    model: draft.model.trim(),
    profile: draft.profile,
    checks: lines(draft.checks),
    invariants: lines(draft.invariants),
    limits,
    apply: draft.apply,
    to_branch: draft.branch.trim(),
    max_parallel: draft.parallel === "" ? null : Number(draft.parallel),
  };
  if (draft.action) Object.assign(body, { action: draft.action, arguments: argumentsOf(draft.arguments) });
  else body.goal = draft.goal.trim();
  return Object.fromEntries(Object.entries(body).filter(([, value]) => !isEmpty(value)));
}

/** The errors by field: those of the server and, with `before`, the missing fields. */
export function problemsOf(draft, refused, before = false) {
  const found = { ...refused?.fields, ...refusalsOf(refused) };
  if (before) {
    for (const [name, value] of Object.entries(draft.action ? draft.arguments : {})) {
      if (value?.unfinished) found[`arguments.${name}`] = value.unfinished;
    }
    if (!draft.action && !draft.goal.trim()) found.goal = "Enter a goal.";
    if (!draft.resource) found.resource = "Choose a repository.";
  }
  return found;
}

/** The form filled in with the request of `plan`. */
export function draftOf(plan) {
  const request = plan.request ?? {};
  const limits = request.limits ?? {};
  const text = (value) => (value === null || value === undefined ? "" : String(value));
  const inWords = plan.action === "builtin/goal";
  return {
    ...EMPTY,
    goal: inWords ? text(request.arguments?.goal ?? plan.goal) : "",
    action: inWords ? "" : plan.action,
    arguments: inWords ? {} : { ...request.arguments },
    resource: text(plan.resource_name),
    actor: text(request.actor),
    model: text(request.model),
    profile: text(request.profile),
    checks: (request.checks ?? []).join("\n"),
    invariants: (request.invariants ?? []).join("\n"),
    usd: limits.picodollars ? String(limits.picodollars / 1e12) : "",
    tokens: text(limits.tokens),
    steps: text(limits.steps),
    seconds: text(limits.seconds),
    apply: text(request.apply),
    branch: text(request.to_branch),
    parallel: text(request.max_parallel),
  };
}

function lines(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}

function argumentsOf(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== "" && !isEmpty(value)));
}

function isEmpty(value) {
  if (value === "" || value === null || value === undefined) return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}
