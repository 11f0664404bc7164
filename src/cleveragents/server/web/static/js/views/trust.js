// The trusted config of a repository: files that can run code, with the commands and data of each.

import { html } from "../ui.js";
import { get } from "../api.js";
import { Badge, Code, Dialog, Loaded } from "../components.js";
import { useLoad } from "../load.js";

/** A dialog that lists the files and their trust, for admins of the project. */
export function Trust({ resource, onClose }) {
  const load = useLoad((signal) => get(`/resources/${encodeURIComponent(resource)}/trust`, {}, { signal }), [resource]);
  return html`<${Dialog} title=${`Config of ${resource}`} onClose=${onClose} wide>
    <${Loaded} load=${load} what="Loading the repository">
      ${({ files, refused }) => html`<div class="stack">
        ${files.length === 0 && html`<p class="soft">This repository has no files that need trust.</p>`}
        ${files.map((file) => html`<${File} key=${file.path} file=${file} />`)}
        ${refused.map((one) => html`<p key=${one.path} class="soft"><code>${one.path}</code> cannot be trusted: ${one.why}</p>`)}
        ${files.some((file) => !file.trusted) && html`<p>
          Files that are not trusted run nothing. To trust their current content, run as a server admin:
          <${Code} label="Command to trust the files">${`agents trust --resource ${resource}`}<//>
        </p>`}
      </div>`}
    <//>
  <//>`;
}

function File({ file }) {
  return html`<section aria-label=${file.path}>
    <p><code>${file.path}</code>${" "}<${Badge} tone=${file.trusted ? "good" : "need"}>${file.trusted ? "trusted" : "not trusted"}<//></p>
    <${Code} label=${`Commands and data of ${file.path}`}>${file.preview.join("\n")}<//>
  </section>`;
}
