// The live audit log with its verification.

import { html, useRef, useState } from "../ui.js";
import { get } from "../api.js";
import { Button, Empty, ErrorBox, Icon, Id, Link, Loaded, PageHead, Table, When } from "../components.js";
import { counted } from "../format.js";
import { useLoad } from "../load.js";
import { setQuery, useLocation } from "../router.js";
import { useSession } from "../session.js";
import { useEvents } from "../stream.js";

const PAGE = 100;
const KEPT = 500;

export function AuditLog() {
  const { query } = useLocation();
  const { may } = useSession();
  const [verdict, setVerdict] = useState({ busy: false });
  const filter = { type: query.get("type") ?? "", subject: query.get("subject") ?? "" };
  return html`
    <${PageHead} title="Audit log" lead="All events in one order. Each event is chained to the one before.">
      ${may("admin") && html`<${Button} icon="shield" busy=${verdict.busy} onClick=${() => verify(setVerdict)}>Verify log<//>`}
    <//>
    <${Verdict} ...${verdict} />
    <${LogFilters} filter=${filter} />
    <${Tail} key=${`${filter.type} ${filter.subject}`} filter=${filter} />
  `;
}

function LogFilters({ filter }) {
  const put = (name) => (event) => setQuery({ [name]: event.currentTarget.value.trim() });
  return html`<search class="filters">
    <div class="filter-text">
      <${Icon} name="search" />
      <input type="search" list="types" aria-label="Event type" placeholder="Type, such as plan.moved" value=${filter.type} onChange=${put("type")} />
    </div>
    <div class="filter-text">
      <${Icon} name="search" />
      <input type="search" aria-label="Event subject" placeholder="Subject: the id of a plan or job" value=${filter.subject} onChange=${put("subject")} />
    </div>
    <datalist id="types">${TYPES.map((type) => html`<option key=${type} value=${type}></option>`)}</datalist>
  </search>`;
}

function Tail({ filter }) {
  const [fresh, setFresh] = useState([]);
  const [held, setHeld] = useState(false);
  // A ref, because state is updated only with the next draw: events that arrive in between would never be shown.
  const holding = useRef(false);
  const waiting = useRef([]);
  const load = useLoad((signal) => get("/events", { ...filter, limit: PAGE }, { signal }), []);
  useEvents((event) => event.type === "reset" || passes(event, filter), (event) => {
    if (event.type === "reset") load.reload();
    else if (holding.current) waiting.current.push(event);
    else setFresh((before) => [...before, event].slice(-KEPT));
  });
  const hold = () => {
    holding.current = !holding.current;
    const missed = holding.current ? [] : waiting.current.splice(0);
    setFresh((before) => [...before, ...missed].slice(-KEPT));
    setHeld(holding.current);
  };
  return html`<${Loaded} load=${load} what="Loading the log">
    ${(page) => {
      const last = page.items.at(-1)?.position ?? 0;
      const rows = [...page.items, ...fresh.filter((event) => event.position > last)].reverse();
      return html`
        <div class="section-head">
          <h2>${rows.length ? `Latest ${counted(rows.length, "event")}` : "No events"}</h2>
          <${Button} small icon=${held ? "play" : "stop"} aria-pressed=${held ? "true" : "false"} onClick=${hold}>${held ? "Resume" : "Pause"}<//>
        </div>
        ${rows.length === 0
          ? html`<${Empty} title="No matching events" icon="log"><p>New events appear automatically.</p><//>`
          : html`<${Table} caption="Events, latest first" columns=${COLUMNS} rows=${rows} keyOf=${(row) => row.position} rowClass=${(row) => (row.position > last ? "fresh" : "")} />`}
      `;
    }}
  <//>`;
}

function passes(event, filter) {
  return (!filter.type || event.type === filter.type) && (!filter.subject || event.subject === filter.subject);
}

const COLUMNS = [
  { name: "position", label: "No.", number: true, cell: (row) => html`<span class="faint">${row.position}</span>` },
  { name: "time", label: "Time", cell: (row) => html`<${When} time=${row.time} />` },
  { name: "type", label: "Type", cell: (row) => html`<span class="event-type">${row.type}</span>` },
  { name: "subject", label: "Subject", cell: (row) => html`<${Subject} event=${row} />` },
  { name: "facts", label: "Facts", wide: true, cell: (row) => html`<${Facts} facts=${row.facts} />` },
];

function Subject({ event }) {
  const isPlan = /^(plan|decision|check|approval|tool_call|conflict|review|sandbox|budget|apply)\./.test(event.type);
  if (isPlan) return html`<${Link} to=${`/plans/${event.subject}`}><${Id} id=${event.subject} /><//>`;
  return html`<${Id} id=${event.subject} />`;
}

function Facts({ facts }) {
  const entries = Object.entries(facts ?? {});
  return html`<span class="event-facts">
    ${entries.map(([name, value]) => html`<span key=${name}><b>${name}=</b>${typeof value === "string" ? value : JSON.stringify(value)} </span>`)}
  </span>`;
}

async function verify(setVerdict) {
  setVerdict({ busy: true });
  try {
    setVerdict({ busy: false, report: await get("/events/verification") });
  } catch (error) {
    setVerdict({ busy: false, error });
  }
}

function Verdict({ report, error }) {
  return html`
    <div role="status">
      ${error && html`<${ErrorBox} error=${error} />`}
      ${report?.ok &&
      html`<p class="verdict tone-good"><${Icon} name="tone-good" /> Log intact: ${counted(report.events, "event")} verified.</p>`}
      ${report && !report.ok &&
      html`<div class="verdict tone-bad">
        <${Icon} name="tone-bad" />
        <div>
          <p class="error-title">Log broken: ${counted(report.findings.length, "finding")} in ${counted(report.events, "event")}</p>
          <ul>${report.findings.slice(0, 20).map((one, at) => html`<li key=${at}>${one.position ? `event ${one.position}: ` : ""}${one.problem}</li>`)}</ul>
          <p>If you restored a backup, run <code>agents events adopt</code>. Otherwise check who can write to the database.</p>
        </div>
      </div>`}
    </div>
  `;
}

const TYPES = [
  "plan.created", "plan.moved", "plan.deleted", "plan.spawned", "plan.merged", "plan.rebased", "plan.corrected",
  "plan.published",
  "plan.comment_added", "plan.comment_resolved", "plan.comment_declined", "plan.comment_reopened",
  "approval.requested", "approval.given", "tool_call.started", "tool_call.ended", "check.ended", "decision.made",
  "model_call.ended", "budget.raised", "budget.nearly_spent", "review.changed", "apply.started", "apply.ended",
  "conflict.kept", "conflict.resolved", "job.submitted", "job.claimed", "job.succeeded", "job.failed", "job.retried",
  "job.reclaimed", "job.handed_on", "job.cancelled", "worker.joined", "worker.left", "user.added", "access.given", "access.revoked",
];
