// How the board sorts plans: first what waits for a person, last what is over.

/** Every group, in the order of the board. */
export const GROUPS = [
  { name: "needs", label: "Needs you", tone: "need", empty: "Nothing waits for you." },
  { name: "review", label: "Ready to review", tone: "good", empty: "No result to review." },
  { name: "running", label: "Running", tone: "run", empty: "Nothing runs." },
  { name: "waiting", label: "Waiting", tone: "wait", empty: "Nothing is queued." },
  { name: "done", label: "Done", tone: "done", empty: "Nothing is done yet." },
];

const OVER = new Set(["applied", "cancelled", "rejected", "undone"]);

/** The name of the group that a plan belongs to. */
export function groupOf(plan) {
  if (OVER.has(plan.state)) return "done";
  if (plan.needs === "review") return "review";
  if (plan.needs) return "needs";
  if (plan.state === "processing") return "running";
  if (plan.state === "waiting") return plan.sub_plans ? "running" : "waiting";
  if (plan.state === "queued") return "waiting";
  return plan.state === "errored" || plan.state === "constrained" ? "needs" : "done";
}

/** Whether a plan matches what was typed, and the project and group that were chosen. */
export function matches(plan, { text = "", project = "", group = "" }) {
  if (project && plan.project !== project) return false;
  if (group && groupOf(plan) !== group) return false;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [plan.goal, plan.id, plan.action, plan.state, plan.phase, plan.resource_name, plan.project, plan.meaning];
  const said = all.filter(Boolean).join(" ").toLowerCase();
  return words.every((word) => said.includes(word));
}

const URGENCY = ["approval", "question", "budget", "conflict", "error", "review"];

function urgency(plan) {
  const place = URGENCY.indexOf(plan.needs);
  return place < 0 ? URGENCY.length : place;
}

/** Plans by group; in each the most urgent first, and of those alike the latest change. */
export function grouped(plans) {
  const found = Object.fromEntries(GROUPS.map((group) => [group.name, []]));
  for (const plan of plans) found[groupOf(plan)].push(plan);
  for (const rows of Object.values(found)) rows.sort((a, b) => urgency(a) - urgency(b) || (a.updated < b.updated ? 1 : -1));
  return found;
}
