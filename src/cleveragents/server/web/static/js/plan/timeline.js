// The timeline of a plan: phases, tool calls, model calls, checks, decisions and workers, in order.

import { html, useMemo, useState } from "../ui.js";
import { Badge, Button, Empty } from "../components.js";
import { timelineOf, KINDS } from "./event_text.js";
import { CallDetails } from "./call.js";
import { clock, took } from "./plan_text.js";

const MOST = 300;

export function Timeline({ plan, events, rollBack }) {
  const [hidden, setHidden] = useState({ models: false });
  const [whole, setWhole] = useState(false);
  const byNumber = useMemo(() => new Map((plan.calls || []).map((call) => [call.number, call])), [plan.calls]);
  const entries = useMemo(() => timelineOf(events), [events]).filter((entry) => entry.heading || !hidden[entry.kind]);
  const shown = whole ? entries : entries.slice(-MOST);
  return html`<div>
    <div class="p-tools" role="group" aria-label="Filter">
      ${KINDS.map(
        ([kind, label]) => html`<label key=${kind} class="p-check">
          <input type="checkbox" checked=${!hidden[kind]}
            onChange=${() => setHidden((now) => ({ ...now, [kind]: !now[kind] }))} />${label}
        </label>`,
      )}
    </div>
    ${!entries.length && html`<${Empty} title="No events yet" icon="clock">Waiting for a worker.<//>`}
    ${shown.length < entries.length &&
    html`<${Button} small onClick=${() => setWhole(true)}>Show ${entries.length - shown.length} earlier entries<//>`}
    <ol class="p-timeline">
      ${shown.map((entry) => html`<${Entry} key=${entry.key} ...${{ entry, plan, call: byNumber.get(entry.number), rollBack }} />`)}
    </ol>
  </div>`;
}

function Entry({ entry, plan, call, rollBack }) {
  const [open, setOpen] = useState(false);
  if (entry.heading) {
    return html`<li class="p-heading"><h3>${entry.heading[0].toUpperCase() + entry.heading.slice(1)}</h3>
      <time datetime=${entry.time}>${clock(entry.time)}</time></li>`;
  }
  const busy = entry.tone === "run" && ["calls", "models"].includes(entry.kind);
  const tone = call && call.error ? "bad" : call && call.state === "asked" ? "need" : entry.tone;
  const more = call ? call.what.replace(/\s*\n\s*/g, " ⏎ ").slice(0, 200) : entry.more;
  const line = html`<span class="p-entry-what">${entry.what}</span><span class="p-entry-more">${more}</span>`;
  const id = `call-${entry.number}`;
  return html`<li class=${`p-entry tone-${tone} ${busy ? "p-entry-now" : ""}`}>
    <span class="p-entry-mark" aria-hidden="true"></span>
    <time class="p-entry-time" datetime=${entry.time}>${clock(entry.time)}</time>
    ${call
      ? html`<button type="button" class="p-entry-line p-entry-open" aria-expanded=${open ? "true" : "false"} aria-controls=${id}
          onClick=${() => setOpen(!open)}><span class="p-entry-number">${call.number}</span>${line}</button>`
      : html`<div class="p-entry-line">${line}</div>`}
    <span class="p-entry-side">
      ${call && call.changed > 0 && html`<${Badge} tone="good">${call.changed} changed<//>`}
      ${call && call.error && html`<${Badge} tone="bad">failed<//>`}
      ${call && call.state === "reverted" && html`<${Badge} tone="off">reverted<//>`}
      ${busy ? html`<${Badge} tone="run">running<//>` : html`<span class="p-muted">${took(entry.time, entry.ended)}</span>`}
    </span>
    ${call && open && html`<div id=${id} class="p-entry-details"><${CallDetails} ...${{ plan, call, rollBack }} /></div>`}
  </li>`;
}
