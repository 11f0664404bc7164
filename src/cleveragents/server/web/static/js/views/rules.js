// The approval rules of a project. Operators of the project can revoke them.

import { html } from "../ui.js";
import { all, del } from "../api.js";
import { Button, Dialog, Id, Link, Loaded, Table, When, confirm, toast, toastProblem } from "../components.js";
import { useLoad } from "../load.js";
import { useSession } from "../session.js";
import { useEvents } from "../stream.js";

/** A dialog with the approval rules of the project. */
export function Rules({ project, onClose }) {
  const load = useLoad((signal) => all("/rules", { project }, { signal }), [project]);
  useEvents((event) => event.type === "reset" || event.type.startsWith("rule."), load.reload);
  const revoke = { name: "revoke", label: "", cell: (row) => html`<${Button} small label=${`Revoke ${row.pattern}`} onClick=${() => revoked(row, load.reload)}>Revoke<//>` };
  const columns = useSession().mayIn(project, "operator") ? [...COLUMNS, revoke] : COLUMNS;
  return html`<${Dialog} title=${`Approval rules of ${project}`} onClose=${onClose} wide>
    <p>Commands that match a rule run without approval, if they are isolated.</p>
    <${Loaded} load=${load} what="Loading rules">
      ${(rules) =>
        rules.length
          ? html`<${Table} caption=${`Approval rules of ${project}`} columns=${columns} rows=${rules} keyOf=${(row) => row.id} />`
          : html`<p class="soft">No rules yet. Approve a command with <em>Always allow</em> to add one.</p>`}
    <//>
  <//>`;
}

const COLUMNS = [
  { name: "pattern", label: "Command", wide: true, cell: (row) => html`<code>${row.pattern}</code>` },
  { name: "where", label: "Applies to", cell: (row) => whereOf(row) },
  { name: "by", label: "Added by", cell: (row) => row.by ?? "owner" },
  { name: "created", label: "Added", cell: (row) => html`<${When} time=${row.created} />` },
];

function whereOf(row) {
  if (row.plan) return html`plan <${Link} to=${`/plans/${row.plan}`}><${Id} id=${row.plan} /><//>`;
  return row.repository ? html`<code>${row.repository}</code>` : "all repositories";
}

async function revoked(row, reload) {
  const text = `From the next call on, ${row.pattern} needs approval again.`;
  if (!(await confirm({ title: "Revoke the rule?", text, yes: "Revoke", danger: true }))) return;
  try {
    await del(`/rules/${row.id}`);
    toast(`Revoked ${row.pattern}`);
  } catch (error) {
    toastProblem(error);
  }
  reload();
}
