// One file of a diff, unified or side by side, with its verdict.

import { html, useMemo, useState } from "../ui.js";
import { Badge, Button } from "../components.js";
import { count } from "../format.js";
import { changedParts, countsOf, sideBySide } from "./diff_rows.js";
import { Act } from "./parts.js";
import { useSyntax } from "./syntax.js";

const MOST = 600;
const TOO_LONG = "This file is too long to show in full. Download the patch to see all of it.";
const SIGNS = { add: "+", remove: "−", context: " " };
const CHANGES = { created: "new", added: "new", deleted: "deleted", renamed: "renamed", mode: "mode" };

export function FileDiff({ file, index, sides, may, judge, asking, folded, now }) {
  const [added, removed] = countsOf(file);
  const long = folded || added + removed > MOST;
  const [open, setOpen] = useState(!long && !file.out);
  const word = CHANGES[file.change];
  // Memoized, so that moving from file to file redraws no lines.
  const body = useMemo(() => open && html`<${Body} ...${{ file, sides }} />`, [open, file, sides]);
  return html`<section
    id=${`file-${index}`}
    class=${`p-filediff ${file.out ? "p-filediff-out" : ""}`}
    data-now=${now ? "" : undefined}
    aria-label=${file.path}
  >
    <div class="p-filediff-head">
      <${Button} small kind="quiet" icon=${open ? "down" : "right"} label=${`${open ? "Fold" : "Unfold"} ${file.path}`}
        aria-expanded=${open ? "true" : "false"} onClick=${() => setOpen(!open)} />
      <h3><bdi>${file.path}</bdi></h3>
      ${word && html`<${Badge} tone=${word === "deleted" ? "bad" : "good"}>${word}<//>`}
      ${file.out && html`<${Badge} tone="off">left out<//>`}
      <span class="p-counts"><span class="p-plus">+${added}</span> <span class="p-minus">−${removed}</span></span>
      ${may &&
      html`<span class="p-verdict" role="group" aria-label=${`Verdict on ${file.path}`}>
        <${Act} small name="review" asking=${quiet(asking)} icon="check" aria-pressed=${file.out ? "false" : "true"}
          kind=${file.out ? "quiet" : ""} onClick=${() => judge(file, true)}>Accept<//>
        <${Act} small name="review" asking=${quiet(asking)} icon="x" aria-pressed=${file.out ? "true" : "false"}
          kind=${file.out ? "" : "quiet"} onClick=${() => judge(file, false)}>Leave out<//>
      </span>`}
    </div>
    ${body}
    ${!open &&
    long &&
    html`<p class="p-filediff-note">
      ${count(added + removed)} lines changed. <${Button} small onClick=${() => setOpen(true)}>Show<//>
    </p>`}
  </section>`;
}

// Disabled during a request, without a spinner in every file.
const quiet = (asking) => ({ busy: asking.busy ? "other" : null });

function Body({ file, sides }) {
  const [whole, setWhole] = useState(false);
  const hunks = file.hunks || [];
  const total = hunks.reduce((sum, hunk) => sum + hunk.lines.length, 0);
  const instead = insteadOfLines(file, total);
  if (instead) return html`<p class="p-filediff-note">${instead}</p>`;
  let left = whole ? Infinity : MOST;
  const shown = [];
  for (const hunk of hunks) {
    if (left <= 0) break;
    shown.push(hunk.lines.length <= left ? hunk : { ...hunk, lines: hunk.lines.slice(0, left) });
    left -= hunk.lines.length;
  }
  return html`<div class="p-code" tabindex="0" role="group" aria-label=${`Lines of ${file.path}`}>
      <table class=${sides ? "p-lines-table p-two" : "p-lines-table"}>
        <tbody>${shown.map((hunk, place) => html`<${Hunk} key=${place} ...${{ hunk, sides, path: file.path }} />`)}</tbody>
      </table>
    </div>
    ${!whole &&
    total > MOST &&
    html`<p class="p-filediff-note">
      ${count(total - MOST)} more lines. <${Button} small onClick=${() => setWhole(true)}>Show all<//>
    </p>`}
    ${file.truncated && html`<p class="p-filediff-note">${TOO_LONG}</p>`}`;
}

// The note for a file without lines to show, or null.
function insteadOfLines(file, total) {
  if (file.absent) return "Left out: this file is not part of the result. Accept it to see its lines.";
  if (file.binary) return "Binary file.";
  if (!total && file.truncated) return TOO_LONG;
  return total ? null : "No lines changed: only the mode differs, or the file is empty.";
}

function Hunk({ hunk, sides, path }) {
  const parts = useMemo(() => changedParts(hunk.lines), [hunk.lines]);
  const tokens = useSyntax(hunk.lines, path);
  const of = (line) => ({ line, parts: parts.get(line), tokens: tokens.get(line) });
  const header = hunk.header || `@@ −${hunk.old_start ?? ""} +${hunk.new_start ?? ""} @@`;
  const head = html`<tr class="p-hunk"><td colspan=${sides ? 4 : 3}>${header}</td></tr>`;
  if (!sides) {
    const rows = hunk.lines.map((line, place) => html`<${Line} key=${place} ...${of(line)} />`);
    return html`${head}${rows}`;
  }
  return html`${head}${sideBySide(hunk.lines).map(
    ({ left, right }, place) => html`<tr key=${place} class="p-pair">
      <${Half} ...${of(left)} number=${left && left.old} />
      <${Half} ...${of(right)} number=${right && right.new} />
    </tr>`,
  )}`;
}

/** A line of a unified diff; without line numbers if `bare`. */
export function Line({ line, parts, tokens, bare = false }) {
  return html`<tr class=${`p-dl p-dl-${line.kind}`}>
    ${!bare && html`<td class="p-no">${line.old ?? ""}</td><td class="p-no">${line.new ?? ""}</td>`}
    <td class="p-text"><span class="p-sign">${SIGNS[line.kind]}</span><${Text} ...${{ line, parts, tokens }} /></td>
  </tr>`;
}

function Half({ line, number, parts, tokens }) {
  if (!line) return html`<td class="p-no p-nothing"></td><td class="p-text p-nothing"></td>`;
  return html`<td class=${`p-no p-dl-${line.kind}`}>${number ?? ""}</td>
    <td class=${`p-text p-dl-${line.kind}`}><span class="p-sign">${SIGNS[line.kind]}</span><${Text} ...${{ line, parts, tokens }} /></td>`;
}

function Text({ line, parts, tokens = [[line.text, ""]] }) {
  if (!parts || !parts[1]) return tokens.map(([text, name]) => piece(text, name));
  const [before, changed, after] = parts;
  const start = before.length;
  const end = start + changed.length;
  return [
    cut(tokens, 0, start),
    html`<span class="p-changed">${cut(tokens, start, end)}</span>`,
    cut(tokens, end, end + after.length),
  ];
}

const piece = (text, name) => (name ? html`<span class=${name}>${text}</span>` : html`${text}`);

// The tokens between two positions of the line.
function cut(tokens, start, end) {
  let at = 0;
  return tokens.map(([text, name]) => {
    const from = at;
    at += text.length;
    const shown = text.slice(Math.max(0, start - from), Math.max(0, end - from));
    return shown && piece(shown, name);
  });
}
