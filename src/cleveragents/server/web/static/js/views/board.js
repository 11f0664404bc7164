// The live board of all plans, by group. Plans that need a person come first.

import { html, useEffect, useMemo, useRef, useState } from "../ui.js";
import { Button, Empty, ErrorBox, Icon, Link, Loading, PageHead } from "../components.js";
import { counted } from "../format.js";
import { GROUPS, grouped, matches } from "../groups.js";
import { useKeys } from "../keys.js";
import { setQuery, useLocation } from "../router.js";
import { useSession } from "../session.js";
import { MOST, usePlans } from "../store.js";
import { FirstStart } from "./first_start.js";
import { PlanRow } from "./plan_row.js";
import { SearchResults, useSearch } from "./search_results.js";

const LAYOUT = "cleveragents.board";
const FEW = 8; // finished plans shown before "Show all"

export function Board() {
  const { plans, cut, loading, error, reload } = usePlans();
  const { query } = useLocation();
  const filter = { text: query.get("q") ?? "", project: query.get("project") ?? "", group: query.get("state") ?? "" };
  const [layout, setLayout] = useState(() => localStorage.getItem(LAYOUT) ?? "list");
  const search = useRef(null);
  const body = useRef(null);
  const shown = plans.filter((plan) => matches(plan, filter));
  const { found, busy } = useSearch(filter.text, filter.project);
  const filtering = Boolean(filter.text || filter.project || filter.group);
  useKeys({ j: () => step(body.current, 1), k: () => step(body.current, -1), "/": () => search.current?.focus() });
  const lay = (next) => {
    localStorage.setItem(LAYOUT, next);
    setLayout(next);
  };
  return html`
    <${PageHead} title="Board">
      <${LayoutChoice} layout=${layout} onChange=${lay} />
    <//>
    <${Filters} filter=${filter} plans=${plans} search=${search} />
    <${Announced} plans=${plans} />
    ${error && html`<${ErrorBox} error=${error} again=${reload} title="Cannot load the plans" />`}
    ${loading && !plans.length && !error && html`<${Loading} what="Loading plans" />`}
    ${!loading && !error && !plans.length && html`<${NoPlans} />`}
    ${plans.length > 0 && !shown.length && !found.length && !busy && html`<${NoMatch} />`}
    <div ref=${body} class=${`board board-${layout}`}>
      ${shown.length > 0 && html`<${Groups} plans=${shown} layout=${layout} filtering=${filtering} />`}
      <${SearchResults} found=${found} text=${filter.text} />
    </div>
    ${cut && html`<p class="soft">Showing the newest ${MOST} plans that wait for review. Run <code>agents plan list</code> to see all.</p>`}
  `;
}

function Groups({ plans, layout, filtering }) {
  const groups = useMemo(() => grouped(plans), [plans]);
  const [all, setAll] = useState(false);
  return GROUPS.filter(({ name }) => groups[name].length || layout === "columns").map((group) => {
    const rows = groups[group.name];
    const cut = group.name === "done" && !all && !filtering && rows.length > FEW;
    return html`<section key=${group.name} class=${`group tone-${group.tone}`} aria-labelledby=${`group-${group.name}`}>
      <h2 id=${`group-${group.name}`} class="group-head">
        <${Icon} name=${`tone-${group.tone}`} />${group.label}
        <span class="group-count">${rows.length}</span>
      </h2>
      <ul class="group-rows">
        ${(cut ? rows.slice(0, FEW) : rows).map((plan) => html`<${PlanRow} key=${plan.id} plan=${plan} />`)}
      </ul>
      ${!rows.length && html`<p class="group-empty">${group.empty}</p>`}
      ${cut && html`<${Button} kind="quiet" small onClick=${() => setAll(true)}>Show all ${rows.length}<//>`}
    </section>`;
  });
}

function Filters({ filter, plans, search }) {
  const projects = [...new Set(plans.map((plan) => plan.project).filter(Boolean))].sort();
  const blur = (event) => event.key === "Escape" && event.currentTarget.blur();
  return html`<search class="filters">
    <div class="filter-text">
      <${Icon} name="search" />
      <input
        ref=${search}
        type="search"
        aria-label="Search plans"
        placeholder="Search goals, transcripts, changes…   /"
        value=${filter.text}
        onInput=${(event) => setQuery({ q: event.currentTarget.value })}
        onKeyDown=${blur}
      />
    </div>
    <select aria-label="Status" onChange=${(event) => setQuery({ state: event.currentTarget.value })}>
      <option value="" selected=${!filter.group}>All plans</option>
      ${GROUPS.map((one) => html`<option key=${one.name} value=${one.name} selected=${filter.group === one.name}>${one.label}</option>`)}
    </select>
    ${projects.length > 0 &&
    html`<select aria-label="Project" onChange=${(event) => setQuery({ project: event.currentTarget.value })}>
      <option value="" selected=${!filter.project}>All projects</option>
      ${projects.map((one) => html`<option key=${one} value=${one} selected=${filter.project === one}>${one}</option>`)}
    </select>`}
  </search>`;
}

function LayoutChoice({ layout, onChange }) {
  const choice = (name, label, icon) => html`<${Button}
    small
    kind=${layout === name ? "" : "quiet"}
    icon=${icon}
    aria-pressed=${layout === name ? "true" : "false"}
    onClick=${() => onChange(name)}
    >${label}<//
  >`;
  return html`<div class="layout-choice" role="group" aria-label="Layout">
    ${choice("list", "List", "log")}${choice("columns", "Columns", "board")}
  </div>`;
}

/** The number of plans in each group, announced by screen readers when it changes. */
function Announced({ plans }) {
  const { needs, review, running } = grouped(plans);
  const words = [`${needs.length} need you`, `${review.length} to review`, `${running.length} running`];
  return html`<p class="unseen" role="status" aria-live="polite">${plans.length ? `${counted(plans.length, "plan")}: ${words.join(", ")}` : ""}</p>`;
}

function NoPlans() {
  const { may } = useSession();
  return html`<${Empty} title="No plans yet" icon="board">
    <p>
      Start one with <code>agents run "…" --background</code>${may("operator") ? " or here" : ""}. Plans run in a sandbox.
      Your files stay unchanged until you apply the result.
    </p>
    ${may("operator") && html`<${Link} to="/new" class="button button-primary"><${Icon} name="plus" />New plan<//>`}
  <//>
  <${FirstStart} />`;
}

function NoMatch() {
  const clear = () => setQuery({ q: "", project: "", state: "" });
  return html`<${Empty} title="No matching plans" icon="search">
    <p>Change or clear the filter to see more.</p>
    <${Button} onClick=${clear}>Clear filter<//>
  <//>`;
}

/** Moves the focus to the next or previous plan, so that the browser scrolls and Enter opens it. */
function step(board, by) {
  const links = [...(board?.querySelectorAll("a.row-link") ?? [])];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  const next = at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1);
  links[next].focus();
}
