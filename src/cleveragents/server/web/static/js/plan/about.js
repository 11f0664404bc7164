// The side column of a plan's page: request, budget and checks.

import { html } from "../ui.js";
import { Badge, Button } from "../components.js";
import { Bars } from "./budget.js";
import { hasPassed, isolationOf, shortModel, verdictOf } from "./plan_text.js";

export function About({ plan, go }) {
  const request = plan.request || {};
  const facts = [
    ["Repository", plan.resource_name || plan.resource, plan.resource],
    ["Project", plan.project],
    ["Started by", request.by],
    ["Action", plan.action],
    ["Actor", request.actor],
    ["Model", shortModel(request.model), request.model],
    ["Profile", request.profile],
    ["Isolation", isolationOf(plan)],
    ["Checks", (request.checks || []).join(", ")],
    ["Invariants", (request.invariants || []).join("; ")],
    ["Apply", request.apply],
  ].filter(([, value]) => value);
  return html`<aside class="p-about" aria-label="About this plan">
    <section class="p-card">
      <h2>Request</h2>
      <dl class="p-facts">
        ${facts.map(([name, value, whole]) => html`<div key=${name}><dt>${name}</dt><dd title=${whole}>${value}</dd></div>`)}
      </dl>
    </section>
    <section class="p-card">
      <div class="p-card-head"><h2>Budget</h2><${Button} small kind="quiet" onClick=${() => go("budget")}>More<//></div>
      <${Bars} plan=${plan} />
    </section>
    ${(plan.checks || []).length > 0 &&
    html`<section class="p-card">
      <h2>Checks</h2>
      <ul class="p-plain">
        ${plan.checks.map(
          (check) => html`<li key=${check.command} class="p-row">
            <${Badge} tone=${hasPassed(check) ? "good" : check.stale ? "need" : "bad"}>${verdictOf(check)}<//><code>${check.name}</code>
          </li>`,
        )}
      </ul>
    </section>`}
  </aside>`;
}
