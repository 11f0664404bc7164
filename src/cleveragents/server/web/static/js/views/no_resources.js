// The empty state of views that need a repository.

import { html } from "../ui.js";
import { Code, Empty, Link } from "../components.js";
import { useSession } from "../session.js";

export function NoResources() {
  const { may } = useSession();
  return html`<${Empty} title="No repositories yet" icon="folder">
    <p>Plans run on registered repositories. To register one on the server's machine:</p>
    <${Code} label="Commands">agents project add demo
agents resource add shop --project demo --path /srv/shop<//>
    ${may("admin") && html`<${Link} to="/projects" class="button button-primary">Add repository<//>`}
  <//>`;
}
