// The files that blocked an apply, with both sides and a button to leave each file out.

import { html } from "../ui.js";
import { Act, Long } from "./parts.js";

/** Empty if no conflicting files are known. */
export function ConflictList({ plan, asking, may }) {
  const { paths = [], details = "" } = plan.in_the_way || {};
  if (!paths.length) return null;
  const left = new Set(plan.left_out || []);
  return html`<ul class="p-plain p-conflicts" aria-label="Conflicting files">
      ${paths.map(
        (path) => html`<li key=${path} class="p-conflict">
          <code class="p-path">${path}</code>
          ${left.has(path)
            ? html`<span class="p-muted">left out</span>`
            : may("review") &&
              html`<${Act} small name="review" asking=${asking} label=${`Leave ${path} out`}
                onClick=${() => asking.ask("review", { reject: [path] }, "needs")}>Leave out<//>`}
        </li>`,
      )}
    </ul>
    ${details && html`<details class="p-sides"><summary>Both sides</summary><${Long} text=${details} label="Both sides" /></details>`}`;
}
