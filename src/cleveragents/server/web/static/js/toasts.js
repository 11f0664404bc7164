// Toasts: short notices in a corner, announced by screen readers.

import { html, useEffect, useState } from "./ui.js";
import { Icon } from "./icons.js";

const STAY_MS = 6000;
let shown = [];
let number = 0;
let redraw = () => {};

/** Shows a toast. `tone`: "good", "bad" or "run". A "bad" toast stays until it is dismissed. */
export function toast(text, tone = "good") {
  const one = { text, tone, number: (number += 1) };
  shown = [...shown.slice(-3), one];
  redraw(shown);
  if (tone !== "bad") setTimeout(() => remove(one), STAY_MS);
}

/** Shows the detail of a problem. */
export function toastProblem(error) {
  toast(error?.detail ?? String(error?.message ?? error), "bad");
}

function remove(one) {
  shown = shown.filter((other) => other !== one);
  redraw(shown);
}

/** The list of toasts, rendered once per page. */
export function Toasts() {
  const [now, setNow] = useState(shown);
  useEffect(() => {
    redraw = setNow;
    return () => {
      redraw = () => {};
    };
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${now.map(
      (one) => html`<div key=${one.number} class=${`toast tone-${one.tone}`}>
        <${Icon} name=${`tone-${one.tone}`} />
        <span>${one.text}</span>
        <button type="button" class="button button-quiet button-icon" aria-label="Dismiss" onClick=${() => remove(one)}>
          <${Icon} name="close" />
        </button>
      </div>`,
    )}
  </div>`;
}
