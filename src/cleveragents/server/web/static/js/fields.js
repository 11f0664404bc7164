// Form fields with a label, a hint and an error, all linked to the control for screen readers.

import { html, useRef } from "./ui.js";

let ids = 0;

/** The frame of a field. `children` is a function of the attributes to set on the control. */
export function Field({ label, hint, error, children, optional = false }) {
  const id = useRef(`field-${(ids += 1)}`).current;
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || undefined;
  return html`<div class=${error ? "field field-wrong" : "field"}>
    <label for=${id}>${label}${optional && html`<span class="optional"> optional</span>`}</label>
    ${children({ id, "aria-describedby": described, "aria-invalid": error ? "true" : undefined })}
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
    ${error && html`<p class="field-error" id=${`${id}-error`}>${error}</p>`}
  </div>`;
}

/** A one-line text field; `onInput(value)`. */
export function TextField({ label, hint, error, optional, value, onInput, type = "text", ...rest }) {
  return html`<${Field} label=${label} hint=${hint} error=${error} optional=${optional}>
    ${(bind) => html`<input
      type=${type}
      value=${value}
      onInput=${(event) => onInput(event.currentTarget.value)}
      ...${bind}
      ...${rest}
    />`}
  <//>`;
}

/** A multi-line text field. */
export function TextArea({ label, hint, error, optional, value, onInput, rows = 4, ...rest }) {
  return html`<${Field} label=${label} hint=${hint} error=${error} optional=${optional}>
    ${(bind) => html`<textarea
      rows=${rows}
      value=${value}
      onInput=${(event) => onInput(event.currentTarget.value)}
      ...${bind}
      ...${rest}
    ></textarea>`}
  <//>`;
}

/** A select; `options`: strings or {value, label, disabled}. */
export function Select({ label, hint, error, optional, value, onInput, options, ...rest }) {
  const all = options.map((one) => (typeof one === "string" ? { value: one, label: one } : one));
  return html`<${Field} label=${label} hint=${hint} error=${error} optional=${optional}>
    ${(bind) => html`<select onChange=${(event) => onInput(event.currentTarget.value)} ...${bind} ...${rest}>
      ${all.map(
        (one) => html`<option key=${one.value} value=${one.value} disabled=${one.disabled} selected=${one.value === value}>
          ${one.label}
        </option>`,
      )}
    </select>`}
  <//>`;
}

/** Radio buttons side by side; `options`: {value, label}. */
export function Toggle({ label, value, onInput, options }) {
  const name = useRef(`toggle-${(ids += 1)}`).current;
  return html`<fieldset class="toggle">
    <legend>${label}</legend>
    <div class="toggle-row">
      ${options.map(
        (one) => html`<label key=${one.value} class=${one.value === value ? "toggle-on" : ""}>
          <input
            type="radio"
            name=${name}
            value=${one.value}
            checked=${one.value === value}
            onChange=${() => onInput(one.value)}
          />
          ${one.label}
        </label>`,
      )}
    </div>
  </fieldset>`;
}
