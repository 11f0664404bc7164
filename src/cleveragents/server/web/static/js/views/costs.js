// The costs of model calls: a bar for each day, and tables by project, model and actor.

import { html } from "../ui.js";
import { get } from "../api.js";
import { Empty, Link, Loaded, PageHead, Table } from "../components.js";
import { count, counted, money } from "../format.js";
import { useLoad } from "../load.js";
import { setQuery, useLocation } from "../router.js";

const SPANS = { 7: "7 days", 30: "30 days", 90: "90 days", 365: "1 year" };
const GROUPS = ["day", "project", "model", "actor"];
const DAY_MS = 86_400_000;

export function Costs() {
  const { query } = useLocation();
  const span = SPANS[query.get("days")] ? Number(query.get("days")) : 30;
  const project = query.get("project") ?? "";
  const since = isoDay(Date.now() - (span - 1) * DAY_MS);
  const load = useLoad(
    async (signal) => {
      const read = (by) => get("/costs", { by, since, project: project || undefined }, { signal });
      const found = await Promise.all(GROUPS.map(read));
      return Object.fromEntries(GROUPS.map((by, at) => [by, found[at].items]));
    },
    [span, project],
  );
  return html`
    <${PageHead} title="Costs" lead="The cost of model calls, in UTC days. Deleted plans are not counted.">
      <select aria-label="Period" onChange=${(event) => setQuery({ days: event.currentTarget.value })}>
        ${Object.entries(SPANS).map(([days, label]) => html`<option key=${days} value=${days} selected=${Number(days) === span}>${label}</option>`)}
      </select>
    <//>
    ${project && html`<p class="soft">Only project <strong>${project}</strong>. <${Link} to="/costs">All projects<//></p>`}
    <${Loaded} load=${load} what="Loading costs">${(costs) => html`<${Report} ...${{ costs, span, since }} />`}<//>
  `;
}

const isoDay = (time) => new Date(time).toISOString().slice(0, 10);

function Report({ costs, span, since }) {
  if (!costs.day.length) {
    return html`<${Empty} title="No model calls" icon="cost">Plans with a model show their costs here.<//>`;
  }
  const sum = (name) => costs.day.reduce((total, row) => total + row[name], 0);
  return html`<div class="stack">
    <section class="card card-body" aria-labelledby="cost-days">
      <h2 id="cost-days" class="unseen">By day</h2>
      <dl class="cost-sums">
        <div><dt>Total</dt><dd>${money(sum("usd"))}</dd></div>
        <div><dt>Model calls</dt><dd>${count(sum("calls"))}</dd></div>
        <div><dt>Input tokens</dt><dd>${count(sum("input_tokens"))}</dd></div>
        <div><dt>Cached input</dt><dd>${count(sum("cached_tokens"))}</dd></div>
        <div><dt>Output tokens</dt><dd>${count(sum("output_tokens"))}</dd></div>
      </dl>
      <${Bars} days=${costs.day} span=${span} since=${since} />
      ${sum("unpriced") > 0 && html`<p class="soft small">The price of ${counted(sum("unpriced"), "call")} is unknown.</p>`}
    </section>
    ${GROUPS.slice(1).map((by) => html`<${Group} key=${by} by=${by} rows=${costs[by]} />`)}
  </div>`;
}

// A bar for each day, also for days without calls.
function Bars({ days, span, since }) {
  const spent = new Map(days.map((row) => [row.name, row]));
  const most = Math.max(...days.map((row) => row.usd), 1e-9);
  const first = Date.parse(`${since}T00:00:00Z`);
  const all = Array.from({ length: span }, (_, at) => isoDay(first + at * DAY_MS));
  const told = `From ${all[0]} to ${all.at(-1)}, at most ${money(most)} a day.`;
  return html`<figure class="cost-chart">
    <svg viewBox=${`0 0 ${span * 10} 100`} preserveAspectRatio="none" role="img" aria-label=${told}>
      ${all.map((day, at) => {
        const high = ((spent.get(day)?.usd ?? 0) / most) * 98;
        return html`<rect key=${day} class="p-bar-used" x=${at * 10 + 1} y=${100 - Math.max(high, spent.has(day) ? 2 : 0)} width="8" height=${Math.max(high, spent.has(day) ? 2 : 0)}>
          <title>${day}: ${money(spent.get(day)?.usd ?? 0)}</title></rect>`;
      })}
    </svg>
    <figcaption class="small faint"><span>${all[0]}</span><span>${all.at(-1)}</span></figcaption>
  </figure>`;
}

const LABELS = { project: "Project", model: "Model", actor: "Actor" };

function Group({ by, rows }) {
  const columns = [
    { name: "name", label: LABELS[by], wide: true, cell: (row) => (by === "project" ? html`<${Link} to=${`/costs?project=${encodeURIComponent(row.name)}`}>${row.name}<//>` : html`<span class="path">${row.name}</span>`) },
    { name: "usd", label: "Cost", number: true, cell: (row) => (row.unpriced === row.calls ? "unknown" : money(row.usd)) },
    { name: "calls", label: "Calls", number: true, cell: (row) => count(row.calls) },
    { name: "input", label: "Input tokens", number: true, cell: (row) => count(row.input_tokens) },
    { name: "cached", label: "Cached input", number: true, cell: (row) => count(row.cached_tokens) },
    { name: "output", label: "Output tokens", number: true, cell: (row) => count(row.output_tokens) },
  ];
  return html`<section aria-labelledby=${`cost-${by}`}>
    <div class="section-head"><h2 id=${`cost-${by}`}>By ${by}</h2></div>
    <${Table} caption=${`Costs by ${by}`} columns=${columns} rows=${rows} keyOf=${(row) => row.name} />
  </section>`;
}
