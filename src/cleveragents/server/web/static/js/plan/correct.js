// Says that a decision was wrong, or adds guidance. First what that would undo is shown, then it is done.

import { html, useEffect, useState } from "../ui.js";
import { Button, Dialog, ErrorBox, Loading, TextArea, TextField, toast } from "../components.js";
import { post } from "../api.js";
import { counted } from "../format.js";
import { Act, Trouble } from "./parts.js";

// `decision` is one of the plan's, or {} for guidance that undoes nothing.
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
    toast("Corrected: it goes on from there");
    shut();
  };
  return html`<${Dialog} title=${number === null ? "Add guidance" : `Correct decision ${number}`} onClose=${shut} wide>
    <form class="p-dialog" onSubmit=${send}>
      ${number === null
        ? html`<p>Nothing is undone; it is heeded from now on.</p>`
        : html`<p class="p-said">${decision.question} → <strong>${decision.choice}</strong></p>
            <${Preview} plan=${plan} number=${number} />`}
      <${TextArea} label="What is wanted instead, and why" rows="3" value=${guidance} onInput=${setGuidance} required autofocus />
      <${TextField} label="Another model" optional hint="PROVIDER/NAME, from now on" value=${model} onInput=${setModel} />
      <${Trouble} problem=${asking.said.correct} />
      <div class="p-row p-dialog-row">
        <${Button} onClick=${shut}>Not now<//>
        <${Act} name="correct" type="submit" kind="primary" asking=${asking} disabled=${!guidance.trim()}>
          ${number === null ? "Add" : "Correct, and go on"}
        <//>
      </div>
    </form>
  <//>`;
}

// What would no longer hold and be undone: the server says it, and changes nothing.
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
  if (found.error) return html`<${ErrorBox} error=${found.error} title="What it would undo cannot be said" />`;
  if (!found.data) return html`<${Loading} what="Looking at what it would undo" />`;
  const undoing = found.data.preview || found.data;
  const lines = [
    ["No longer hold", (undoing.superseded || []).map((one) => `${one.number}. ${one.question} → ${one.choice}`)],
    ["Steps taken back", undoing.steps],
    ["Files set back", undoing.files],
    ["Your edits by hand that are lost", undoing.edits_lost],
    ["Your edits by hand that stay", undoing.edits_kept],
    ["Sub-plans cancelled", undoing.sub_plans],
    ["Sub-plans that go on", undoing.sub_plans_kept],
  ].filter(([, items]) => (items || []).length);
  return html`<div class="p-preview" role="group" aria-label="What this would undo">
    <p>
      <strong>Undone:</strong>${" "}
      ${undoing.checkpoint === null || undoing.checkpoint === undefined
        ? "nothing; nothing was done for it yet"
        : `${counted(undoing.calls || 0, "call")}, from checkpoint ${undoing.checkpoint} on`}
    </p>
    ${lines.map(
      ([title, items]) => html`<div key=${title}><h4>${title}</h4>
        <ul class="p-plain">${items.slice(0, 12).map((item) => html`<li key=${item}>${item}</li>`)}</ul>
        ${items.length > 12 && html`<p class="p-muted">… and ${items.length - 12} more</p>`}</div>`,
    )}
  </div>`;
}
