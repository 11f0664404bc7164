// What kept a plan from being applied: each file that conflicts, what both sides made of it, and a way on.

import { html } from "../ui.js";
import { Act, Long } from "./parts.js";

/** Nothing where no file is known to stand in the way. */
export function ConflictList({ plan, asking, may }) {
  const { paths = [], details = "" } = plan.in_the_way || {};
  if (!paths.length) return null;
  const left = new Set(plan.left_out || []);
  return html`<ul class="p-plain p-conflicts" aria-label="Files in the way">
      ${paths.map(
        (path) => html`<li key=${path} class="p-conflict">
          <code class="p-path">${path}</code>
          ${left.has(path)
            ? html`<span class="p-muted">left out; it stays as it is</span>`
            : may("review") &&
              html`<${Act} small name="review" asking=${asking} label=${`Leave ${path} out`}
                onClick=${() => asking.ask("review", { reject: [path] }, "needs")}>Leave it out<//>`}
        </li>`,
      )}
    </ul>
    ${details && html`<details class="p-sides"><summary>Both sides</summary><${Long} text=${details} label="What both sides made of it" /></details>`}`;
}
