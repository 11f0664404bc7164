// A row of the board: goal, status, explanation, repository and progress of a plan.

import { html } from "../ui.js";
import { Badge, Id, Link, Progress, Prose, When } from "../components.js";
import { explanationOf, statusOf } from "../plan/plan_text.js";

export function PlanRow({ plan }) {
  const where = plan.resource_name ?? lastPart(plan.resource);
  return html`<li class="row">
    <div class="row-main">
      <${Link} to=${`/plans/${plan.id}`} class="row-link">${oneLine(plan.goal) || plan.action}<//>
      <p class="row-meaning"><${Prose} text=${detailOf(plan)} /></p>
    </div>
    <div class="row-facts">
      ${plan.sub_plans > 0
        ? html`<${Progress} done=${plan.sub_plans_done ?? 0} of=${plan.sub_plans} what="sub-plan" />`
        : html`<span></span>`}
      <${Status} plan=${plan} />
      <span class="row-where cut" title=${plan.resource}>${plan.project ? `${plan.project} / ` : ""}${where}</span>
      <span class="row-when"><${When} time=${plan.updated} /></span>
      <${Id} id=${plan.id} />
    </div>
  </li>`;
}

function Status({ plan }) {
  const [word, tone] = statusOf(plan);
  return html`<${Badge} tone=${tone}>${word}<//>`;
}

/** The pending request, the error or the server's explanation of the status. */
function detailOf(plan) {
  if (plan.needs && plan.waiting_for?.what) return oneLine(plan.waiting_for.what);
  return oneLine(plan.error && plan.state === "errored" ? plan.error : explanationOf(plan));
}

function oneLine(text) {
  return (text ?? "").split(/\s+/).join(" ").trim();
}

function lastPart(path) {
  return (path ?? "").split("/").filter(Boolean).pop() ?? "";
}
