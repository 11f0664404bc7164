// The diff of a plan: a list of files, their lines with comments, and a verdict on each file and hunk.
//
// Keys: n and p go to the next and previous file, a accepts and x leaves out the current file, u and s switch
// between unified and side by side. Each verdict is sent to the server at once; the page only shows the server's state.

import { html, useEffect, useMemo, useRef, useState } from "../ui.js";
import { Button, Empty, Loaded, toast } from "../components.js";
import { counted } from "../format.js";
import { useKeys } from "../keys.js";
import { useSession } from "../session.js";
import { useComments } from "./comments.js";
import { countsOf } from "./diff_rows.js";
import { FileDiff } from "./diff_file.js";
import { useRead } from "./load.js";
import { Trouble } from "./parts.js";
import { isFinal } from "./plan_text.js";

const KEY = "cleveragents.diff";
const AT_ONCE = 1500;
const NONE = [];
const HUNK = /, the hunk at lines \d+-\d+(: decide again, the file changed)?$/;

export function Diff({ plan, rev, asking, setSeen }) {
  const load = useRead(`/plans/${plan.id}/diff`, rev);
  useSeen({ ...load, rev }, setSeen, asking);
  const comments = useComments(plan, rev).data || NONE;
  return html`<div>
    ${plan.review_problem && html`<p class="p-warn">${plan.review_problem}</p>`}
    ${(plan.notes || []).map((note) => html`<p key=${note} class="p-note">${note}</p>`)}
    <${Loaded} load=${load} what="Loading the diff">${(diff) => html`<${Files} ...${{ plan, diff, comments, asking }} />`}<//>
  </div>`;
}

// Remembers which result is shown, because an apply takes no other one. A change that is not the user's own verdict is
// announced: part of the old diff may have been read.
function useSeen({ data, at, error, rev }, setSeen, asking) {
  const before = useRef(null);
  const judged = useRef(false);
  judged.current ||= asking.busy === "review";
  useEffect(() => {
    if (!data) return;
    const changed = before.current !== null && before.current !== data.tree;
    if (changed && !judged.current) toast("The result has changed. Look at the new diff before you apply it.", "bad");
    if (changed) judged.current = false;
    before.current = data.tree;
    setSeen({ tree: data.tree, at });
  }, [data, at]);
  useEffect(() => {
    if (error) setSeen((now) => ({ tree: now?.tree, at: rev })); // no new diff: an apply is still possible
  }, [error, rev]);
}

// The files of the diff, including the files left out.
function filesOf(plan, diff) {
  const left = new Set(plan.left_out || []);
  const files = (diff.files || []).map((file) => ({ ...file, out: file.accepted === false || left.has(file.path) }));
  const named = new Set(files.map((file) => file.path));
  const missing = [...left].filter((path) => !named.has(path) && !named.has(path.replace(HUNK, ""))).map((path) => ({ path, out: true, hunks: [], absent: true }));
  return [...files, ...missing].sort((a, b) => (a.path < b.path ? -1 : 1));
}

function Files({ plan, diff, comments, asking }) {
  const files = useMemo(() => filesOf(plan, diff), [diff, (plan.left_out || []).join("\0")]);
  const [at, setAt] = useState(0);
  // The file that keys act on. A ref, because a quick second key must not act on the file drawn last.
  const here = useRef(0);
  const [sides, setSides] = useState(localStorage.getItem(KEY) === "sides");
  const byPath = useMemo(() => grouped(comments), [comments]);
  const far = useMemo(() => beyond(files), [files]);
  const place = Math.min(at, files.length - 1);
  const may = (plan.can || []).includes("review");
  const operator = useSession().mayIn(plan.project, "operator");
  const drafts = useRef(new Map()).current;
  const [box, setBox] = useState(null);
  const choose = (two) => {
    localStorage.setItem(KEY, two ? "sides" : "one");
    setSides(two);
  };
  const judge = (file, accepted) => {
    if (!may || asking.busy || file.out === !accepted) return;
    asking.ask("review", accepted ? { accept: [file.path], reject: [] } : { accept: [], reject: [file.path] });
  };
  const judgeHunk = (hunk, accepted) =>
    asking.ask("review", accepted ? { accept_hunks: [hunk.id] } : { reject_hunks: [hunk.id] }, "review", (problem) => {
      if (problem.status !== 409) return false;
      toast("The file changed. Look at its current hunks, and choose again.", "bad");
      return true;
    });
  const talk = { plan, asking, operator: operator && !isFinal(plan), box, setBox, drafts, judgeHunk };
  const go = (next) => {
    const to = Math.max(0, Math.min(files.length - 1, next));
    here.current = to;
    setAt(to);
    document.getElementById(`file-link-${to}`)?.scrollIntoView({ block: "nearest" });
    document.getElementById(`file-${to}`)?.scrollIntoView({ block: "start" });
  };
  const keys = {
    n: () => go(here.current + 1),
    p: () => go(here.current - 1),
    u: () => choose(false),
    s: () => choose(true),
    a: () => judge(files[Math.min(here.current, files.length - 1)], true),
    x: () => judge(files[Math.min(here.current, files.length - 1)], false),
  };
  useKeys(files.length ? keys : {});
  if (!files.length) {
    return html`<${Empty} title="No changes" icon="file">Changed files appear here while the plan runs.<//>`;
  }
  return html`<div class="p-diff">
    <nav class="p-files" aria-label="Changed files">
      <${Totals} files=${files} />
      <ol>${files.map((file, index) => html`<${FileLink} key=${file.path} ...${{ file, index }} now=${index === place} go=${go} />`)}</ol>
    </nav>
    <div class="p-files-main">
      <div class="p-tools">
        <div class="p-switch" role="group" aria-label="Layout">
          <${Button} small kind=${sides ? "quiet" : ""} aria-pressed=${sides ? "false" : "true"} onClick=${() => choose(false)}>Unified<//>
          <${Button} small kind=${sides ? "" : "quiet"} aria-pressed=${sides ? "true" : "false"} onClick=${() => choose(true)}>Side by side<//>
        </div>
        <a
          class="button button-small"
          href=${`/api/plans/${plan.id}/diff?format=patch`}
          download=${`${plan.id}.patch`}
          title=${operator ? "Download for git apply" : "Download. Secrets are masked, so git apply may refuse it"}
          >Patch</a
        >
        <span class="p-keys p-muted" aria-hidden="true">
          <kbd>n</kbd> <kbd>p</kbd> file${may && html`, <kbd>a</kbd> accept, <kbd>x</kbd> leave out`}
        </span>
      </div>
      <${Trouble} problem=${asking.said.review} onClose=${() => asking.forget("review")} />
      ${diff.truncated && html`<p class="p-warn">The diff is cut. Download the patch to see all of it.</p>`}
      ${files.map(
        (file, index) => html`<${FileDiff}
          key=${file.path}
          ...${{ file, index, sides, may, judge, asking, talk }}
          comments=${byPath.get(file.path) ?? NONE}
          folded=${far.has(file)}
          now=${index === place}
        />`,
      )}
    </div>
  </div>`;
}

function grouped(comments) {
  const found = new Map();
  for (const one of comments) {
    if (one.path !== null) found.set(one.path, [...(found.get(one.path) ?? NONE), one]);
  }
  return found;
}

// The files beyond the first lines. They start folded, so that the page stays fast.
function beyond(files) {
  let left = AT_ONCE;
  return new Set(
    files.filter((file) => {
      left -= (file.hunks || []).reduce((sum, hunk) => sum + hunk.lines.length, 0);
      return left < 0;
    }),
  );
}

function Totals({ files }) {
  const kept = files.filter((file) => !file.out);
  const sums = kept.map(countsOf).reduce(([a, r], [b, s]) => [a + b, r + s], [0, 0]);
  const left = files.length - kept.length;
  return html`<p class="p-totals" role="status">
    <strong>${counted(kept.length, "file")}</strong>
    <span class="p-plus">+${sums[0]}</span> <span class="p-minus">−${sums[1]}</span>
    ${left > 0 && html`<span class="p-muted">${left} left out</span>`}
  </p>`;
}

function FileLink({ file, index, now, go }) {
  const [added, removed] = countsOf(file);
  const click = (event) => {
    event.preventDefault();
    go(index);
  };
  return html`<li>
    <button
      type="button"
      id=${`file-link-${index}`}
      class=${file.out ? "p-file p-gone" : "p-file"}
      aria-current=${now ? "true" : undefined}
      onClick=${click}
    >
      <span class="p-file-name" title=${file.path}><bdi>${file.path}</bdi></span>
      ${file.out
        ? html`<span class="p-muted">left out</span>`
        : html`<span class="p-counts">
            ${file.binary
              ? "binary"
              : html`<span class="p-plus">+${added}</span> <span class="p-minus">−${removed}</span>`}
          </span>`}
    </button>
  </li>`;
}
