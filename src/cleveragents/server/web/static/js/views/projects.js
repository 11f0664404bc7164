// Projects and their repositories.

import { html, useState } from "../ui.js";
import { all, del, post } from "../api.js";
import { Button, Dialog, Empty, ErrorBox, Loaded, PageHead, Select, Table, TextField, Toggle, When, confirm, toast, toastProblem } from "../components.js";
import { useLoad } from "../load.js";
import { useSession } from "../session.js";
import { useEvents } from "../stream.js";
import { byField } from "../validation.js";
import { Members } from "./members.js";
import { Rules } from "./rules.js";
import { Trust } from "./trust.js";

export function Projects() {
  const load = useLoad(async (signal) => {
    const [projects, resources] = await Promise.all([all("/projects", {}, { signal }), all("/resources", {}, { signal })]);
    return { projects, resources };
  });
  useEvents((event) => event.type === "reset" || /^(project|resource|member)\./.test(event.type), load.reload);
  const { may, mayIn } = useSession();
  const [adding, setAdding] = useState(null);
  const done = () => {
    setAdding(null);
    load.reload();
  };
  return html`
    <${PageHead} title="Projects" lead="Plans run only on repositories listed here. You see the projects you are a member of.">
      ${may("admin") && html`<${Button} icon="plus" onClick=${() => setAdding("project")}>Add project<//>
        <${Button} icon="plus" onClick=${() => setAdding("resource")} disabled=${!load.data?.projects.length}>Add repository<//>`}
    <//>
    <${Loaded} load=${load} what="Loading projects">
      ${({ projects, resources }) => html`
        ${projects.length === 0 && html`<${Empty} title="No projects yet" icon="folder">
          <p>A project groups repositories and limits how many of their plans run in parallel. Admins add projects here or with <code>agents project add</code>.</p>
        <//>`}
        <div class="stack">
          ${projects.map((one) => html`<${ProjectPart} key=${one.name} project=${one} resources=${resources.filter((other) => other.project === one.name)} server=${may("admin")} admin=${mayIn(one.name, "admin")} reload=${load.reload} />`)}
        </div>
        ${adding === "project" && html`<${AddProject} onClose=${() => setAdding(null)} onDone=${done} />`}
        ${adding === "resource" && html`<${AddResource} projects=${projects} onClose=${() => setAdding(null)} onDone=${done} />`}
      `}
    <//>
  `;
}

function ProjectPart({ project, resources, server, admin, reload }) {
  const [members, setMembers] = useState(false);
  const [rules, setRules] = useState(false);
  const [trusting, setTrusting] = useState(null);
  const trust = { name: "trust", label: "Config", cell: (row) => html`<${Button} small label=${`Review config of ${row.name}`} onClick=${() => setTrusting(row.name)}>Review<//>` };
  const columns = admin ? [...COLUMNS, trust, removeColumn("repository", (row) => `/resources/${row.name}`, reload)] : COLUMNS;
  const remove = () => removed("project", project.name, `/projects/${project.name}`, reload);
  const bound = project.max_parallel ? `max parallel: ${project.max_parallel}` : "no parallel limit";
  return html`<section aria-label=${`Project ${project.name}`}>
    <div class="section-head">
      <div>
        <h2>${project.name}</h2>
        <p class="small faint">${[project.description, bound].filter(Boolean).join(" · ")}</p>
      </div>
      <div>
        <${Button} small label=${`Members of ${project.name}`} onClick=${() => setMembers(true)}>Members<//>
        ${" "}<${Button} small label=${`Approval rules of ${project.name}`} onClick=${() => setRules(true)}>Rules<//>
        ${server && html` <${Button} small kind="danger" onClick=${remove}>Remove<//>`}
      </div>
    </div>
    ${resources.length
      ? html`<${Table} caption=${`Repositories of ${project.name}`} columns=${columns} rows=${resources} keyOf=${(row) => row.name} />`
      : html`<p class="card card-body soft">No repositories yet. Add one to run plans in this project.</p>`}
    ${trusting && html`<${Trust} resource=${trusting} onClose=${() => setTrusting(null)} />`}
    ${rules && html`<${Rules} project=${project.name} onClose=${() => setRules(false)} />`}
    ${members && html`<${Members} project=${project.name} onClose=${() => setMembers(false)} />`}
  </section>`;
}

const COLUMNS = [
  { name: "name", label: "Name", cell: (row) => html`<strong>${row.name}</strong>` },
  { name: "kind", label: "Kind", cell: (row) => row.kind },
  { name: "location", label: "Location", wide: true, cell: (row) => html`<code>${row.location}</code>` },
  { name: "branch", label: "Branch", cell: (row) => row.branch ?? "" },
  { name: "created", label: "Added", cell: (row) => html`<${When} time=${row.created} />` },
];

function removeColumn(what, path, reload) {
  const cell = (row) => html`<${Button} small kind="quiet" icon="trash" label=${`Remove ${row.name}`} onClick=${() => removed(what, row.name, path(row), reload)} />`;
  return { name: "remove", label: "", cell };
}

async function removed(what, name, path, reload) {
  const text = "Existing plans stay, but no new plans can start. No files are deleted.";
  if (!(await confirm({ title: `Remove the ${what} ${name}?`, text, yes: "Remove", danger: true }))) return;
  try {
    await del(path);
    toast(`Removed ${name}`);
    reload();
  } catch (error) {
    toastProblem(error);
  }
}

/** A dialog with a form that sends `body()` to `path`. `children` is a function of the errors by field. */
function Adding({ title, path, body, onClose, onDone, fields, children }) {
  const [error, setError] = useState(null);
  const [wrong, general] = byField(error, fields);
  const [busy, setBusy] = useState(false);
  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const made = await post(path, body());
      if (made?.warning) toast(`Added ${made.name}, but ${made.warning}`, "bad");
      else toast(made?.location ? `Added ${made.name}: ${made.location}` : `Added ${made.name}`);
      onDone();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form class="form-part" onSubmit=${send}>
      ${general && html`<${ErrorBox} error=${general} />`}
      ${children(wrong)}
      <div class="form-actions"><${Button} kind="primary" type="submit" busy=${busy}>Add<//></div>
    </form>
  <//>`;
}

const NAMES = "Lower-case letters, digits and ._-";

function AddProject({ onClose, onDone }) {
  const [draft, setDraft] = useState({ name: "", description: "", most: "" });
  const set = (name) => (value) => setDraft((before) => ({ ...before, [name]: value }));
  const body = () => ({ name: draft.name.trim(), description: draft.description.trim(), max_parallel: draft.most ? Number(draft.most) : null });
  return html`<${Adding} title="Add project" path="/projects" body=${body} onClose=${onClose} onDone=${onDone} fields=${["name", "description", "max_parallel"]}>
    ${(wrong) => html`
      <${TextField} label="Name" required autofocus hint=${NAMES} value=${draft.name} onInput=${set("name")} error=${wrong.name} />
      <${TextField} label="Description" optional value=${draft.description} onInput=${set("description")} error=${wrong.description} />
      <${TextField} label="Max parallel" optional type="number" min="1" value=${draft.most} onInput=${set("most")} error=${wrong.max_parallel} />
    `}
  <//>`;
}

function AddResource({ projects, onClose, onDone }) {
  const [draft, setDraft] = useState({ name: "", project: projects[0].name, kind: "directory", location: "", branch: "" });
  const set = (name) => (value) => setDraft((before) => ({ ...before, [name]: value }));
  const remote = draft.kind === "remote";
  const body = () => ({
    name: draft.name.trim(),
    project: draft.project,
    ...(remote ? { remote: draft.location.trim() } : { path: draft.location.trim() }),
    ...(remote && draft.branch.trim() ? { branch: draft.branch.trim() } : {}),
  });
  return html`<${Adding} title="Add repository" path="/resources" body=${body} onClose=${onClose} onDone=${onDone} fields=${["name", "project", "path", "remote", "branch"]}>
    ${(wrong) => html`
    <${TextField} label="Name" required autofocus hint=${NAMES} value=${draft.name} onInput=${set("name")} error=${wrong.name} />
    <${Select} label="Project" value=${draft.project} onInput=${set("project")} options=${projects.map((one) => one.name)} />
    <${Toggle} label="Location" value=${draft.kind} onInput=${set("kind")} options=${[{ value: "directory", label: "On the server" }, { value: "remote", label: "Git remote" }]} />
    <${TextField} label=${remote ? "Address" : "Directory"} required class="mono" placeholder=${remote ? "https://git.example.org/shop.git" : "/srv/shop"} hint=${remote ? "No user name or password: all users can see it. Plans push their results to it." : "An existing directory on the server's machine."} value=${draft.location} onInput=${set("location")} error=${remote ? wrong.remote : wrong.path} />
    ${remote && html`<${TextField} label="Branch" optional placeholder="main" value=${draft.branch} onInput=${set("branch")} error=${wrong.branch} />`}
    `}
  <//>`;
}
