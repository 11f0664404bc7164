// The actions of a plan: a button for each action the server allows, and its dialog.

import { html, useRef, useState } from "../ui.js";
import { Button, Dialog, TextArea, TextField, toast } from "../components.js";
import { counted } from "../format.js";
import { navigate } from "../router.js";
import { Act, Trouble, useDiscard } from "./parts.js";
import { placeInWords, remoteOf } from "./place.js";
import { hasPassed, isPossible } from "./plan_text.js";

const SHOWN = [
  ["apply", "Apply …", "", "check"],
  ["revise", "Request changes …", "", "edit"],
  ["resume", "Resume …", "", "play"],
  ["rebase", "Rebase …", "", "branch"],
  ["rollback", "Withdraw revision …", "", "undo"],
  ["undo", "Undo …", "", "undo"],
  ["reject", "Discard …", "", "x"],
  ["pause", "Pause …", "", "stop"],
  ["cancel", "Cancel …", "danger", "stop"],
  ["delete", "Delete …", "quiet", "trash"],
];

/** The label of an action without its ellipsis. */
export const labelOf = (name) => SHOWN.find(([one]) => one === name)[1].replace(" …", "");

/** The effect of each action. */
export const HINTS = {
  apply: "merges the result into the current files",
  revise: "sends the open comments to the agent, which continues in the same sandbox",
  resume: "continues where the plan stopped, with the same request",
  rebase: "merges the result with the current files, in the sandbox",
  rollback: "returns to the result from before the revision",
  undo: "reverts the applied changes",
  reject: "drops the result; the plan stays readable",
  pause: "stops the plan until you resume or correct it",
  cancel: "ends the plan for good; the plan stays readable",
  delete: "removes the plan with its sandbox and its records",
};

export function Actions({ plan, asking, open }) {
  const shown = SHOWN.filter(([name]) => isPossible(plan, name));
  return shown.map(
    ([name, label, kind, icon]) => html`<${Act}
      key=${name}
      name=${name}
      kind=${kind}
      icon=${icon}
      asking=${asking}
      onClick=${() => open(name)}
      title=${`${labelOf(name)}: ${HINTS[name]}`}
      >${label}<//
    >`,
  );
}

const DIALOGS = { apply: Apply, revise: Revise, resume: Resume, rebase: Rebase, rollback: Withdraw, undo: Undo, reject: Discard, pause: Pause, cancel: Cancel, delete: Delete };

// The dialog of an action. It closes once the action is done; errors are shown inside it. `shown` is the result that
// the page shows, null while its diff is being read again; `showDiff` opens the diff.
export function ActionDialog({ name, plan, asking, close, shown, showDiff }) {
  const Body = DIALOGS[name];
  if (!Body) return null;
  const shut = () => {
    asking.forget(name);
    close();
  };
  const send = async (body, done) => {
    const said = await asking.ask(name, body, name, isOutOfDate);
    if (said === null) return;
    shut();
    toast(done);
  };
  const isOutOfDate = (problem) => {
    if (problem.code !== "result-changed") return false;
    shut();
    showDiff();
    toast("Nothing was applied: the result changed after you saw it. Look at the new diff, and apply again.", "bad");
    return true;
  };
  return html`<${Body} ...${{ plan, asking, shut, send, shown }} trouble=${html`<${Trouble} problem=${asking.said[name]} />`} />`;
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
        <${Button} onClick=${shut}>Go back<//>
        <${Act} name=${name} type="submit" kind=${kind} icon=${icon} asking=${asking} disabled=${disabled}>${yes}<//>
      </div>
    </form>
  <//>`;
}

function Apply({ plan, asking, shut, send, shown, trouble }) {
  const [message, setMessage] = useState("");
  const [branch, setBranch] = useState("");
  const left = (plan.left_out || []).length;
  const failed = (plan.checks || []).filter((check) => check.required && !hasPassed(check));
  // The result that the dialog was opened for: the plan may change while it is open.
  const kept = useRef(null);
  const seen = (kept.current ??= shown);
  const said = { commit: message.trim(), to_branch: branch.trim(), ...seen };
  const body = Object.fromEntries(Object.entries(said).filter(([, value]) => value));
  const apply = () => send(body, "Applying the result");
  const remote = remoteOf(plan);
  const where = remote
    ? html`branch <code>${remote.branch}</code> of <code class="p-path">${remote.url}</code> and push one commit
        to ${branch.trim() || remote.target !== remote.branch ? html`the new branch <code>${branch.trim() || remote.target}</code>` : "it"}`
    : html`the current files of <code class="p-path">${plan.resource_name || plan.resource}</code>`;
  const hint = remote
    ? "Default: the plan's goal."
    : "Empty: the files are changed but not committed.";
  return html`<${Frame}
    ...${{ name: "apply", asking, shut, trouble }}
    title=${remote ? "Apply and push" : "Apply the result"} yes=${remote ? "Apply and push" : "Apply"} icon="check" onYes=${apply} disabled=${!seen}
  >
    <p>
      Merge ${counted(plan.files_changed, "changed file")} into ${where}. On a conflict, nothing is changed.
      ${left > 0 && html`<br />${counted(left, "file")} left out.`}
    </p>
    ${failed.length > 0 &&
    html`<p class="p-warn">${failed.map((one) => one.name).join(", ")} did not pass. Required checks run again before the apply.</p>`}
    <${TextField} label="Commit message" optional autofocus hint=${hint}
      value=${message} onInput=${setMessage} maxlength="500" />
    ${remote && html`<${TextField} label="New branch" optional class="mono" placeholder=${remote.target}
      hint=${`Push to this branch instead of ${remote.branch}.`} value=${branch} onInput=${setBranch} maxlength="200" />`}
  <//>`;
}

function Revise({ plan, asking, shut, send, trouble }) {
  const [message, setMessage] = useState("");
  const open = plan.open_comments || 0;
  const revise = () => send({ message: message.trim() }, "Changes requested");
  return html`<${Frame}
    ...${{ name: "revise", asking, shut, trouble }}
    title="Request changes" yes="Request changes" icon="edit" onYes=${revise} disabled=${!open && !message.trim()}
  >
    <p>${open
      ? `Sends ${counted(open, "open comment")} to the agent, which continues in the same sandbox and answers each of them.`
      : "No comments are open. Write a message, or comment on lines in the diff first."}</p>
    <${TextArea} label="Message" optional=${open > 0} autofocus rows="3" value=${message} onInput=${setMessage} maxlength="20000" />
  <//>`;
}

function Resume({ plan, asking, shut, send, trouble }) {
  const [model, setModel] = useState("");
  const go = () => send(model.trim() ? { model: model.trim() } : {}, "Resumed");
  return html`<${Frame}
    ...${{ name: "resume", asking, shut, trouble }}
    title="Resume the plan" yes="Resume" icon="play" onYes=${go}
  >
    <p>The plan continues where it stopped. Finished steps do not run again.</p>
    <${TextField} label="Model" optional autofocus hint="PROVIDER/NAME. Empty: keep the current model."
      placeholder=${(plan.request || {}).model || ""} value=${model} onInput=${setModel} />
  <//>`;
}

function Rebase({ plan, asking, shut, send, trouble }) {
  const rebase = () => send({}, "Rebasing the result");
  return html`<${Frame}
    ...${{ name: "rebase", asking, shut, trouble }}
    title="Rebase the result" yes="Rebase" icon="branch" onYes=${rebase}
  >
    <p>Merges the result with the current files of ${placeInWords(plan)}, in the sandbox. Then the checks run again.
      If the repository has not changed, nothing happens.</p>
  <//>`;
}

function Withdraw({ plan, asking, shut, send, trouble }) {
  const [version] = useState(plan.version);
  const [discard, discardBox] = useDiscard(asking.said.rollback);
  const withdraw = () => send({ withdraw: true, version, ...discard }, "Revision withdrawn");
  return html`<${Frame}
    ...${{ name: "rollback", asking, shut, trouble: [trouble, discardBox] }}
    title="Withdraw the revision" yes="Withdraw" icon="undo" onYes=${withdraw}
  >
    <p>Restores the result from before the revision, in the sandbox. The plan is then as it was before the revision, and the comments of the revision are open again.</p>
  <//>`;
}

function Undo({ plan, asking, shut, send, trouble }) {
  const remote = remoteOf(plan);
  const undo = () => send({}, "Undoing the apply");
  return html`<${Frame}
    ...${{ name: "undo", asking, shut, trouble }}
    title="Undo the apply" yes="Undo" icon="undo" onYes=${undo}
  >
    <p>Reverts the changes of this plan in ${placeInWords(plan)}. Later changes stay. History is never rewritten:${" "}
      ${remote ? "the undo is pushed as a new commit." : "the commit of the apply stays."}</p>
  <//>`;
}

function Discard({ plan, asking, shut, send, trouble }) {
  const place = placeInWords(plan);
  const discard = () => send({}, "Result discarded");
  return html`<${Frame}
    ...${{ name: "reject", asking, shut, trouble }}
    title="Discard the result" yes="Discard" kind="danger" icon="x" onYes=${discard}
  >
    <p>A discarded result cannot be applied later. Nothing was changed in ${place}.</p>
  <//>`;
}

function Pause({ asking, shut, send, trouble }) {
  const pause = () => send({}, "Pause requested");
  return html`<${Frame}
    ...${{ name: "pause", asking, shut, trouble }}
    title="Pause the plan" yes="Pause plan" icon="stop" onYes=${pause}
  >
    <p>Ends all processes of the plan and its sub-plans. Finished calls stay. After a resume, the call in progress is made again.</p>
  <//>`;
}

function Cancel({ plan, asking, shut, send, trouble }) {
  const [reason, setReason] = useState("");
  const parts = (plan.sub_plans || []).length;
  const cancel = () => send(reason.trim() ? { reason: reason.trim() } : {}, "Cancel requested");
  return html`<${Frame}
    ...${{ name: "cancel", asking, shut, trouble }}
    title="Cancel the plan" yes="Cancel plan" kind="danger" icon="stop" onYes=${cancel}
  >
    <p>Ends all processes of the plan${parts ? ` and of its ${counted(parts, "sub-plan")}` : ""}. A cancelled plan cannot be
      resumed. Nothing is changed in ${placeInWords(plan)}.</p>
    <${TextField} label="Reason" optional autofocus hint="Recorded in the audit log." value=${reason} onInput=${setReason} maxlength="300" />
  <//>`;
}

// The server refuses a delete that would lose something. Then the dialog offers to force it.
function Delete({ plan, asking, shut, trouble }) {
  const [force, setForce] = useState(false);
  const refused = Boolean(asking.said.delete) || force;
  const gone = async () => {
    if (await asking.remove(force)) {
      toast("Plan deleted");
      navigate("/");
    }
  };
  return html`<${Frame}
    ...${{ name: "delete", asking, shut, trouble }}
    title="Delete the plan" yes="Delete" kind="danger" icon="trash" onYes=${gone}
  >
    <p>Removes the plan with its sandbox, records and output for good. ${plan.state === "applied" &&
    "The apply can no longer be undone."}</p>
    ${refused &&
    html`<label class="p-check">
      <input type="checkbox" checked=${force} onChange=${() => setForce(!force)} />Delete anyway
    </label>`}
  <//>`;
}
