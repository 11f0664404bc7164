// One plan on the board: its goal, what it needs or does, where, and how far it is.

import { html } from "../ui.js";
import { Badge, Id, Link, Progress, Prose, When } from "../components.js";
import { standing } from "../plan/plan_text.js";

export function PlanRow({ plan }) {
  const where = plan.resource_name ?? lastPart(plan.resource);
  return html`<li class="row">
    <div class="row-main">
      <${Link} to=${`/plans/${plan.id}`} class="row-link">${oneLine(plan.goal) || plan.action}<//>
      <p class="row-meaning"><${Prose} text=${meaningOf(plan)} /></p>
    </div>
    <div class="row-facts">
      ${plan.sub_plans > 0
        ? html`<${Progress} done=${plan.sub_plans_done ?? 0} of=${plan.sub_plans} what="sub-plan" />`
        : html`<span></span>`}
      <${State} plan=${plan} />
      <span class="row-where cut" title=${plan.resource}>${plan.project ? `${plan.project} / ` : ""}${where}</span>
      <span class="row-when"><${When} time=${plan.updated} /></span>
      <${Id} id=${plan.id} />
    </div>
  </li>`;
}

function State({ plan }) {
  const [word, tone] = standing(plan, false);
  return html`<${Badge} tone=${tone}>${word}<//>`;
}

/** What the server says the state means, without the state itself, which the badge says. */
function meaningOf(plan) {
  if (plan.state === "queued") return "waits for a worker";
  if (plan.needs && plan.waiting_for?.what) return oneLine(plan.waiting_for.what);
  const said = plan.error && plan.state === "errored" ? plan.error : (plan.meaning ?? "");
  return oneLine(said).replace(/^[a-z]+\/[a-z]+(: )?/, "");
}

function oneLine(text) {
  return (text ?? "").split(/\s+/).join(" ").trim();
}

function lastPart(path) {
  return (path ?? "").split("/").filter(Boolean).pop() ?? "";
}
