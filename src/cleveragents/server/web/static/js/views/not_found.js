// The view of an unknown address.

import { html } from "../ui.js";
import { Empty, Link, PageHead } from "../components.js";

export function NotFound({ path }) {
  return html`
    <${PageHead} title="Not found" />
    <${Empty} title="Page not found" icon="search">
      <p>No page has the address <code>${path}</code>.</p>
      <${Link} to="/" class="button">Open board<//>
    <//>
  `;
}
