// Users and their tokens. A token is shown once, when it is created: only its digest is stored.

import { html, useState } from "../ui.js";
import { all, del, patch, post } from "../api.js";
import { Button, Dialog, Empty, ErrorBox, Id, Loaded, PageHead, Select, Table, TextField, When, confirm, toast, toastProblem } from "../components.js";
import { useLoad } from "../load.js";
import { useSession } from "../session.js";
import { useEvents } from "../stream.js";
import { byField } from "../validation.js";

const ROLES = [
  { value: "viewer", label: "viewer: reads their projects" },
  { value: "operator", label: "operator: starts, answers and applies plans" },
  { value: "admin", label: "admin: manages the server and all projects" },
];

export function Users() {
  const { may, user } = useSession();
  const load = useLoad((signal) => all("/users", {}, { signal }));
  useEvents((event) => event.type === "reset" || /^(user|member)\./.test(event.type), load.reload);
  const [open, setOpen] = useState(null);
  if (!may("admin")) {
    return html`<${PageHead} title="Users" /><${Empty} title="Admins only" icon="users"><p>Ask a server admin.</p><//>`;
  }
  const columns = [
    { name: "name", label: "Name", wide: true, cell: (row) => html`<strong>${row.name}</strong>${row.name === user.name ? html` <span class="faint">you</span>` : ""}` },
    { name: "role", label: "Role", cell: (row) => html`<${Role} row=${row} own=${row.name === user.name} reload=${load.reload} />` },
    { name: "projects", label: "Projects", cell: (row) => Object.entries(row.projects).map(([name, role]) => `${name} (${role})`).join(", ") },
    { name: "created", label: "Added", cell: (row) => html`<${When} time=${row.created} />` },
    { name: "tokens", label: "", cell: (row) => html`<${Button} small onClick=${() => setOpen({ tokens: row })} label=${`Tokens of ${row.name}`}>Tokens<//>` },
    { name: "remove", label: "", cell: (row) => row.name !== user.name && html`<${Button} small kind="quiet" icon="trash" label=${`Remove ${row.name}`} onClick=${() => remove(row, load.reload)} />` },
  ];
  return html`
    <${PageHead} title="Users" lead="Users, roles and tokens. Every request needs a token of a user.">
      <${Button} icon="plus" onClick=${() => setOpen({ add: true })}>Add user<//>
    <//>
    <${Loaded} load=${load} what="Loading users">
      ${(users) => html`<${Table} caption="Users" columns=${columns} rows=${users} keyOf=${(row) => row.name} />`}
    <//>
    ${open?.add && html`<${AddUser} onClose=${() => setOpen(null)} onDone=${() => { setOpen(null); load.reload(); }} />`}
    ${open?.tokens && html`<${Tokens} user=${open.tokens} onClose=${() => setOpen(null)} />`}
  `;
}

/** A select that changes the role. The server refuses to demote the last admin. */
function Role({ row, own, reload }) {
  const change = async (role) => {
    if (own && !(await confirm({ title: "Change your own role?", text: `You become ${role} at once.`, yes: "Change role", danger: true }))) {
      reload();
      return;
    }
    try {
      await patch(`/users/${encodeURIComponent(row.name)}`, { role });
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

async function remove(row, reload) {
  const text = "All tokens of this user stop working. Plans of this user stay.";
  if (!(await confirm({ title: `Remove ${row.name}?`, text, yes: "Remove", danger: true }))) return;
  try {
    await del(`/users/${encodeURIComponent(row.name)}`);
    toast(`Removed ${row.name}`);
    reload();
  } catch (error) {
    toastProblem(error);
  }
}

function AddUser({ onClose, onDone }) {
  const [draft, setDraft] = useState({ name: "", role: "viewer" });
  const [error, setError] = useState(null);
  const [wrong, general] = byField(error, ["name", "role"]);
  const send = async (event) => {
    event.preventDefault();
    try {
      await post("/users", { name: draft.name.trim(), role: draft.role });
      toast(`Added ${draft.name}. Create a token for this user.`);
      onDone();
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<${Dialog} title="Add user" onClose=${onClose}>
    <form class="form-part" onSubmit=${send}>
      ${general && html`<${ErrorBox} error=${general} />`}
      <${TextField} label="Name" autofocus required hint="Lower-case letters, digits and ._@-" value=${draft.name} onInput=${(name) => setDraft({ ...draft, name })} error=${wrong.name} />
      <${Select} label="Role" value=${draft.role} onInput=${(role) => setDraft({ ...draft, role })} options=${ROLES} />
      <div class="form-actions"><${Button} kind="primary" type="submit">Add<//></div>
    </form>
  <//>`;
}

function Tokens({ user, onClose }) {
  const path = `/users/${encodeURIComponent(user.name)}/tokens`;
  const load = useLoad((signal) => all(path, {}, { signal }), [user.name]);
  const [label, setLabel] = useState("");
  const [made, setMade] = useState(null);
  const attempt = async (work) => {
    try {
      await work();
      load.reload();
    } catch (error) {
      toastProblem(error);
    }
  };
  const add = (event) => {
    event.preventDefault();
    attempt(async () => setMade((await post(path, { label: label.trim() })).token));
  };
  const columns = [
    { name: "label", label: "Label", wide: true, cell: (row) => row.label || html`<span class="faint">${row.kind}</span>` },
    { name: "created", label: "Created", cell: (row) => html`<${When} time=${row.created} />` },
    { name: "id", label: "Id", cell: (row) => html`<${Id} id=${row.id} />` },
    { name: "revoke", label: "", cell: (row) => html`<${Button} small kind="danger" onClick=${() => attempt(() => del(`/tokens/${row.id}`))}>Revoke<//>` },
  ];
  return html`<${Dialog} title=${`Tokens of ${user.name}`} onClose=${onClose} wide>
    ${made && html`<div role="status">
      <p>Copy this token now: it is not shown again. It gives full access as ${user.name}.</p>
      <div class="secret"><code>${made}</code><${Button} icon="copy" onClick=${() => navigator.clipboard.writeText(made).then(() => toast("Copied"))}>Copy<//></div>
    </div>`}
    <form class="ask-row" onSubmit=${add}>
      <${TextField} label="Label" value=${label} onInput=${setLabel} placeholder="laptop" />
      <${Button} type="submit" icon="plus">Create token<//>
    </form>
    <${Loaded} load=${load} what="Loading tokens">
      ${(tokens) => tokens.length ? html`<${Table} caption=${`Tokens of ${user.name}`} columns=${columns} rows=${tokens} />
        <p class="soft">Revoking a token also revokes the tokens and browser sessions created with it.</p>` : html`<p class="soft">No tokens: ${user.name} cannot log in.</p>`}
    <//>
  <//>`;
}
