// The checks of a plan, and its cost and budget.

import { html, useState } from "../ui.js";
import { Badge, Button, Empty } from "../components.js";
import { count } from "../format.js";
import { stripped } from "./ansi.js";
import { Bars, RaiseForm } from "./budget.js";
import { useRead } from "./load.js";
import { Long, Section } from "./parts.js";
import { clock, shortModel, verdictOf } from "./plan_text.js";

const TONES = { passed: "good", failed: "bad", "not run": "off", "timed out": "bad" };

export function Checks({ plan }) {
  const rows = plan.checks || [];
  return html`<${Section} id="p-checks" title="Checks">
      ${!rows.length && html`<${Empty} title="No checks" icon="shield">Checks are commands that must pass. Add them when you start a plan.<//>`}
      <ul class="p-plain p-checks">${rows.map((row) => html`<${Check} key=${row.command} row=${row} />`)}</ul>
    <//>`;
}

function Check({ row }) {
  const [open, setOpen] = useState(row.verdict !== "passed");
  const details = stripped(row.details || "");
  return html`<li class="p-checkrow">
    <div class="p-row">
      <${Badge} tone=${(!row.stale && TONES[row.verdict]) || "need"}>${verdictOf(row)}<//>
      <code>${row.name}</code>
      ${row.command !== row.name && html`<span class="p-muted">${row.command}</span>`}
      <span class="p-muted">${row.required ? "required" : "informational"}, ${clock(row.ended)}</span>
      ${details &&
      html`<${Button}
        small
        kind="quiet"
        icon=${open ? "down" : "right"}
        aria-expanded=${open ? "true" : "false"}
        onClick=${() => setOpen(!open)}
        >Details<//
      >`}
    </div>
    ${open && details && html`<${Long} text=${details} label=${`Output of ${row.name}`} />`}
  </li>`;
}

/** The spending of a plan, and the form that raises its limits. */
export function Budget({ plan, rev, asking }) {
  const [raising, setRaising] = useState(false);
  const { data } = useRead(`/plans/${plan.id}/budget`, rev);
  const may = (plan.can || []).includes("budget");
  const expanded = raising ? "true" : "false";
  const more =
    may && html`<${Button} small aria-expanded=${expanded} onClick=${() => setRaising(!raising)}>Raise …<//>`;
  return html`<${Section} id="p-budget" title="Cost and budget" more=${more}>
    <${Bars} plan=${plan} budget=${data} />
    ${raising &&
    may &&
    html`<${RaiseForm} ...${{ plan, budget: data, asking }} place="budget" onDone=${() => setRaising(false)} />`}
    ${(plan.spending?.models || []).length > 0 &&
    html`<p class="p-muted">
      ${count(plan.spending.model_calls)} model calls: ${plan.spending.models.map(shortModel).join(", ")}
      ${plan.spending.cached_tokens > 0 &&
      html`<br />${count(plan.spending.cached_tokens)} of ${count(plan.spending.input_tokens)} input tokens cached`}
    </p>`}
  <//>`;
}
