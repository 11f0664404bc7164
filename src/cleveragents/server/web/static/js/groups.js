// Groups of the board by plan status: plans that need a person first, ended plans last.

/** Every group, in the order of the board. */
export const GROUPS = [
  { name: "needs", label: "Needs you", tone: "need", empty: "No plan needs you." },
  { name: "review", label: "Ready for review", tone: "good", empty: "No results to review." },
  { name: "running", label: "Running", tone: "run", empty: "No running plans." },
  { name: "waiting", label: "Queued", tone: "wait", empty: "No queued plans." },
  { name: "done", label: "Done", tone: "done", empty: "No finished plans." },
];

const GROUP_OF = {
  queued: "waiting",
  planning: "running",
  running: "running",
  applying: "running",
  waiting: "needs",
  paused: "needs",
  blocked: "needs",
  failed: "needs",
  ready: "review",
};

/** Whether the plan waits for the reset of a usage limit, not for a person. */
export const isParked = (plan) => plan.status === "waiting" && plan.waiting_for?.for === "usage limit";

/** The name of the group of a plan. An apply with an unknown outcome needs a person. */
export function groupOf(plan) {
  if (isParked(plan)) return "waiting";
  if (plan.status === "applying" && plan.needs) return "needs";
  return GROUP_OF[plan.status] ?? "done";
}

/** Whether a plan matches the search text, the project and the group of the filter. */
export function matches(plan, { text = "", project = "", group = "" }) {
  if (project && plan.project !== project) return false;
  if (group && groupOf(plan) !== group) return false;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [plan.goal, plan.id, plan.action, plan.status, plan.phase, plan.resource_name, plan.project, plan.meaning];
  const said = all.filter(Boolean).join(" ").toLowerCase();
  return words.every((word) => said.includes(word));
}

const URGENCY = ["approval", "question", "budget", "conflict", "error", "review"];

function urgency(plan) {
  const place = URGENCY.indexOf(plan.needs);
  return place < 0 ? URGENCY.length : place;
}

/** Plans by group, each sorted by urgency, then by the latest change. */
export function grouped(plans) {
  const found = Object.fromEntries(GROUPS.map((group) => [group.name, []]));
  for (const plan of plans) found[groupOf(plan)].push(plan);
  for (const rows of Object.values(found)) rows.sort((a, b) => urgency(a) - urgency(b) || (a.updated < b.updated ? 1 : -1));
  return found;
}
