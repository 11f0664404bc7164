// One plan on the board: its goal, what it needs or does, where, and how far it is.

import { html } from "../ui.js";
import { Badge, Id, Link, Progress, StateBadge, When } from "../components.js";
import { needInWords } from "../format.js";

export function PlanRow({ plan }) {
  const where = plan.resource_name ?? lastPart(plan.resource);
  return html`<li class="plan">
    <div class="plan-main">
      <${Link} to=${`/plans/${plan.id}`} class="plan-link">${oneLine(plan.goal) || plan.action}<//>
      <p class="plan-meaning">${meaningOf(plan)}</p>
    </div>
    <div class="plan-facts">
      ${plan.sub_plans > 0 && html`<${Progress} done=${plan.sub_plans_done ?? 0} of=${plan.sub_plans} what="part" />`}
      <${State} plan=${plan} />
      <span class="plan-where cut" title=${plan.resource}>${plan.project ? `${plan.project} / ` : ""}${where}</span>
      <span class="plan-when"><${When} time=${plan.updated} /></span>
      <${Id} id=${plan.id} />
    </div>
  </li>`;
}

function State({ plan }) {
  const need = needInWords(plan.needs);
  if (plan.needs === "review") return html`<${Badge} tone="good">${need}<//>`;
  if (plan.needs) return html`<${Badge} tone=${plan.needs === "error" ? "bad" : "need"}>${need}<//>`;
  const phase = plan.state === "processing" ? phaseInWords(plan.phase) : undefined;
  return html`<${StateBadge} state=${plan.state} word=${phase} />`;
}

function phaseInWords(phase) {
  return { action: "starting", strategize: "thinking", execute: "working", apply: "applying" }[phase] ?? "running";
}

/** What the server says the state means, without the state itself, which the badge says. */
function meaningOf(plan) {
  const said = plan.error && plan.state === "errored" ? plan.error : (plan.meaning ?? "");
  return oneLine(said).replace(/^[a-z]+\/[a-z]+(: )?/, "");
}

function oneLine(text) {
  return (text ?? "").split(/\s+/).join(" ").trim();
}

function lastPart(path) {
  return (path ?? "").split("/").filter(Boolean).pop() ?? "";
}
