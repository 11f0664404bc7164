// The live page of a plan: status, conversation with the pending request, diff, checks, sub-plans and details.
//
// Every part draws the plan as the server returned it. All actions go through `asking`, so that none is sent twice
// and each error is shown beside its button.

import { html, useEffect, useMemo, useState } from "../ui.js";
import { Empty, ErrorBox, Link, Loading, PageHead } from "../components.js";
import { useSession } from "../session.js";
import { useConnection } from "../stream.js";
import { About } from "./about.js";
import { ActionDialog, Actions } from "./actions.js";
import { Budget, Checks } from "./checks.js";
import { Conversation } from "./conversation.js";
import { Decisions } from "./decisions.js";
import { Diff } from "./diff.js";
import { isStopping, lastPlanJob } from "./event_text.js";
import { Family } from "./family.js";
import { Graph } from "./graph.js";
import { Header } from "./header.js";
import { useAsking, usePlan } from "./load.js";
import { NeedsYou } from "./needs.js";
import { Landed } from "./place.js";
import { Output, useLines } from "./output.js";
import { RollbackDialog } from "./rollback.js";
import { Tabs, useTab } from "./tabs.js";
import { Timeline } from "./timeline.js";
import { hasPassed, isFinal, isRunning, statusOf } from "./plan_text.js";

const TABS = ["conversation", "diff", "checks", "plans"];
const DETAILS = ["timeline", "output", "decisions", "graph", "budget"];
const ALSO = {
  details: "timeline",
  actors: "graph",
  cost: "budget",
  "sub-plans": "plans",
  subplans: "plans",
  log: "output",
  changes: "diff",
  answer: "conversation",
};
const KEYED = [...TABS, DETAILS[0]];

/** The page of the plan with this id. */
export function PlanPage({ id }) {
  const { plan, problem, events, rev, reload } = usePlan(id);
  const gone = [404, 422].includes(problem?.status); // 422: not a valid id
  if (plan && !gone) return html`<${Known} ...${{ given: plan, problem, events, rev, reload }} />`;
  if (gone) {
    return html`<${PageHead} title="Not found" />
      <${Empty} title="Plan not found" icon="search">
        The plan was deleted, or the address is wrong. <${Link} to="/">All plans<//>
      <//>`;
  }
  if (problem) return html`<${PageHead} title="Plan" /><${ErrorBox} error=${problem} again=${reload} />`;
  return html`<${Loading} what="Loading the plan" />`;
}

function Known({ given, problem, events, rev, reload }) {
  const { mayIn } = useSession();
  const operator = mayIn(given.project, "operator");
  const plan = operator ? given : { ...given, can: [] };
  const asking = useAsking(plan.id, reload);
  const connection = useConnection();
  const lines = useLines(plan.id);
  const [tab, go] = useTab([...TABS, ...DETAILS], ALSO, KEYED);
  const [open, setOpen] = useState(null);
  const [seen, setSeen] = useState(null); // the diff that was shown last: its tree, and the `rev` it was read for
  const [checkpoint, setCheckpoint] = useState(null);
  const stopping = useMemo(() => isStopping(events, isRunning(plan)), [events, plan.state]);
  const job = useMemo(() => lastPlanJob(events), [events]);
  const [word] = statusOf(plan, stopping, job);
  useEffect(() => {
    document.title = `${word} · ${plan.goal} · CleverAgents`;
  }, [word, plan.goal]);
  const all = { plan, events, rev, asking, stopping, lines, rollBack: setCheckpoint, setSeen };
  const shown = tab === "diff" && seen?.at !== rev ? null : { tree: seen?.tree ?? plan.tree, version: plan.version };
  const needs = html`<${NeedsYou} ...${{ plan, asking, job }} open=${setOpen} />`;
  return html`<div class="plan" data-plan=${plan.id} data-state=${`${plan.phase}/${plan.state}`} data-calls=${(plan.calls || []).length}>
    <${Header} ...${{ plan, stopping, job, connection }}>
      <${Actions} ...${{ plan, asking }} open=${setOpen} />
    <//>
    ${problem && html`<${ErrorBox} error=${problem} title="Cannot load the plan" again=${reload} />`}
    ${tab !== "conversation" && needs}
    <${Landed} ...${{ plan, events }} />
    <div class="p-columns" data-tab=${tab}>
      <${Tabs} tabs=${tabsOf(plan)} tab=${DETAILS.includes(tab) ? "details" : tab} go=${(name) => go(ALSO[name] ?? name)}>
        ${tab === "conversation" ? html`<${Conversation} ...${all} may=${operator && !isFinal(plan)}>${needs}<//>` : panelOf(tab, all, go)}
      <//>
      <${About} plan=${plan} go=${go} />
    </div>
    ${open && html`<${ActionDialog} name=${open} ...${{ plan, asking, shown }} showDiff=${() => go("diff")} close=${() => setOpen(null)} />`}
    ${checkpoint && html`<${RollbackDialog} ...${{ plan, asking }} call=${checkpoint} close=${() => setCheckpoint(null)} />`}
  </div>`;
}

function tabsOf(plan) {
  const checks = plan.checks || [];
  const bad = checks.filter((check) => !hasPassed(check) && !check.stale).length;
  const stale = checks.some((check) => check.stale);
  return [
    ["conversation", "Conversation", ""],
    ["diff", "Diff", plan.files_changed],
    ["checks", "Checks", bad ? `${bad} ✕` : stale ? "?" : checks.length ? "✓" : ""],
    ["plans", "Sub-plans", (plan.sub_plans || []).length],
    ["details", "Details", ""],
  ];
}

function detailsOf(plan, lines) {
  return [
    ["timeline", "Timeline", (plan.calls || []).length],
    ["output", "Output", lines.lines.length ? "•" : ""],
    ["decisions", "Decisions", (plan.corrections || []).length ? "✎" : "", "corrected"],
    ["graph", "Actors", ""],
    ["budget", "Cost & budget", ""],
  ];
}

function panelOf(tab, all, go) {
  if (tab === "diff") return html`<${Diff} ...${all} />`;
  if (tab === "checks") return html`<${Checks} ...${all} />`;
  if (tab === "plans") return html`<${Family} ...${all} />`;
  return html`<${Tabs} inner label="Details" tabs=${detailsOf(all.plan, all.lines)} tab=${tab} go=${go}>${detailOf(tab, all)}<//>`;
}

function detailOf(tab, all) {
  if (tab === "output") return html`<${Output} ...${all} />`;
  if (tab === "decisions") return html`<${Decisions} ...${all} />`;
  if (tab === "graph") return html`<${Graph} ...${all} />`;
  if (tab === "budget") return html`<${Budget} ...${all} />`;
  return html`<${Timeline} ...${all} />`;
}
