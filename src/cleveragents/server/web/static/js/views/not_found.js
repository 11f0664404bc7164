// What is shown where there is no view.

import { html } from "../ui.js";
import { Empty, Link, PageHead } from "../components.js";

export function NotFound({ path }) {
  return html`
    <${PageHead} title="Not found" />
    <${Empty} title="There is no such page" icon="search">
      <p><code>${path}</code> leads nowhere. Perhaps the plan was deleted, or the address was cut off.</p>
      <${Link} to="/" class="button">To the board<//>
    <//>
  `;
}
