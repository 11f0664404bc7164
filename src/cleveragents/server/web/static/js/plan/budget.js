// The budget of a plan: spent, reserved and limit, and the form that raises the limit.

import { html, useState } from "../ui.js";
import { TextField } from "../components.js";
import { count, duration, money } from "../format.js";
import { Act, Trouble } from "./parts.js";

const MEASURES = [
  ["usd", "Money", money, "total in US dollars"],
  ["tokens", "Tokens", count, "total"],
  ["steps", "Model calls", count, "total"],
  ["seconds", "Time", duration, "total in seconds"],
];

// The budget in one shape, from `/plans/ID/budget` if loaded, else from the plan.
export function budgetOf(plan, budget) {
  const spending = plan.spending || {};
  const limits = (budget && budget.limits) || spending.limits || {};
  const spent = (budget && budget.spent) || { usd: spending.usd, tokens: spending.tokens, steps: spending.model_calls };
  const reserved = (budget && budget.reserved) || { tokens: spending.reserved_tokens };
  return { limits, spent, reserved, models: spending.models || [] };
}

export function Bars({ plan, budget }) {
  const { limits, spent, reserved } = budgetOf(plan, budget);
  const shown = MEASURES.filter(([name]) => known(limits[name]) || known(spent[name]));
  if (!shown.length) return html`<p class="p-muted">No model calls yet.</p>`;
  return html`<dl class="p-bars">
    ${shown.map(
      ([name, label, spell]) => html`<${Bar}
        key=${name}
        ...${{ label, spell, spent: spent[name] ?? null, limit: limits[name] ?? null, reserved: reserved[name] || 0 }}
      />`,
    )}
  </dl>`;
}

const known = (value) => value !== null && value !== undefined;

function Bar({ label, spell, spent, reserved, limit }) {
  const used = limit ? Math.min(1, (spent || 0) / limit) : 0;
  const held = limit ? Math.min(1 - used, reserved / limit) : 0;
  const most = known(limit) ? ` of ${spell(limit)}` : "";
  const words = known(spent) ? `${spell(spent) || "0"}${most}` : `limit ${spell(limit)}`;
  return html`<div class="p-bar-row">
    <dt>${label}</dt>
    <dd>
      <span class="number">${words}</span>
      ${reserved > 0 && html`<span class="p-muted"> + ${spell(reserved)} reserved</span>`}
      ${known(limit) &&
      known(spent) &&
      html`<svg class="p-bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect class="p-bar-ground" width="100" height="6" />
        <rect class=${used >= 0.9 ? "p-bar-high" : "p-bar-used"} width=${used * 100} height="6" />
        <rect class="p-bar-held" x=${used * 100} width=${held * 100} height="6" />
      </svg>`}
    </dd>
  </div>`;
}

// Raises the limits that are filled in; the others stay.
export function RaiseForm({ plan, budget, asking, place, onDone = () => {} }) {
  const [given, setGiven] = useState({});
  const { limits } = budgetOf(plan, budget);
  const body = Object.fromEntries(
    MEASURES.map(([name]) => [name, Number(given[name])]).filter(([name, value]) => given[name] && value > 0),
  );
  const submit = async (event) => {
    event.preventDefault();
    if (await asking.ask("budget", body, place)) {
      setGiven({});
      onDone();
    }
  };
  return html`<form class="p-form p-raise" onSubmit=${submit}>
    ${MEASURES.map(
      ([name, label, spell, unit]) => html`<${TextField}
        key=${name}
        label=${label}
        hint=${known(limits[name]) ? `now ${spell(limits[name])}, ${unit}` : unit}
        type="number"
        min="0"
        step=${name === "usd" ? "any" : "1"}
        inputmode="decimal"
        value=${given[name] || ""}
        onInput=${(value) => setGiven((now) => ({ ...now, [name]: value }))}
      />`,
    )}
    <${Act} name="budget" type="submit" kind="primary" asking=${asking} disabled=${!Object.keys(body).length}>
      Raise limit
    <//>
    ${place === "budget" && html`<${Trouble} problem=${asking.said.budget} onClose=${() => asking.forget("budget")} />`}
  </form>`;
}
