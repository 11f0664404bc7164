// The dialog that corrects a decision or adds guidance. It previews the effects before anything changes.

import { html, useEffect, useState } from "../ui.js";
import { Button, Dialog, ErrorBox, Loading, TextArea, TextField, toast } from "../components.js";
import { post } from "../api.js";
import { counted } from "../format.js";
import { Act, Trouble } from "./parts.js";

// `decision` is a decision of the plan, or {} to add guidance without undoing anything.
export function CorrectDialog({ plan, decision, asking, close }) {
  const [guidance, setGuidance] = useState("");
  const [model, setModel] = useState("");
  const number = decision.number ?? null;
  const shut = () => {
    asking.forget("correct");
    close();
  };
  const send = async (event) => {
    event.preventDefault();
    const body = { guidance: guidance.trim() };
    if (number !== null) body.decision = number;
    if (model.trim()) body.model = model.trim();
    if ((await asking.ask("correct", body)) === null) return;
    toast(number === null ? "Guidance added" : "Decision corrected");
    shut();
  };
  return html`<${Dialog} title=${number === null ? "Add guidance" : `Correct decision ${number}`} onClose=${shut} wide>
    <form class="p-dialog" onSubmit=${send}>
      ${number === null
        ? html`<p>Applies from now on. Nothing is undone.</p>`
        : html`<p class="p-said">${decision.question} → <strong>${decision.choice}</strong></p>
            <${Preview} plan=${plan} number=${number} />`}
      <${TextArea} label="Guidance" rows="3" value=${guidance} onInput=${setGuidance} required autofocus />
      <${TextField} label="Model" optional hint="PROVIDER/NAME. Empty: keep the current model." value=${model} onInput=${setModel} />
      <${Trouble} problem=${asking.said.correct} />
      <div class="p-row p-dialog-row">
        <${Button} onClick=${shut}>Go back<//>
        <${Act} name="correct" type="submit" kind="primary" asking=${asking} disabled=${!guidance.trim()}>
          ${number === null ? "Add guidance" : "Correct"}
        <//>
      </div>
    </form>
  <//>`;
}

// The effects of a correction, from a dry run on the server.
function Preview({ plan, number }) {
  const [found, setFound] = useState({ data: null, error: null });
  useEffect(() => {
    let over = false;
    post(`/plans/${plan.id}/correct`, { decision: number, guidance: "", dry_run: true }).then(
      (data) => !over && setFound({ data, error: null }),
      (error) => !over && setFound({ data: null, error }),
    );
    return () => {
      over = true;
    };
  }, [number]);
  if (found.error) return html`<${ErrorBox} error=${found.error} title="Cannot load the preview" />`;
  if (!found.data) return html`<${Loading} what="Loading the preview" />`;
  const undoing = found.data.preview || found.data;
  const lines = [
    ["Superseded decisions", (undoing.superseded || []).map((one) => `${one.number}. ${one.question} → ${one.choice}`)],
    ["Reverted steps", undoing.steps],
    ["Reverted files", undoing.files],
    ["Your edits that are lost", undoing.edits_lost],
    ["Your edits that stay", undoing.edits_kept],
    ["Cancelled sub-plans", undoing.sub_plans],
    ["Sub-plans that continue", undoing.sub_plans_kept],
  ].filter(([, items]) => (items || []).length);
  return html`<div class="p-preview" role="group" aria-label="Effects">
    <p>
      <strong>Undone:</strong>${" "}
      ${undoing.checkpoint === null || undoing.checkpoint === undefined
        ? "nothing, because no step ran yet"
        : `${counted(undoing.calls || 0, "call")}, back to checkpoint ${undoing.checkpoint}`}
    </p>
    ${lines.map(
      ([title, items]) => html`<div key=${title}><h4>${title}</h4>
        <ul class="p-plain">${items.slice(0, 12).map((item) => html`<li key=${item}>${item}</li>`)}</ul>
        ${items.length > 12 && html`<p class="p-muted">… and ${items.length - 12} more</p>`}</div>`,
    )}
  </div>`;
}
