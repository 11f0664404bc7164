// Jobs and the workers that run them.

import { html } from "../ui.js";
import { all, get, post } from "../api.js";
import { Badge, Button, Code, Empty, Id, JobBadge, Link, Loaded, PageHead, Table, When, confirm, toast, toastProblem } from "../components.js";
import { useLoad } from "../load.js";
import { useSession } from "../session.js";
import { useEvents } from "../stream.js";

const GONE_SHOWN = 20; // of the last day: a worker in a restart loop leaves thousands
const OPEN = ["queued", "running"];
const OVER = ["succeeded", "failed", "cancelled"];
const SHOWN = 50;

export function Jobs() {
  return html`
    <${PageHead} title="Jobs & workers" lead="Each plan runs as a job. If a worker dies, another worker takes over its jobs." />
    <div class="stack"><${Workers} /><${JobList} /></div>
  `;
}

function Workers() {
  const load = useLoad((signal) => all("/workers", { limit: 1000 }, { signal, most: Infinity }));
  useEvents((event) => event.type === "reset" || /^(worker|job)\./.test(event.type), load.reload);
  return html`<section aria-labelledby="workers">
    <div class="section-head"><h2 id="workers">Workers</h2></div>
    <${Loaded} load=${load} what="Reading workers">
      ${(workers) => workers.length
        ? html`<${Table} caption="List of workers" columns=${WORKER_COLUMNS} rows=${byState(workers)} />`
        : html`<${Empty} title="No workers" icon="jobs"><p>Plans stay queued until a worker runs. Start one:</p><${Code}>agents worker<//><//>`}
    <//>
  </section>`;
}

const WORKER_STATES = { working: ["good", "working"], idle: ["good", "idle"], draining: ["wait", "draining"], lost: ["bad", "lost"], gone: ["off", "gone"] };

/** Workers by state, each state by the last sign of life. Of the gone workers only the latest are listed. */
function byState(workers) {
  const order = Object.keys(WORKER_STATES);
  const rank = (one) => order.indexOf(one.state);
  const sorted = [...workers].sort((a, b) => rank(a) - rank(b) || (a.seen < b.seen ? 1 : -1));
  const here = sorted.filter((one) => one.state !== "gone");
  return sorted.slice(0, here.length + GONE_SHOWN);
}

const WORKER_COLUMNS = [
  {
    name: "state",
    label: "State",
    cell: (row) => {
      const [tone, word] = WORKER_STATES[row.state] ?? ["off", row.state];
      return html`<${Badge} tone=${tone}>${word}<//>`;
    },
  },
  { name: "name", label: "Name", wide: true, cell: (row) => html`${row.name} <span class="faint small">${row.host}, process ${row.pid}</span>` },
  { name: "engine", label: "Engine", cell: (row) => row.engine },
  { name: "queue", label: "Queue", cell: (row) => html`<${Queues} queue=${row.queue} />` },
  { name: "running", label: "Busy", number: true, cell: (row) => `${row.running} / ${row.concurrency}` },
  { name: "seen", label: "Last seen", cell: (row) => html`<${When} time=${row.seen} />` },
];

/** Their names; that of a machine's own directory has its long id behind an @. */
function Queues({ queue }) {
  if (!queue) return html`<span class="faint">own</span>`;
  const names = queue.split(",").map((one) => (one.includes("@") ? "own directory" : one));
  return html`<span class="nowrap" title=${queue}>${names.join(", ")}</span>`;
}

function JobList() {
  const load = useLoad(async (signal) => {
    const order = "newest";
    const [open, over] = await Promise.all([
      all("/jobs", { state: OPEN, order }, { signal }),
      get("/jobs", { state: OVER, order, limit: SHOWN }, { signal }),
    ]);
    return { open, over: over.items };
  });
  useEvents((event) => event.type === "reset" || event.type.startsWith("job."), load.reload);
  const { may } = useSession();
  const columns = may("operator") ? [...JOB_COLUMNS, cancelColumn(load.reload)] : JOB_COLUMNS;
  return html`<${Loaded} load=${load} what="Reading jobs">
    ${({ open, over }) => html`
      <section aria-labelledby="open">
        <div class="section-head"><h2 id="open">Running</h2></div>
        ${open.length
          ? html`<${Table} caption="Queued and running jobs" columns=${columns} rows=${open} />`
          : html`<p class="card card-body soft">No queued or running jobs.</p>`}
      </section>
      <section aria-labelledby="over">
        <div class="section-head"><h2 id="over">Recent</h2></div>
        ${over.length
          ? html`<${Table} caption="Recent jobs" columns=${JOB_COLUMNS} rows=${over} />`
          : html`<p class="card card-body soft">No jobs have ended yet.</p>`}
      </section>
    `}
  <//>`;
}

const JOB_COLUMNS = [
  { name: "state", label: "State", cell: (row) => html`<${JobBadge} state=${row.state} />` },
  { name: "kind", label: "Task", cell: (row) => html`<${Kind} kind=${row.kind} />` },
  { name: "attempt", label: "Attempt", number: true, cell: (row) => `${row.attempt} of ${row.max_attempts}` },
  { name: "error", label: "Note", wide: true, cell: (row) => row.problem?.detail ?? row.error ?? row.cancel_reason ?? "" },
  { name: "worker", label: "Worker", cell: (row) => (row.worker ? html`<${Id} id=${row.worker} />` : "") },
  { name: "updated", label: "Updated", cell: (row) => html`<${When} time=${row.updated} />` },
  { name: "id", label: "Id", cell: (row) => html`<${Id} id=${row.id} />` },
];

function Kind({ kind }) {
  const [what, plan] = kind.split(":");
  if (!plan) return what;
  return html`<span class="nowrap">${what} <${Link} to=${`/plans/${plan}`}><${Id} id=${plan} /><//></span>`;
}

function cancelColumn(reload) {
  const cancel = async (job) => {
    if (!(await confirm({ title: "Cancel the job?", text: "All processes of the job are stopped.", yes: "Cancel job", danger: true }))) return;
    try {
      await post(`/jobs/${job.id}/cancel`, { reason: "cancelled on the page" });
      toast("Stopping the job");
      reload();
    } catch (error) {
      toastProblem(error);
    }
  };
  const cell = (row) =>
    OVER.includes(row.state) ? "" : html`<${Button} small kind="danger" onClick=${() => cancel(row)}>Cancel<//>`;
  return { name: "cancel", label: "", cell };
}
