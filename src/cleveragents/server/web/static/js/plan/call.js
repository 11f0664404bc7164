// The details of a tool call: arguments, result, and the rollback to its checkpoint.

import { html } from "../ui.js";
import { Button, Loaded } from "../components.js";
import { stripped } from "./ansi.js";
import { useRead } from "./load.js";
import { Long } from "./parts.js";
import { clock, took } from "./plan_text.js";

// `call` is the summary in the plan. The details are loaded on demand, and again when the call's state changes.
export function CallDetails({ plan, call, rollBack }) {
  const load = useRead(`/plans/${plan.id}/calls/${call.number}`, call.state);
  return html`<${Loaded} load=${load} what="Loading the call">${(whole) => html`<${Whole} ...${{ plan, call: whole, rollBack }} />`}<//>`;
}

function Whole({ plan, call, rollBack }) {
  const may = (plan.can || []).includes("rollback") && call.state !== "reverted";
  return html`<div class="p-call">
    <p class="p-muted">
      ${call.state}, started ${clock(call.started)}${call.ended && `, took ${took(call.started, call.ended)}`}${call.approval &&
      `, approval: ${typeof call.approval === "string" ? call.approval : JSON.stringify(call.approval)}`}
    </p>
    <h4>Arguments</h4>
    <${Values} value=${call.arguments} />
    ${call.error && html`<h4>Error</h4><${Long} text=${call.error} label="Error" />`}
    ${call.result !== null && call.result !== undefined && html`<h4>Result</h4><${Values} value=${call.result} />`}
    ${may &&
    html`<div class="p-row">
      <${Button} small icon="undo" onClick=${() => rollBack(call)}>Roll back …<//>
    </div>`}
  </div>`;
}

// An object as a list of names and values. Long values get their own box.
function Values({ value }) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    return html`<${Long} text=${spelled(value)} label="Value" />`;
  }
  const entries = Object.entries(value).filter(([, one]) => one !== null && one !== "");
  if (!entries.length) return html`<p class="p-muted">none</p>`;
  return html`<dl class="p-values">
    ${entries.map(([name, one]) => {
      const text = spelled(one);
      const long = text.includes("\n") || text.length > 90;
      return html`<div key=${name} class=${long ? "p-value-long" : ""}>
        <dt>${name.replace(/_/g, " ")}</dt>
        <dd>${long ? html`<${Long} text=${text} label=${name} />` : html`<code>${text}</code>`}</dd>
      </div>`;
    })}
  </dl>`;
}

function spelled(value) {
  if (typeof value === "string") return stripped(value);
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return value.join(" ");
  return JSON.stringify(value, null, 2) ?? "";
}
