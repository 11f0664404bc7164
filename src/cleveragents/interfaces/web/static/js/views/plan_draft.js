// What somebody filled in for a new plan: as the request's body, and what is wrong with it by field.

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
};

const LIMITS = ["usd", "tokens", "steps", "seconds"];

/** The body of POST /plans: what was left empty is left out. */
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
  };
  if (draft.action) Object.assign(body, { action: draft.action, arguments: argumentsOf(draft.arguments) });
  else body.goal = draft.goal.trim();
  return Object.fromEntries(Object.entries(body).filter(([, value]) => !isEmpty(value)));
}

/** What is wrong, by field: what the server said and, if `before` it is sent, what is missing. */
export function problemsOf(draft, refused, before = false) {
  const found = { ...refused?.fields };
  for (const one of refused?.errors ?? []) {
    if (one.where?.[0] === "body" && one.where.length > 1) found[one.where.slice(1).join(".")] = one.problem;
  }
  if (before) {
    if (!draft.action && !draft.goal.trim()) found.goal = "Say what the plan is to reach.";
    if (!draft.resource) found.resource = "Choose where it is to work.";
  }
  return found;
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
