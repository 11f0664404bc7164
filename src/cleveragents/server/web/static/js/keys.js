// Shortcuts: single keys and pairs ("g b"). They never fire while somebody types, nor under a dialog.

import { html, useEffect } from "./ui.js";
import { Dialog } from "./dialog.js";

const PAIR_MS = 1200;
const active = new Set();
let first = null;
let firstAt = 0;

/** `bindings`: {"j": run, "g b": run}. They hold while the component is there; the latest wins. */
export function useKeys(bindings) {
  useEffect(() => {
    const entry = { bindings };
    active.add(entry);
    return () => active.delete(entry);
  });
}

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTaken(event.target)) return;
  const pair = first && performance.now() - firstAt < PAIR_MS ? `${first} ${event.key}` : null;
  const run = (pair && bound(pair)) ?? bound(event.key);
  first = pair && bound(pair) ? null : event.key;
  firstAt = performance.now();
  if (!run) return;
  event.preventDefault();
  run();
});

function bound(key) {
  for (const { bindings } of [...active].reverse()) {
    if (Object.hasOwn(bindings, key)) return bindings[key];
  }
  return null;
}

function isTaken(target) {
  if (document.querySelector("dialog[open]")) return true;
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
}

const SHORTCUTS = [
  ["Go to", [["g b", "the board"], ["g n", "a new plan"], ["g c", "the context explorer"], ["g e", "the audit log"],
    ["g j", "jobs and workers"], ["g p", "projects"], ["g a", "the API"]]],
  ["On the board", [["j", "the next plan"], ["k", "the one before"], ["Enter", "open it"], ["/", "filter"]]],
  ["On a plan's page", [["1 – 7", "its tabs, from the timeline to sub-plans"]]],
  ["On its diff", [["n", "the next file"], ["p", "the one before"], ["a", "take a file"], ["x", "leave a file out"],
    ["u", "in one column"], ["s", "side by side"]]],
  ["Anywhere", [["?", "these shortcuts"], ["t", "another theme"], ["Esc", "close a dialog, leave a field"]]],
];

/** The list of them all. */
export function Shortcuts({ onClose }) {
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${onClose}>
    ${SHORTCUTS.map(
      ([title, rows]) => html`<section key=${title} class="shortcuts">
        <h3>${title}</h3>
        <dl>
          ${rows.map(
            ([keys, what]) => html`<div key=${keys}>
              <dt>${keys.split(" ").map((key) => html`<kbd key=${key}>${key}</kbd>`)}</dt>
              <dd>${what}</dd>
            </div>`,
          )}
        </dl>
      </section>`,
    )}
  <//>`;
}
