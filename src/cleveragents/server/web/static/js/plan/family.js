// The sub-plans of a plan with their status, and the conflicts between them.

import { html } from "../ui.js";
import { Badge, Empty, Id, Link, Progress } from "../components.js";
import { Act, Section } from "./parts.js";
import { toneOf } from "./plan_text.js";

const SIDES = [
  ["ours", "Keep ours"],
  ["theirs", "Take the sub-plan's"],
  ["edited", "Take my edit"],
];

const KINDS = {
  content: "both sides changed the same lines",
  "modify/delete": "one side changed the file, the other deleted it",
  "add/add": "both sides created the file with different content",
};

export function Family({ plan }) {
  const rows = plan.sub_plans || [];
  const conflicts = plan.conflicts || [];
  if (!rows.length && !conflicts.length) {
    return html`<${Empty} title="No sub-plans" icon="branch">The strategist splits a goal only into parts that can run independently.<//>`;
  }
  const progress = html`<${Progress} done=${plan.sub_plans_done || 0} of=${rows.length} what="sub-plan" />`;
  return html`<div>
    ${conflicts.length > 0 &&
    html`<${Section} id="p-conflicts" title="Conflicts">
      <${ConflictRows} plan=${plan} />
    <//>`}
    <${Section} id="p-sub-plans" title="Sub-plans" more=${progress}>
      <ul class="p-plain p-family">${rows.map((row) => html`<${Part} key=${row.part || row.id} row=${row} />`)}</ul>
    <//>
    ${(plan.parts_left_out || []).length > 0 &&
    html`<${Section} id="p-left-out" title="Left out">
      <ul class="p-plain">${plan.parts_left_out.map((one) => html`<li key=${one.name}>${one.name}: ${one.why}</li>`)}</ul>
    <//>`}
  </div>`;
}

function Part({ row }) {
  return html`<li class="p-part">
    <div class="p-row">
      <${Badge} tone=${toneOf(row.status)}>${row.status}<//>
      ${row.id ? html`<${Link} to=${`/plans/${row.id}`}>${row.name}<//>` : html`<span>${row.name}</span>`}
      ${row.id && html`<${Id} id=${row.id} />`}
      ${(row.needs || []).length > 0 && html`<span class="p-muted">needs ${row.needs.join(", ")}</span>`}
    </div>
    ${row.error && html`<p class="p-why">${row.error}</p>`}
  </li>`;
}

// One row per conflicting file. With a `place` for errors, each row has buttons to choose a side.
export function ConflictRows({ plan, asking, place }) {
  const may = place && (plan.can || []).includes("resolve");
  const seen = { version: plan.version, tree: plan.tree };
  return html`<ul class="p-plain p-conflicts">
    ${(plan.conflicts || []).map(
      (one) => html`<li key=${`${one.path}/${one.sub_plan}`} class="p-conflict">
        <div>
          <code class="p-path">${one.path}</code>
          <span class="p-muted">
            ${" "}${KINDS[one.kind] || one.kind}; other side:${" "}
            ${one.sub_plan ? html`<${Link} to=${`/plans/${one.sub_plan}`}><${Id} id=${one.sub_plan} /><//>` : "the repository"}
          </span>
        </div>
        ${may &&
        html`<div class="p-row" role="group" aria-label=${`Resolve ${one.path}`}>
          ${SIDES.map(
            ([take, label]) => html`<${Act} key=${take} small name="resolve" asking=${asking}
              onClick=${() => asking.ask("resolve", { path: one.path, take, ...seen }, place)}>${label}<//>`,
          )}
        </div>`}
      </li>`,
    )}
  </ul>`;
}
