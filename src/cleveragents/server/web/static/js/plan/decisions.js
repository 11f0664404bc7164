// The decisions of a plan as a tree, each with its choice, reasons and alternatives.

import { html, useState } from "../ui.js";
import { Badge, Button, Empty, Loaded } from "../components.js";
import { CorrectDialog } from "./correct.js";
import { useRead } from "./load.js";
import { clock, percent } from "./plan_text.js";

export function Decisions({ plan, rev, asking }) {
  const [all, setAll] = useState(false);
  const [correcting, setCorrecting] = useState(null);
  const load = useRead(`/plans/${plan.id}/decisions`, rev, { whole: true });
  const may = (plan.can || []).includes("correct");
  return html`<div>
    <${Loaded} load=${load} what="Loading decisions">
      ${(found) => {
        const every = found.filter((one) => (one.kind ?? "decision") === "decision");
        const gone = every.filter((one) => one.state !== "active").length;
        const shown = all ? every : every.filter((one) => one.state === "active");
        if (!every.length) {
          return html`<${Empty} title="No decisions" icon="branch">
            The strategist has not decided anything yet, or the plan has none.
          <//>`;
        }
        return html`${(gone > 0 || may) &&
          html`<div class="p-tools">
            ${gone > 0 &&
            html`<label class="p-check">
              <input type="checkbox" checked=${all} onChange=${() => setAll(!all)} />Show ${gone} superseded
            </label>`}
            ${may && html`<${Button} small icon="edit" onClick=${() => setCorrecting({})}>Add guidance …<//>`}
          </div>`}
          <${Branch} ...${{ plan, decisions: shown, parent: null, may, correct: setCorrecting }} />`;
      }}
    <//>
    <${Corrections} rows=${plan.corrections || []} />
    ${correcting && html`<${CorrectDialog} ...${{ plan, asking }} decision=${correcting} close=${() => setCorrecting(null)} />`}
  </div>`;
}

// The decisions below `parent`. A decision with a hidden parent is shown at the top level.
function Branch({ plan, decisions, parent, may, correct }) {
  const numbers = new Set(decisions.map((one) => one.number));
  const mine = decisions.filter((one) => (numbers.has(one.parent) ? one.parent : null) === parent);
  if (!mine.length) return null;
  return html`<ol class=${parent === null ? "p-tree" : "p-tree p-tree-below"}>
    ${mine.map(
      (one) => html`<li key=${one.number}>
        <${Decision} ...${{ plan, one, may, correct }} />
        <${Branch} ...${{ plan, decisions, parent: one.number, may, correct }} />
      </li>`,
    )}
  </ol>`;
}

function Decision({ plan, one, may, correct }) {
  const [open, setOpen] = useState(false);
  const gone = one.state !== "active";
  const id = `decision-${one.number}`;
  return html`<article class=${gone ? "p-decision p-gone" : "p-decision"} aria-labelledby=${`${id}-q`}>
    <div class="p-decision-head">
      <span class="p-decision-number">${one.number}</span>
      <div class="p-decision-words">
        <h3 id=${`${id}-q`}>${one.question}</h3>
        <p class="p-choice">${one.choice}</p>
      </div>
      <div class="p-decision-side">
        ${gone && html`<${Badge} tone="off">superseded<//>`}
        ${one.confidence !== null && one.confidence !== undefined && html`<${Confidence} share=${one.confidence} />`}
      </div>
    </div>
    ${one.rationale && html`<p class="p-why">${one.rationale}</p>`}
    ${one.superseded_by && html`<p class="p-warn">Corrected: ${one.superseded_by.guidance}</p>`}
    <div class="p-row">
      <${Button} small kind="quiet" icon=${open ? "down" : "right"} aria-expanded=${open ? "true" : "false"} aria-controls=${id}
        onClick=${() => setOpen(!open)}>Explain<//>
      ${may && !gone && html`<${Button} small icon="edit" onClick=${() => correct(one)}>Correct …<//>`}
    </div>
    ${open && html`<div id=${id}><${Explanation} plan=${plan} number=${one.number} known=${one} /></div>`}
  </article>`;
}

function Confidence({ share }) {
  return html`<span class="p-confidence" title="Confidence">
    <svg viewBox="0 0 40 6" aria-hidden="true"><rect class="p-bar-ground" width="40" height="6" rx="3" />
      <rect class=${share < 0.5 ? "p-bar-low" : "p-bar-used"} width=${Math.max(2, 40 * share)} height="6" rx="3" /></svg>
    <span>${percent(share)} sure</span>
  </span>`;
}

function Explanation({ plan, number, known }) {
  const load = useRead(`/plans/${plan.id}/decisions/${number}`, 0);
  const one = { ...known, ...(load.data || {}) };
  return html`<dl class="p-values p-explained">
    ${(one.alternatives || []).map(
      (other, place) => html`<div key=${place}><dt>instead of</dt>
        <dd><strong>${other.choice}</strong>${other.reason && html` – ${other.reason}`}</dd></div>`,
    )}
    ${!(one.alternatives || []).length && html`<div><dt>instead of</dt><dd class="p-muted">no alternatives</dd></div>`}
    ${one.parent && html`<div><dt>follows from</dt><dd>decision ${one.parent}</dd></div>`}
    ${(one.steps || []).length > 0 && html`<div><dt>carried out by</dt><dd>${one.steps.join(", ")}</dd></div>`}
    <div><dt>decided by</dt><dd>${one.made_by}, ${clock(one.created_at)}</dd></div>
  </dl>`;
}

function Corrections({ rows }) {
  if (!rows.length) return null;
  return html`<section class="p-section"><h2>Corrections</h2>
    <ol class="p-plain p-corrections">
      ${rows.map(
        (row) => html`<li key=${row.number}>
          <strong>${row.decision ? `Decision ${row.decision}` : "Guidance"}</strong>: ${row.guidance}
          <span class="p-muted"> ${row.by_itself ? "automatic, " : ""}${clock(row.created)}${row.outcome ? `, ${row.outcome}` : ""}</span>
        </li>`,
      )}
    </ol>
  </section>`;
}
