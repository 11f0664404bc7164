// Components that only a plan's page uses.

import { html, useEffect, useRef, useState } from "../ui.js";
import { Button, Remedies } from "../components.js";

// A button for an action on the plan: busy during its own request, disabled during any other.
export function Act({ name, asking, onClick, children, disabled = false, ...more }) {
  return html`<${Button}
    busy=${asking.busy === name}
    disabled=${disabled || Boolean(asking.busy)}
    onClick=${onClick}
    ...${more}
    >${children}<//
  >`;
}

/** A ref for a form that opens in place: its first field gets the focus, which goes back when the form closes. */
export function useFocus(wanted = true) {
  const form = useRef(null);
  useEffect(() => {
    if (!wanted) return undefined;
    const before = document.activeElement;
    form.current.querySelector("textarea, input").focus();
    return () => document.activeElement === document.body && before?.isConnected && before.focus();
  }, []);
  return form;
}

// A problem with its remedies, beside the action that caused it.
export function Trouble({ problem, onClose }) {
  if (!problem) return null;
  return html`<div class=${`p-trouble ${problem.status === 409 ? "p-trouble-soft" : ""}`} role="alert">
    <div>
      <strong>${headlineOf(problem)}</strong>
      <p>${problem.detail}</p>
      <${Remedies} of=${problem} />
    </div>
    ${onClose && html`<${Button} small kind="quiet" onClick=${onClose} label="Dismiss" icon="close" />`}
  </div>`;
}

// Whether an action was refused because of edits by hand in the sandbox, which it would lose.
const isAboutEdits = (problem) =>
  (problem?.remedies ?? []).some((one) => one.action === "plan.reread" || (one.action === "plan.rollback" && one.options.discard));

// A choice to discard edits by hand, offered once the server has refused to lose them. Returns the choice for the
// request, and its checkbox.
export function useDiscard(problem) {
  const [discard, setDiscard] = useState(false);
  const offered = discard || isAboutEdits(problem);
  const box = html`<label class="p-check">
    <input type="checkbox" checked=${discard} onChange=${() => setDiscard(!discard)} />Discard these edits
  </label>`;
  return [discard ? { discard } : {}, offered && box];
}

function headlineOf(problem) {
  if (problem.status === 0) return "Cannot reach the server: the action may have taken effect";
  if (isAboutEdits(problem)) return "Not done: the sandbox has edits by hand";
  if (problem.status === 409) return "Not done: the plan has changed. The page shows its current state";
  if (problem.status === 403) return "Not allowed";
  if (problem.status === 404) return "Not found";
  return "Request failed";
}

// Long text: the beginning, and the rest on demand.
export function Long({ text, most = 2000, label }) {
  const [whole, setWhole] = useState(false);
  const shown = whole || text.length <= most ? text : text.slice(0, most);
  return html`<div>
    <pre class="p-pre" tabindex="0" role="group" aria-label=${label}>${shown}</pre>
    ${shown.length < text.length &&
    html`<${Button} small onClick=${() => setWhole(true)}>
      Show all ${text.length.toLocaleString("en")} characters
    <//>`}
  </div>`;
}

// A section of a tab with its actions.
export function Section({ title, more, children, id }) {
  return html`<section class="p-section" aria-labelledby=${id}>
    <div class="p-section-head">
      <h2 id=${id}>${title}</h2>
      ${more}
    </div>
    ${children}
  </section>`;
}
