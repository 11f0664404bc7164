// Dialogs, built on <dialog>: the browser traps focus, closes on Escape and restores focus.

import { html, render, useEffect, useRef } from "./ui.js";
import { Icon } from "./icons.js";

let ids = 0;

/** A modal dialog, open while it is mounted. Closing it calls `onClose`. */
export function Dialog({ title, onClose, children, actions, wide = false }) {
  const dialog = useRef(null);
  const id = useRef(`dialog-${(ids += 1)}`);
  useEffect(() => {
    dialog.current.showModal();
    return () => dialog.current?.close();
  }, []);
  const cancel = (event) => {
    event.preventDefault();
    onClose?.();
  };
  const outside = (event) => event.target === dialog.current && onClose?.();
  return html`<dialog
    ref=${dialog}
    class=${wide ? "dialog dialog-wide" : "dialog"}
    aria-labelledby=${id.current}
    onCancel=${cancel}
    onClick=${outside}
  >
    <div class="dialog-body">
      <header class="dialog-head">
        <h2 id=${id.current}>${title}</h2>
        <button type="button" class="button button-quiet button-icon" aria-label="Close" onClick=${() => onClose?.()}>
          <${Icon} name="close" />
        </button>
      </header>
      <div class="dialog-content">${children}</div>
      ${actions && html`<footer class="dialog-actions">${actions}</footer>`}
    </div>
  </dialog>`;
}

/** Asks for confirmation. Resolves to true or false. */
export function confirm({ title, text, yes = "Yes", danger = false }) {
  return new Promise((resolve) => {
    const place = document.createElement("div");
    document.body.append(place);
    const answer = (value) => {
      render(null, place);
      place.remove();
      resolve(value);
    };
    const actions = html`
      <button type="button" class="button" onClick=${() => answer(false)}>Go back</button>
      <button type="button" autofocus class=${`button button-${danger ? "danger" : "primary"}`} onClick=${() => answer(true)}>
        ${yes}
      </button>
    `;
    render(html`<${Dialog} title=${title} onClose=${() => answer(false)} actions=${actions}><p>${text}</p><//>`, place);
  });
}
