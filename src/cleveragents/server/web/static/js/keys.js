// Keyboard shortcuts: single keys and pairs ("g b"). They are off in text fields and behind a dialog.

import { html, useEffect } from "./ui.js";
import { Dialog } from "./dialog.js";

const PAIR_MS = 1200;
const active = new Set();
let first = null;
let firstAt = 0;

/** Binds keys while the component is mounted: {"j": run, "g b": run}. The latest binding of a key wins. */
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
  ["Go to", [["g b", "Board"], ["g n", "New plan"], ["g t", "Sessions"], ["g c", "Context"], ["g s", "Costs"], ["g e", "Audit log"],
    ["g j", "Jobs & workers"], ["g p", "Projects"], ["g u", "Users"], ["g a", "API"]]],
  ["Board", [["j", "Next plan"], ["k", "Previous plan"], ["Enter", "Open plan"], ["/", "Search"]]],
  ["Plan", [["1 – 5", "Open tab"]]],
  ["Session", [["m", "Write a message"], ["Enter", "Send the message"], ["Shift Enter", "Add a line"]]],
  ["Diff", [["n", "Next file"], ["p", "Previous file"], ["a", "Accept file"], ["x", "Leave out file"],
    ["u", "Unified"], ["s", "Side by side"]]],
  ["Anywhere", [["?", "Show shortcuts"], ["t", "Change theme"], ["Esc", "Close dialog"]]],
];

/** A dialog with all shortcuts. */
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
