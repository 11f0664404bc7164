// The lines of a file that an answer refers to, in a dialog.

import { html, useEffect, useRef } from "../ui.js";
import { get } from "../api.js";
import { Dialog, Loaded } from "../components.js";
import { useLoad } from "../load.js";

/** `reference` is a path with a line or a range of lines: `src/session.py:12-14`. */
export function FileLines({ talk, reference, onClose }) {
  const [, path, from, to] = /^(.*):(\d+)(?:-(\d+))?$/.exec(reference);
  const load = useLoad((signal) => get(`/conversations/${talk.id}/file`, { path, line: Number(from) || 1 }, { signal }), [reference]);
  return html`<${Dialog} title=${path} onClose=${onClose} wide>
    <${Loaded} load=${load} what="Loading the file">
      ${(file) => html`<${Lines} file=${file} from=${Number(from)} to=${Number(to ?? from)} />`}
    <//>
  <//>`;
}

function Lines({ file, from, to }) {
  const place = useRef(null);
  useEffect(() => place.current?.querySelector(".s-line-meant")?.scrollIntoView({ block: "center" }), []);
  const last = file.first + file.lines.length - 1;
  return html`<p class="soft small">
      Lines ${file.first} to ${last} of ${file.total}, as the file is now.${from > file.total && ` There is no line ${from} any more.`}
    </p>
    <div class="code s-lines" ref=${place} tabindex="0" role="group" aria-label=${`Lines of ${file.path}`}>
      ${file.lines.map((line, at) => {
        const number = file.first + at;
        return html`<div key=${number} class=${number >= from && number <= to ? "s-line s-line-meant" : "s-line"}>
          <span class="s-number">${number}</span><code>${line}</code>
        </div>`;
      })}
    </div>`;
}
