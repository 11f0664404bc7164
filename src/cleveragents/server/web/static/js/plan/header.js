// The top of a plan's page: what it is to do, where it stands, how far it is.

import { html, useState } from "../ui.js";
import { Badge, Button, Id, Link, When } from "../components.js";
import { phaseMarks, standing } from "./plan_text.js";

const MARK_WORDS = { done: "done", now: "under way", waiting: "waiting", failed: "ended here", "to come": "to come", "taken back": "taken back" };
const LONG = 300;
const LINES = 5;
const MARKS = { done: "✓", failed: "✕", "taken back": "↩" };

export function Header({ plan, stopping, deed, connection, children }) {
  const [word, tone] = standing(plan, stopping, deed);
  return html`<header class="p-head">
    <${Crumbs} plan=${plan} />
    <div class="p-title">
      <${Goal} goal=${plan.goal} />
      <div class="p-actions" role="group" aria-label="What can be done with this plan">${children}</div>
    </div>
    <div class="p-under">
      <span role="status" class="p-state"><${Badge} tone=${tone}>${word}<//></span>
      ${saidOf(plan, stopping) && html`<span class="p-meaning">${saidOf(plan, stopping)}</span>`}
      <span class="p-muted">begun <${When} time=${plan.created} />${plan.request?.by ? ` by ${plan.request.by}` : ""}</span>
      <span class="p-muted">changed <${When} time=${plan.updated} /></span>
      ${connection === "offline" &&
      html`<span class="p-stale" role="status">Not connected: what you see may be out of date</span>`}
    </div>
    <${Phases} plan=${plan} />
  </header>`;
}

// A goal may be as long as a letter: what can be done with the plan stays in sight.
function Goal({ goal }) {
  const [whole, setWhole] = useState(false);
  const long = goal.length > LONG || goal.split("\n").length > LINES;
  return html`<div class="p-goal">
    <h1 tabindex="-1" class=${long && !whole ? "p-goal-cut" : ""}>${goal}</h1>
    ${long &&
    html`<${Button} small kind="quiet" aria-expanded=${whole ? "true" : "false"} onClick=${() => setWhole(!whole)}>
      ${whole ? "Show less of the goal" : "Show all of the goal"}
    <//>`}
  </div>`;
}

function Crumbs({ plan }) {
  const above = [...new Set([plan.root, plan.parent].filter((id) => id && id !== plan.id))];
  return html`<nav class="p-crumbs" aria-label="Where this plan belongs">
    <${Link} to="/">Plans<//>
    ${above.map((id) => html`<${Link} key=${id} to=${`/plans/${id}`}><${Id} id=${id} /><//>`)}
    <span aria-current="page"><${Id} id=${plan.id} /></span>
    ${plan.project && html`<span class="p-crumb-more">${plan.project}${plan.resource_name && ` · ${plan.resource_name}`}</span>`}
  </nav>`;
}

// The server's words without the standing in front, which the badge and the phases show already.
function saidOf(plan, stopping) {
  const meaning = plan.meaning || "";
  const colon = meaning.indexOf(": ");
  if (colon >= 0) return meaning.slice(colon + 2);
  return stopping ? "it was asked to stop; its processes are being ended" : "";
}

function Phases({ plan }) {
  return html`<ol class="p-phases" aria-label="Phases">
    ${phaseMarks(plan).map(
      ([phase, mark], place) => html`<li
        key=${phase}
        class=${`p-phase p-phase-${mark.replace(" ", "-")}`}
        aria-current=${mark === "now" || mark === "waiting" ? "step" : undefined}
      >
        <span class="p-phase-mark" aria-hidden="true">${MARKS[mark] || place + 1}</span>
        <span>${phase[0].toUpperCase() + phase.slice(1)}</span>
        <span class="unseen">: ${MARK_WORDS[mark]}</span>
      </li>`,
    )}
  </ol>`;
}
