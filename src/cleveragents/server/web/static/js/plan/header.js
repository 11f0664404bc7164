// The header of a plan's page: goal, status and phases.

import { html, useState } from "../ui.js";
import { Badge, Button, Id, Link, When } from "../components.js";
import { explanationOf, phaseMarks, statusOf } from "./plan_text.js";

const MARK_WORDS = { done: "done", now: "in progress", waiting: "waiting", failed: "ended here", pending: "pending", undone: "undone" };
const LONG = 300;
const LINES = 5;
const MARKS = { done: "✓", failed: "✕", undone: "↩" };

export function Header({ plan, stopping, job, connection, children }) {
  const [word, tone, note] = statusOf(plan, stopping, job);
  const meaning = note || explanationOf(plan);
  return html`<header class="p-head">
    <${Crumbs} plan=${plan} />
    <div class="p-title">
      <${Goal} goal=${plan.goal} />
      <div class="p-actions" role="group" aria-label="Actions">${children}</div>
    </div>
    <div class="p-under">
      <span role="status" class="p-state"><${Badge} tone=${tone}>${word}<//></span>
      ${meaning && html`<span class="p-meaning">${meaning}</span>`}
      <span class="p-muted">started <${When} time=${plan.created} />${plan.request?.by ? ` by ${plan.request.by}` : ""}</span>
      <span class="p-muted">updated <${When} time=${plan.updated} /></span>
      ${connection === "offline" &&
      html`<span class="p-stale" role="status">Not connected: this page may be out of date</span>`}
    </div>
    <${Phases} plan=${plan} />
  </header>`;
}

// A long goal is folded, so that the actions stay visible.
function Goal({ goal }) {
  const [whole, setWhole] = useState(false);
  const long = goal.length > LONG || goal.split("\n").length > LINES;
  return html`<div class="p-goal">
    <h1 tabindex="-1" class=${long && !whole ? "p-goal-cut" : ""}>${goal}</h1>
    ${long &&
    html`<${Button} small kind="quiet" aria-expanded=${whole ? "true" : "false"} onClick=${() => setWhole(!whole)}>
      ${whole ? "Show less" : "Show all"}
    <//>`}
  </div>`;
}

function Crumbs({ plan }) {
  const above = [...new Set([plan.root, plan.parent].filter((id) => id && id !== plan.id))];
  return html`<nav class="p-crumbs" aria-label="Breadcrumb">
    <${Link} to="/">Plans<//>
    ${above.map((id) => html`<${Link} key=${id} to=${`/plans/${id}`}><${Id} id=${id} /><//>`)}
    <span aria-current="page"><${Id} id=${plan.id} /></span>
    ${plan.project && html`<span class="p-crumb-more">${plan.project}${plan.resource_name && ` · ${plan.resource_name}`}</span>`}
  </nav>`;
}

function Phases({ plan }) {
  return html`<ol class="p-phases" aria-label="Phases">
    ${phaseMarks(plan).map(
      ([phase, mark], place) => html`<li
        key=${phase}
        class=${`p-phase p-phase-${mark}`}
        aria-current=${mark === "now" || mark === "waiting" ? "step" : undefined}
      >
        <span class="p-phase-mark" aria-hidden="true">${MARKS[mark] || place + 1}</span>
        <span>${phase[0].toUpperCase() + phase.slice(1)}</span>
        <span class="unseen">: ${MARK_WORDS[mark]}</span>
      </li>`,
    )}
  </ol>`;
}
