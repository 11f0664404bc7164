// What can be done with a plan: buttons for what the server says is possible, and a dialog for each.

import { html, useState } from "../ui.js";
import { Button, Dialog, TextField, toast } from "../components.js";
import { counted } from "../format.js";
import { navigate } from "../router.js";
import { Act, Trouble } from "./parts.js";

const SHOWN = [
  ["apply", "Apply …", "", "check"],
  ["resume", "Resume …", "", "play"],
  ["undo", "Undo …", "", "undo"],
  ["reject", "Reject …", "", "x"],
  ["cancel", "Cancel …", "danger", "stop"],
  ["delete", "Delete …", "quiet", "trash"],
];

export function Actions({ plan, asking, open }) {
  const shown = SHOWN.filter(([name]) => (plan.can || []).includes(name));
  return shown.map(
    ([name, label, kind, icon]) => html`<${Act}
      key=${name}
      name=${name}
      kind=${kind}
      icon=${icon}
      asking=${asking}
      onClick=${() => open(name)}
      >${label}<//
    >`,
  );
}

const DIALOGS = { apply: Apply, resume: Resume, undo: Undo, reject: Reject, cancel: Cancel, delete: Delete };

// The dialog of that name. It stays open with what went wrong; it closes when it is done.
export function ActionDialog({ name, plan, asking, close }) {
  const Body = DIALOGS[name];
  if (!Body) return null;
  const shut = () => {
    asking.forget(name);
    close();
  };
  const send = async (body, done) => {
    const said = await asking.ask(name, body);
    if (said === null) return;
    shut();
    toast(done);
  };
  return html`<${Body} ...${{ plan, asking, shut, send }} trouble=${html`<${Trouble} problem=${asking.said[name]} />`} />`;
}

function Frame({ title, name, yes, kind = "primary", asking, shut, onYes, disabled, children, trouble, icon }) {
  const submit = (event) => {
    event.preventDefault();
    onYes();
  };
  return html`<${Dialog} title=${title} onClose=${shut}>
    <form class="p-dialog" onSubmit=${submit}>
      ${children} ${trouble}
      <div class="p-row p-dialog-row">
        <${Button} onClick=${shut}>Not now<//>
        <${Act} name=${name} type="submit" kind=${kind} icon=${icon} asking=${asking} disabled=${disabled}>${yes}<//>
      </div>
    </form>
  <//>`;
}

function Apply({ plan, asking, shut, send, trouble }) {
  const [message, setMessage] = useState("");
  const left = (plan.left_out || []).length;
  const failed = (plan.checks || []).filter((check) => check.required && check.verdict !== "passed");
  const body = message.trim() ? { commit: message.trim() } : {};
  const apply = () => send(body, "Applying it: the page shows when it is done");
  return html`<${Frame}
    ...${{ name: "apply", asking, shut, trouble }}
    title="Apply the result" yes="Apply" icon="check" onYes=${apply}
  >
    <p>
      ${counted(plan.files_changed, "file")} ${plan.files_changed === 1 ? "is" : "are"} merged with what
      <code class="p-path"> ${plan.resource_name || plan.resource}</code> holds now: all of it, or nothing.
      ${left > 0 && html`<br />${counted(left, "file")} left out stay as they are.`}
    </p>
    ${failed.length > 0 &&
    html`<p class="p-warn">${failed.map((one) => one.name).join(", ")} did not pass; it is run again first.</p>`}
    <${TextField} label="Commit message" optional autofocus hint="Without one your files are changed, and nothing is committed."
      value=${message} onInput=${setMessage} maxlength="500" />
  <//>`;
}

function Resume({ plan, asking, shut, send, trouble }) {
  const [model, setModel] = useState("");
  const go = () => send(model.trim() ? { model: model.trim() } : {}, "It goes on");
  return html`<${Frame}
    ...${{ name: "resume", asking, shut, trouble }}
    title="Go on with it" yes="Resume" icon="play" onYes=${go}
  >
    <p>It goes on where it stopped; what was done is not done again.</p>
    <${TextField} label="Another model" optional autofocus hint="PROVIDER/NAME, from now on; empty: the same as before."
      placeholder=${(plan.request || {}).model || ""} value=${model} onInput=${setModel} />
  <//>`;
}

function Undo({ plan, asking, shut, send, trouble }) {
  const undo = () => send({}, "Taking it out: the page shows when it is done");
  return html`<${Frame}
    ...${{ name: "undo", asking, shut, trouble }}
    title="Take it out of your files again" yes="Undo" icon="undo" onYes=${undo}
  >
    <p>What this plan wrote is taken back; what you or other plans changed since stays. A commit that was made stays in
      the history: an undo adds, it never rewrites.</p>
  <//>`;
}

function Reject({ asking, shut, send, trouble }) {
  const reject = () => send({}, "Rejected; your files were not touched");
  return html`<${Frame}
    ...${{ name: "reject", asking, shut, trouble }}
    title="Reject the result" yes="Reject" kind="danger" icon="x" onYes=${reject}
  >
    <p>The result is not wanted: it can not be applied afterwards. Your files were not touched, and will not be.</p>
  <//>`;
}

function Cancel({ plan, asking, shut, send, trouble }) {
  const [reason, setReason] = useState("");
  const parts = (plan.sub_plans || []).length;
  const cancel = () => send(reason.trim() ? { reason: reason.trim() } : {}, "Asked to stop");
  return html`<${Frame}
    ...${{ name: "cancel", asking, shut, trouble }}
    title="Stop this plan" yes="Stop it" kind="danger" icon="stop" onYes=${cancel}
  >
    <p>Every process of it is ended${parts ? `, those of its ${counted(parts, "sub-plan")} too` : ""}. It cannot be gone on
      with; your files stay as they are.</p>
    <${TextField} label="Reason" optional autofocus hint="Kept in the log." value=${reason} onInput=${setReason} maxlength="300" />
  <//>`;
}

// Refused where something would be lost; then it is the user who says that it may be.
function Delete({ plan, asking, shut, trouble }) {
  const [force, setForce] = useState(false);
  const refused = Boolean(asking.said.delete) || force;
  const gone = async () => {
    if (await asking.remove(force)) {
      toast("Deleted");
      navigate("/");
    }
  };
  return html`<${Frame}
    ...${{ name: "delete", asking, shut, trouble }}
    title="Delete this plan" yes="Delete" kind="danger" icon="trash" onYes=${gone}
  >
    <p>Its sandbox, its records and its output are removed for good. ${plan.state === "applied" &&
    "It cannot be undone any more."}</p>
    ${refused &&
    html`<label class="p-check">
      <input type="checkbox" checked=${force} onChange=${() => setForce(!force)} />Delete it, whatever is lost with it
    </label>`}
  <//>`;
}
