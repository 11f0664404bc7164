// One file of a diff, unified or side by side, with its comments and the verdicts on the file and its hunks.

import { html, useMemo, useState } from "../ui.js";
import { Badge, Button } from "../components.js";
import { count, counted } from "../format.js";
import { Comment, CommentForm, linesOf, nameOf } from "./comments.js";
import { changedParts, countsOf, sideBySide } from "./diff_rows.js";
import { Act } from "./parts.js";
import { useSyntax } from "./syntax.js";

const MOST = 600;
const TOO_LONG = "This file is too long to show in full. Download the patch to see all of it.";
const SIGNS = { add: "+", remove: "−", context: " " };
const CHANGES = { created: "new", added: "new", deleted: "deleted", renamed: "renamed", mode: "mode" };

export function FileDiff({ file, index, sides, may, judge, asking, talk, comments, folded, now }) {
  const [added, removed] = countsOf(file);
  const long = folded || added + removed > MOST;
  const [open, setOpen] = useState(!long && !file.out);
  const word = CHANGES[file.change];
  // Memoized, so that moving from file to file redraws no lines.
  const box = talk.box?.path === file.path ? talk.box : null;
  const { busy, said } = asking;
  const body = useMemo(
    () => open && html`<${Body} ...${{ file, sides, may, comments }} talk=${{ ...talk, box }} />`,
    [open, file, sides, may, comments, box, busy, said],
  );
  const unsettled = comments.filter((one) => one.state === "open").length;
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
      ${unsettled > 0 && html`<${Badge} tone="need">${counted(unsettled, "comment")}<//>`}
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

function Body({ file, sides, may, comments, talk }) {
  const [whole, setWhole] = useState(false);
  const hunks = file.hunks || [];
  const total = hunks.reduce((sum, hunk) => sum + hunk.lines.length, 0);
  const instead = insteadOfLines(file, total);
  const lines = new Set(hunks.flatMap((hunk) => hunk.lines.flatMap((line) => [`before ${line.old}`, `after ${line.new}`])));
  const beside = instead ? [] : comments.filter((one) => !one.outdated && lines.has(`${one.side} ${one.end_line}`));
  const above = comments.filter((one) => !beside.includes(one));
  const top = html`${above.map((comment) => html`<div key=${comment.number} class="p-above">
    <${Comment} ...${{ ...talk, comment }} may=${talk.operator} where=${linesOf(comment)} />
  </div>`)}`;
  if (instead) return html`${top}<p class="p-filediff-note">${instead}</p>`;
  let left = whole ? Infinity : MOST;
  const shown = [];
  for (const hunk of hunks) {
    if (left <= 0) break;
    shown.push(hunk.lines.length <= left ? hunk : { ...hunk, lines: hunk.lines.slice(0, left) });
    left -= hunk.lines.length;
  }
  return html`${top}<div class="p-code" tabindex="0" role="group" aria-label=${`Lines of ${file.path}`} onKeyDown=${moveAlongLines}>
      <table class=${sides ? "p-lines-table p-two" : "p-lines-table"}>
        <tbody>${shown.map((hunk, place) => html`<${Hunk} key=${place} ...${{ hunk, sides, may, talk, file, comments: beside }} />`)}</tbody>
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

// The arrow keys move between the buttons that comment on a line. Tab goes from hunk to hunk.
function moveAlongLines(event) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by || !event.target.matches(".p-add")) return;
  event.preventDefault();
  const all = [...event.currentTarget.querySelectorAll(".p-add")];
  all[all.indexOf(event.target) + by]?.focus();
}

function Hunk({ hunk, sides, may, talk, file, comments }) {
  const { path } = file;
  const parts = useMemo(() => changedParts(hunk.lines), [hunk.lines]);
  const tokens = useSyntax(hunk.lines, path);
  const add = (line) => talk.operator && line && html`<${AddComment} ...${{ line, file, talk }} first=${line === hunk.lines[0]} />`;
  const of = (line) => ({ line, parts: parts.get(line), tokens: tokens.get(line) });
  const below = (line) => html`<${Below} key=${nameOf(placeOf(line))} ...${{ line, file, talk, comments }} width=${sides ? 4 : 3} />`;
  const head = html`<${HunkHead} ...${{ hunk, may, talk, path }} width=${sides ? 4 : 3} />`;
  const out = hunk.accepted === false ? "p-out" : "";
  if (!sides) {
    const rows = hunk.lines.flatMap((line, place) => [html`<${Line} key=${place} ...${{ ...of(line), out }} add=${add(line)} />`, below(line)]);
    return html`${head}${rows}`;
  }
  return html`${head}${sideBySide(hunk.lines).flatMap(({ left, right }, place) => [
    html`<tr key=${place} class=${`p-pair ${out}`}>
      <${Half} ...${of(left)} number=${left && left.old} add=${left !== right && add(left)} />
      <${Half} ...${of(right)} number=${right && right.new} add=${add(right)} />
    </tr>`,
    ...[...new Set([left, right])].filter(Boolean).map(below),
  ])}`;
}

function HunkHead({ hunk, may, talk, path, width }) {
  const header = hunk.header || `@@ −${hunk.old_start ?? ""} +${hunk.new_start ?? ""} @@`;
  const kept = hunk.accepted !== false;
  const name = kept ? "Leave out" : "Include";
  return html`<tr class="p-hunk"><td colspan=${width}>
    <div class="p-hunk-head">
      <span>${header}</span>
      ${may && hunk.id && html`<${Act} small kind="quiet" name="review" asking=${quiet(talk.asking)} class="p-hunk-verdict"
        label=${`${name} hunk ${hunk.number} of ${path}`} onClick=${() => talk.judgeHunk(hunk, !kept)}>${name}<//>`}
      ${!kept && html`<${Badge} tone="off">left out<//>`}
    </div>
  </td></tr>`;
}

// The place of a line in a comment. Only removed lines are named by their number before the change.
const placeOf = ({ kind, old, new: now }) => (kind === "remove" ? { side: "before", line: old } : { side: "after", line: now });

function AddComment({ line, file, talk, first }) {
  const place = placeOf(line);
  return html`<button type="button" class="p-add" tabindex=${first ? "0" : "-1"} aria-label=${`Comment on ${nameOf(place)} of ${file.path}`}
    onClick=${() => talk.setBox({ path: file.path, ...place, blob: file[`blob_${place.side}`] })}>+</button>`;
}

// The comments that end on a line, and the form of a new one.
function Below({ line, file, talk, comments, width }) {
  const here = comments.filter((one) => one.end_line === (one.side === "before" ? line.old : line.new));
  const place = placeOf(line);
  const asked = talk.box?.line === place.line && talk.box.side === place.side;
  if (!here.length && !asked) return null;
  return html`<tr class="p-below"><td colspan=${width}>
    ${here.map((comment) => html`<${Comment} key=${comment.number} ...${{ ...talk, comment }} may=${talk.operator}
      where=${comment.line === comment.end_line && comment.side === "after" ? "" : linesOf(comment)} />`)}
    ${asked && html`<${CommentForm} key=${nameOf(place)} asking=${talk.asking} at=${talk.box} blob=${file[`blob_${place.side}`]} drafts=${talk.drafts} setBox=${talk.setBox} />`}
  </td></tr>`;
}

/** A line of a unified diff; without line numbers if `bare`. `add` is the button that comments on the line. */
export function Line({ line, parts, tokens, add = null, out = "", bare = false }) {
  return html`<tr class=${`p-dl p-dl-${line.kind} ${out}`}>
    ${!bare && html`<td class="p-no">${line.old ?? ""}</td><td class="p-no">${add}${line.new ?? ""}</td>`}
    <td class="p-text"><span class="p-sign">${SIGNS[line.kind]}</span><${Text} ...${{ line, parts, tokens }} /></td>
  </tr>`;
}

function Half({ line, number, parts, tokens, add = null }) {
  if (!line) return html`<td class="p-no p-nothing"></td><td class="p-text p-nothing"></td>`;
  return html`<td class=${`p-no p-dl-${line.kind}`}>${add}${number ?? ""}</td>
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
