// The dialog that rolls a plan back to a checkpoint. It lists the calls that are lost.

import { html, useState } from "../ui.js";
import { Button, Dialog, toast } from "../components.js";
import { counted } from "../format.js";
import { Act, Trouble, useDiscard } from "./parts.js";

// `call` is the first call that is lost.
export function RollbackDialog({ plan, call, asking, close }) {
  const lost = (plan.calls || []).filter((one) => one.number >= call.number && one.state !== "reverted");
  const changing = lost.filter((one) => one.changed > 0);
  const changed = changing.length ? `${changing.length} of which changed files` : "none of which changed files";
  const [sure, setSure] = useState(false);
  const [version] = useState(plan.version); // the calls that the dialog listed when it opened
  const [discard, discardBox] = useDiscard(asking.said.rollback);
  const shut = () => {
    asking.forget("rollback");
    close();
  };
  const go = async () => {
    if ((await asking.ask("rollback", { checkpoint: call.number, version, ...discard })) === null) return;
    toast(`Rolled back to checkpoint ${call.number}`);
    close();
  };
  return html`<${Dialog} title=${`Roll back to checkpoint ${call.number}`} onClose=${shut}>
    <div class="p-dialog">
      <p>Resets the plan's sandbox to its state before call ${call.number} (${call.tool}). Your own files are not touched.</p>
      <p><strong>Lost:</strong> ${counted(lost.length, "call")}, ${changed}.</p>
      ${changing.length > 0 &&
      html`<ul class="p-plain p-lost">
        ${changing
          .slice(0, 8)
          .map((one) => html`<li key=${one.number}><code>${one.number} ${one.tool}</code> ${one.what.slice(0, 100)}</li>`)}
        ${changing.length > 8 && html`<li>… and ${changing.length - 8} more</li>`}
      </ul>`}
      <label class="p-check"><input type="checkbox" checked=${sure} onChange=${() => setSure(!sure)} />Lose these calls</label>
      <${Trouble} problem=${asking.said.rollback} />
      ${discardBox}
      <div class="p-row p-dialog-row">
        <${Button} onClick=${shut}>Go back<//>
        <${Act} name="rollback" kind="danger" icon="undo" asking=${asking} disabled=${!sure} onClick=${go}>Roll back<//>
      </div>
    </div>
  <//>`;
}
