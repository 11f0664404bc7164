// The target of a plan's result: a directory or a branch of a git remote.

import { html } from "../ui.js";
import { When } from "../components.js";

/** {url, branch, target} of a plan on a git remote; null for a directory. The resource is `ADDRESS#BRANCH`, where
 * `branch` is the base of the plan. The result is pushed to `target`, which may be another branch. */
export function remoteOf(plan) {
  const where = (plan.resource ?? "").replace(/^git\+/, "");
  const at = where.lastIndexOf("#");
  if (where.startsWith("/") || at < 0) return null;
  const branch = where.slice(at + 1);
  return { url: where.slice(0, at).replace(/^(\w+:\/\/)[^/@]*@/, "$1"), branch, target: plan.branch || branch };
}

/** The target as text. */
export function placeInWords(plan) {
  const remote = remoteOf(plan);
  return remote ? `branch ${remote.target} of ${plan.resource_name || remote.url}` : "your files";
}

/** The last successful apply or undo: {kind, commit, by, time}, or null. */
export function lastLanding(events) {
  const done = events.filter((event) => event.type === "apply.ended" && event.facts?.done);
  const last = done.at(-1);
  return last ? { kind: last.facts.kind, commit: last.facts.commit, by: byOf(events, last), time: last.time } : null;
}

// The user of an apply or undo, from its event or from the event that queued its job.
function byOf(events, landed) {
  if (landed.facts.by) return landed.facts.by;
  const kind = landed.facts.kind === "undo" ? "undo" : "apply";
  const asked = events.filter((event) => event.type === "job.submitted" && event.facts?.kind?.startsWith(`${kind}:`));
  return asked.at(-1)?.facts.by ?? null;
}

/** The place and commit of an applied or undone plan. */
export function Landed({ plan, events }) {
  const landed = ["applied", "undone"].includes(plan.state) ? lastLanding(events) : null;
  if (!landed) return null;
  const remote = remoteOf(plan);
  const undone = plan.state === "undone";
  const commit = landed.commit && html`commit <code title=${landed.commit}>${landed.commit.slice(0, 10)}</code>`;
  const where = remote
    ? html`${undone ? "Undone" : "Pushed"} as ${commit || "a commit"} to branch <code>${remote.target}</code> of${" "}
        <code class="p-path">${remote.url}</code>`
    : html`${undone ? "Undone in" : "Applied to"} <code class="p-path">${plan.resource}</code>${commit ? html` as ${commit}` : ", not committed"}`;
  return html`<p class="p-landed">
    ${where}${landed.by ? ` by ${landed.by}` : ""}, <${When} time=${landed.time} />.
  </p>`;
}
