// Where a plan's result goes: files in a directory, or a branch of a repository elsewhere; and where it went.

import { html } from "../ui.js";
import { When } from "../components.js";

/** {url, branch, target} of a plan on a git remote; null for one on a directory. The API says `ADDRESS#BRANCH`, which is
 * the `branch` that it begins with; the `target`, which its result is pushed to, may be another. */
export function remoteOf(plan) {
  const where = (plan.resource ?? "").replace(/^git\+/, "");
  const at = where.lastIndexOf("#");
  if (where.startsWith("/") || at < 0) return null;
  const branch = where.slice(at + 1);
  return { url: where.slice(0, at).replace(/^(\w+:\/\/)[^/@]*@/, "$1"), branch, target: plan.branch || branch };
}

/** What is not touched before it is applied, in words. */
export function placeInWords(plan) {
  const remote = remoteOf(plan);
  return remote ? `branch ${remote.target} of ${plan.resource_name || remote.url}` : "your files";
}

/** The last apply or undo that was done: {kind, commit, by, time}, or null. */
export function lastLanding(events) {
  const done = events.filter((event) => event.type === "apply.ended" && event.facts?.done);
  const last = done.at(-1);
  return last ? { kind: last.facts.kind, commit: last.facts.commit, by: byOf(events, last), time: last.time } : null;
}

// Who asked for it: the event itself says so, or that which queued the job.
function byOf(events, landed) {
  if (landed.facts.by) return landed.facts.by;
  const kind = landed.facts.kind === "undo" ? "undo" : "apply";
  const asked = events.filter((event) => event.type === "job.submitted" && event.facts?.kind?.startsWith(`${kind}:`));
  return asked.at(-1)?.facts.by ?? null;
}

/** Said of a plan that is applied or undone: where that is to be found now. */
export function Landed({ plan, events }) {
  const landed = ["applied", "undone"].includes(plan.state) ? lastLanding(events) : null;
  if (!landed) return null;
  const remote = remoteOf(plan);
  const undone = plan.state === "undone";
  const commit = landed.commit && html`commit <code title=${landed.commit}>${landed.commit.slice(0, 10)}</code>`;
  const where = remote
    ? html`${undone ? "Taken back" : "Pushed"} as ${commit || "a commit"} to branch <code>${remote.target}</code> of${" "}
        <code class="p-path">${remote.url}</code>`
    : html`${undone ? "Taken out of" : "Written to"} <code class="p-path">${plan.resource}</code>${commit ? html`, as ${commit}` : ", and not committed"}`;
  return html`<p class="p-landed">
    ${where}${landed.by ? ` by ${landed.by}` : ""}, <${When} time=${landed.time} />.
  </p>`;
}
