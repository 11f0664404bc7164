// The members of a project and their roles. Admins of the project can change them.

import { html, useState } from "../ui.js";
import { all, del, put } from "../api.js";
import { Button, Dialog, ErrorBox, Loaded, Select, Table, TextField, confirm, toast, toastProblem } from "../components.js";
import { useLoad } from "../load.js";
import { useSession } from "../session.js";

const ROLES = [
  { value: "viewer", label: "viewer: reads" },
  { value: "operator", label: "operator: starts, answers and applies plans" },
  { value: "admin", label: "admin: also manages members" },
];

/** A dialog with the members of the project. */
export function Members({ project, onClose }) {
  const path = `/projects/${project}/members`;
  const load = useLoad((signal) => all(path, {}, { signal }), [project]);
  const admin = useSession().mayIn(project, "admin");
  const columns = [
    { name: "name", label: "Name", wide: true, cell: (row) => html`<strong>${row.name}</strong>` },
    { name: "role", label: "Role", cell: (row) => (admin ? html`<${Role} row=${row} path=${path} reload=${load.reload} />` : row.role) },
    ...(admin ? [{ name: "remove", label: "", cell: (row) => html`<${Button} small kind="quiet" icon="trash" label=${`Remove ${row.name}`} onClick=${() => remove(row, project, path, load.reload)} />` }] : []),
  ];
  return html`<${Dialog} title=${`Members of ${project}`} onClose=${onClose} wide>
    <${Loaded} load=${load} what="Loading members">
      ${(members) =>
        members.length
          ? html`<${Table} caption=${`Members of ${project}`} columns=${columns} rows=${members} keyOf=${(row) => row.name} />`
          : html`<p class="soft">No members yet. Server admins have access to every project.</p>`}
    <//>
    ${admin && html`<${Add} path=${path} reload=${load.reload} />`}
  <//>`;
}

function Role({ row, path, reload }) {
  const change = async (role) => {
    try {
      await put(`${path}/${encodeURIComponent(row.name)}`, { role });
      toast(`${row.name} is now ${role}`);
    } catch (error) {
      toastProblem(error);
    }
    reload();
  };
  return html`<select class="select-small" aria-label=${`Role of ${row.name}`} value=${row.role} onChange=${(event) => change(event.currentTarget.value)}>
    ${ROLES.map((one) => html`<option key=${one.value} value=${one.value} selected=${one.value === row.role} title=${one.label}>${one.value}</option>`)}
  </select>`;
}

async function remove(row, project, path, reload) {
  const text = "This user loses all access to the project.";
  if (!(await confirm({ title: `Remove ${row.name} from ${project}?`, text, yes: "Remove", danger: true }))) return;
  try {
    await del(`${path}/${encodeURIComponent(row.name)}`);
    toast(`Removed ${row.name}`);
  } catch (error) {
    toastProblem(error);
  }
  reload();
}

function Add({ path, reload }) {
  const [draft, setDraft] = useState({ name: "", role: "viewer" });
  const [error, setError] = useState(null);
  const send = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      await put(`${path}/${encodeURIComponent(draft.name.trim())}`, { role: draft.role });
      toast(`Added ${draft.name}`);
      setDraft({ name: "", role: "viewer" });
      reload();
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<form class="form-part" onSubmit=${send}>
    ${error && html`<${ErrorBox} error=${error} />`}
    <${TextField} label="User" required hint="An existing user of this server." value=${draft.name} onInput=${(name) => setDraft({ ...draft, name })} />
    <${Select} label="Role" value=${draft.role} onInput=${(role) => setDraft({ ...draft, role })} options=${ROLES} />
    <div class="form-actions"><${Button} kind="primary" type="submit">Add<//></div>
  </form>`;
}
