// What is shown where a repository is needed and none is registered.

import { html } from "../ui.js";
import { Code, Empty, Link } from "../components.js";
import { useSession } from "../session.js";

export function NoResources() {
  const { may } = useSession();
  return html`<${Empty} title="No repository yet" icon="folder">
    <p>Plans run on repositories that an admin has registered. On the server's machine:</p>
    <${Code} label="Commands">agents project add demo
agents resource add shop --project demo --path /srv/shop<//>
    ${may("admin") && html`<${Link} to="/projects" class="button button-primary">Add one here<//>`}
  <//>`;
}
