// The plan that a conversation is about: its status, the pending request with its controls, changes and checks.

import { html, useMemo, useState } from "../ui.js";
import { Badge, Empty, ErrorBox, Icon, Link, Loading } from "../components.js";
import { counted } from "../format.js";
import { useSession } from "../session.js";
import { ActionDialog, Actions } from "../plan/actions.js";
import { isStopping, lastPlanJob } from "../plan/event_text.js";
import { useAsking, usePlan } from "../plan/load.js";
import { NeedsYou } from "../plan/needs.js";
import { explanationOf, hasPassed, isRunning, statusOf, verdictOf } from "../plan/plan_text.js";

const MOST_FILES = 12;
const IN_PLACE = ["pause", "cancel", "undo"]; // the other actions belong to the pending request

export function PlanBeside({ id }) {
  const { plan, problem, events, reload } = usePlan(id);
  const where = `/plans/${id}`;
  return html`<aside class="p-card s-plan" aria-label="Plan">
    <div class="p-card-head">
      <h2>Plan</h2>
      <${Link} to=${where} class="button button-small">Open plan <${Icon} name="right" /><//>
    </div>
    ${[404, 422].includes(problem?.status)
      ? html`<${Empty} title="Plan not found" icon="search">The plan was deleted, or you cannot see it.<//>`
      : plan
        ? html`<${Known} ...${{ given: plan, events, reload, where }} />`
        : problem
          ? html`<${ErrorBox} error=${problem} title="Cannot load the plan" again=${reload} />`
          : html`<${Loading} what="Loading the plan" />`}
  </aside>`;
}

function Known({ given, events, reload, where }) {
  const { mayIn } = useSession();
  const plan = mayIn(given.project, "operator") ? given : { ...given, can: [] };
  const asking = useAsking(plan.id, reload);
  const [open, setOpen] = useState(null);
  const stopping = useMemo(() => isStopping(events, isRunning(plan)), [events, plan.state]);
  const job = useMemo(() => lastPlanJob(events), [events]);
  const [word, tone, note] = statusOf(plan, stopping, job);
  const inPlace = { ...plan, can: (plan.can || []).filter((name) => IN_PLACE.includes(name)) };
  return html`<p class="s-plan-goal">${plan.goal}</p>
    <p class="p-under"><span role="status" class="p-state"><${Badge} tone=${tone}>${word}<//></span>
      <span class="p-meaning">${note || explanationOf(plan)}</span></p>
    <${NeedsYou} ...${{ plan, asking, job, where }} open=${setOpen} />
    ${inPlace.can.length > 0 && html`<div class="p-actions" role="group" aria-label="Actions"><${Actions} plan=${inPlace} asking=${asking} open=${setOpen} /></div>`}
    <${Changes} changes=${plan.changes || []} where=${where} />
    <${Checks} checks=${plan.checks || []} />
    ${open && html`<${ActionDialog} name=${open} ...${{ plan, asking }} close=${() => setOpen(null)} />`}`;
}

function Changes({ changes, where }) {
  if (!changes.length) return null;
  const rest = changes.length - MOST_FILES;
  return html`<h3>${counted(changes.length, "changed file")}</h3>
    <ul class="s-files">
      ${changes.slice(0, MOST_FILES).map(
        (one) => html`<li key=${one.path}>
          <code class="p-path">${one.path}</code>
          <span class="s-counts"><span class="s-added">+${one.added ?? 0}</span> <span class="s-removed">−${one.removed ?? 0}</span></span>
        </li>`,
      )}
    </ul>
    ${rest > 0 && html`<p class="p-muted"><${Link} to=${`${where}#diff`}>${counted(rest, "more file")}<//></p>`}`;
}

function Checks({ checks }) {
  if (!checks.length) return null;
  return html`<h3>Checks</h3>
    <ul class="p-plain">
      ${checks.map(
        (check) => html`<li key=${check.command} class="p-row">
          <${Badge} tone=${hasPassed(check) ? "good" : check.stale ? "need" : "bad"}>${verdictOf(check)}<//><code>${check.name}</code>
        </li>`,
      )}
    </ul>`;
}
