// What can be done with a plan: buttons for what the server says is possible, and a dialog for each.

import { html, useState } from "../ui.js";
import { Button, Dialog, TextField, toast } from "../components.js";
import { counted } from "../format.js";
import { navigate } from "../router.js";
import { Act, Trouble } from "./parts.js";
import { placeInWords, remoteOf } from "./place.js";
import { hasPassed } from "./plan_text.js";

const SHOWN = [
  ["apply", "Apply …", "", "check"],
  ["resume", "Resume …", "", "play"],
  ["undo", "Undo …", "", "undo"],
  ["reject", "Reject …", "", "x"],
  ["cancel", "Cancel …", "danger", "stop"],
  ["delete", "Delete …", "quiet", "trash"],
];

/** What each of them does, in a few words. */
export const HINTS = {
  apply: "merges its result with what is there now",
  resume: "goes on where it stopped, with the same request",
  undo: "takes back what it applied",
  reject: "says that its result is not wanted; it stays to be read",
  cancel: "ends it for good; it stays to be read",
  delete: "removes it with its sandbox and its records",
};

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
      title=${`${label.replace(" …", "")}: ${HINTS[name]}`}
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
  const [branch, setBranch] = useState("");
  const left = (plan.left_out || []).length;
  const failed = (plan.checks || []).filter((check) => check.required && !hasPassed(check));
  const said = { commit: message.trim(), to_branch: branch.trim() };
  const body = Object.fromEntries(Object.entries(said).filter(([, value]) => value));
  const apply = () => send(body, "Applying it: the page shows when it is done");
  const remote = remoteOf(plan);
  const where = remote
    ? html`branch <code>${remote.branch}</code> of <code class="p-path">${remote.url}</code> holds now, and pushed as one commit
        to ${branch.trim() || remote.target !== remote.branch ? html`the new branch <code>${branch.trim() || remote.target}</code>` : "it"}`
    : html`<code class="p-path"> ${plan.resource_name || plan.resource}</code> holds now`;
  const hint = remote
    ? "Without one, the message is made from the plan's goal."
    : "Without one your files are changed, and nothing is committed.";
  return html`<${Frame}
    ...${{ name: "apply", asking, shut, trouble }}
    title=${remote ? "Apply the result: push it" : "Apply the result"} yes=${remote ? "Apply and push" : "Apply"} icon="check" onYes=${apply}
  >
    <p>
      ${counted(plan.files_changed, "file")} ${plan.files_changed === 1 ? "is" : "are"} merged with what${" "}
      ${where}: all of it, or nothing.
      ${left > 0 && html`<br />${left === 1 ? "1 file left out stays as it is." : `${left} files left out stay as they are.`}`}
    </p>
    ${failed.length > 0 &&
    html`<p class="p-warn">${failed.map((one) => one.name).join(", ")} did not pass on these files; it is run again first.</p>`}
    <${TextField} label="Commit message" optional autofocus hint=${hint}
      value=${message} onInput=${setMessage} maxlength="500" />
    ${remote && html`<${TextField} label="New branch" optional class="mono" placeholder=${remote.target}
      hint=${`Pushes it there, and leaves ${remote.branch} as it is.`} value=${branch} onInput=${setBranch} maxlength="200" />`}
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
  const remote = remoteOf(plan);
  const undo = () => send({}, "Taking it out: the page shows when it is done");
  return html`<${Frame}
    ...${{ name: "undo", asking, shut, trouble }}
    title=${`Take it out of ${remote ? placeInWords(plan) : "your files"} again`} yes="Undo" icon="undo" onYes=${undo}
  >
    <p>What this plan wrote is taken back; what you or other plans changed since stays.${" "}
      ${remote
        ? "One more commit is pushed that takes it back"
        : "A commit that was made stays in the history"}: an undo adds, it never rewrites.</p>
  <//>`;
}

function Reject({ plan, asking, shut, send, trouble }) {
  const place = placeInWords(plan);
  const reject = () => send({}, "Rejected; nothing was changed");
  return html`<${Frame}
    ...${{ name: "reject", asking, shut, trouble }}
    title="Reject the result" yes="Reject" kind="danger" icon="x" onYes=${reject}
  >
    <p>The result is not wanted: it can not be applied afterwards. Nothing was written to ${place}, and nothing will be.</p>
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
      with; ${placeInWords(plan)} ${remoteOf(plan) ? "stays as it is" : "stay as they are"}.</p>
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
