// Small pieces that only a plan's page is made of; the others are the shell's.

import { html, useState } from "../ui.js";
import { Button, Remedies } from "../components.js";

// A button that asks something of the plan: at work while that is under way, and locked while anything is.
export function Act({ name, asking, onClick, children, disabled = false, ...more }) {
  return html`<${Button}
    busy=${asking.busy === name}
    disabled=${disabled || Boolean(asking.busy)}
    onClick=${onClick}
    ...${more}
    >${children}<//
  >`;
}

// What went wrong, where it happened, and what to do about it.
export function Trouble({ problem, onClose }) {
  if (!problem) return null;
  return html`<div class=${`p-trouble ${problem.status === 409 ? "p-trouble-soft" : ""}`} role="alert">
    <div>
      <strong>${headlineOf(problem)}</strong>
      <p>${problem.detail}</p>
      <${Remedies} of=${problem} />
    </div>
    ${onClose && html`<${Button} small kind="quiet" onClick=${onClose} label="Dismiss this message" icon="close" />`}
  </div>`;
}

function headlineOf(problem) {
  if (problem.status === 0) return "The server was not reached; whether it was done is not known";
  if (problem.status === 409) return "Not done, because something changed meanwhile. The page shows how it stands now";
  if (problem.status === 403) return "You may not do that";
  if (problem.status === 404) return "That is not there any more";
  return "That did not work";
}

// Text that may be long: its beginning, and the rest on demand.
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

// A heading within a tab, with what can be done beside it.
export function Section({ title, more, children, id }) {
  return html`<section class="p-section" aria-labelledby=${id}>
    <div class="p-section-head">
      <h2 id=${id}>${title}</h2>
      ${more}
    </div>
    ${children}
  </section>`;
}
