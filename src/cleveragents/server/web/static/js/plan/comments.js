// Comments on a plan and on lines of its result: their state, their answers, and the forms to add and settle them.

import { html, useEffect, useRef, useState } from "../ui.js";
import { Badge, Button, TextArea, TextField, toast } from "../components.js";
import { counted } from "../format.js";
import { useRead } from "./load.js";
import { Act, Trouble, useFocus } from "./parts.js";
import { clock } from "./plan_text.js";

const TONES = { open: "need", resolved: "good", declined: "off" };

/** The comments of a plan, read again when `rev` rises. */
export function useComments(plan, rev) {
  return useRead(`/plans/${plan.id}/comments`, rev, { whole: true });
}

/** The text of a comment's place: `line 3` or `lines 3–5`, of the result or of the file before the change. */
export function linesOf({ line, end_line: end, side }) {
  const old = side === "before" ? ", before the change" : "";
  return `${end && end !== line ? `lines ${line}–${end}` : `line ${line}`}${old}`;
}

/** The name of a line on a side of the diff: `line 3`, or `removed line 3`. */
export const nameOf = ({ line, side }) => `${side === "before" ? "removed line" : "line"} ${line}`;

/** A comment with its answers. `may`: the user can settle it. An outdated one shows the lines it was made on. */
export function Comment({ comment, plan, asking, may, where = "" }) {
  const [declining, setDeclining] = useState(false);
  const place = `comments/${comment.number}`;
  const settle = async (state, reason = "") => {
    if ((await asking.ask(place, reason ? { state, reason } : { state })) === null) return;
    setDeclining(false);
  };
  return html`<article class="p-comment" aria-label=${`Comment ${comment.number}`} id=${`comment-${comment.number}`}>
    <div class="p-comment-head">
      <strong>${comment.author}</strong>
      <${Badge} tone=${TONES[comment.state]}>${comment.state}<//>
      ${comment.outdated && html`<${Badge} tone="off" title="The lines changed after this comment">outdated<//>`}
      ${where && html`<span class="p-muted">${where}</span>`}
      <time class="p-muted" datetime=${comment.created}>${clock(comment.created)}</time>
    </div>
    ${comment.outdated && html`<pre class="p-pre" tabindex="0" role="group" aria-label="Original lines">${comment.lines.join("\n")}</pre>`}
    <p class="p-said">${comment.text}</p>
    ${comment.answers.map(
      (one, at) => html`<p key=${at} class="p-comment-answer">
        ${one.state === "open" ? "Reopened" : one.state[0].toUpperCase() + one.state.slice(1)} by ${one.author}${one.call ? ` (call ${one.call})` : ""}${one.reason && `: ${one.reason}`}
      </p>`,
    )}
    ${may && !declining &&
    html`<div class="p-row">
      ${comment.state === "open"
        ? html`<${Act} small name=${place} asking=${asking} label=${`Resolve comment ${comment.number}`} onClick=${() => settle("resolved")}>Resolve<//>
            <${Button} small kind="quiet" label=${`Decline comment ${comment.number}`} onClick=${() => setDeclining(true)}>Decline …<//>`
        : html`<${Act} small kind="quiet" name=${place} asking=${asking} label=${`Reopen comment ${comment.number}`} onClick=${() => settle("open")}>Reopen<//>`}
    </div>`}
    ${declining && html`<${Decline} ...${{ asking, place, settle }} close=${() => setDeclining(false)} />`}
    <${Trouble} problem=${asking.said[place]} onClose=${() => asking.forget(place)} />
  </article>`;
}

function Decline({ asking, place, settle, close }) {
  const [reason, setReason] = useState("");
  const form = useFocus();
  const send = (event) => {
    event.preventDefault();
    settle("declined", reason.trim());
  };
  return html`<form class="p-form" ref=${form} onSubmit=${send}>
    <${TextField} label="Reason" optional value=${reason} onInput=${setReason} maxlength="10000" />
    <div class="p-row">
      <${Act} small name=${place} type="submit" asking=${asking}>Decline<//>
      <${Button} small onClick=${close}>Go back<//>
    </div>
  </form>`;
}

/**
 * The form of a new comment: on the lines from `at.line` of `at.path`, or on the plan. `drafts` keeps typed text.
 * `at.blob` names the file in which the user chose the line, and `blob` the file that the page shows now.
 */
export function CommentForm({ asking, at = {}, blob = null, drafts, setBox }) {
  const close = setBox && (() => setBox(null));
  // After a refusal, the user looks at the line in the next file that the page shows.
  useEffect(() => {
    if (at.stale && at.blob !== blob) setBox({ ...at, blob, stale: false });
  }, [at.stale, blob]);
  const key = at.path ? `${at.path}:${nameOf(at)}` : "";
  const [text, setText] = useState(drafts.get(key) ?? "");
  const [end, setEnd] = useState("");
  const form = useFocus(Boolean(at.path));
  const put = (value) => {
    drafts.set(key, value);
    setText(value);
  };
  const send = async (event) => {
    event.preventDefault();
    const last = Number(end) > at.line ? { end_line: Number(end) } : {};
    const lines = at.path ? { path: at.path, line: at.line, ...last, side: at.side, blob: at.blob } : {};
    if ((await asking.ask("comments", { text: text.trim(), ...lines }, "comments", refused)) === null) return;
    put("");
    close?.();
    toast("Comment added");
  };
  const refused = (problem) => {
    if (problem.code === "stale-file") setBox((box) => box && { ...box, stale: true });
    return false;
  };
  const keys = (event) => {
    if (event.key === "Escape" && close) close();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && text.trim() && !asking.busy) send(event);
  };
  return html`<form class="p-comment-form" ref=${form} onSubmit=${send} onKeyDown=${keys}>
    <${TextArea} label=${at.path ? `Comment on ${nameOf(at)}` : "Comment"} rows="3" value=${text} onInput=${put} maxlength="10000" />
    ${at.path && html`<${TextField} label="Last line" optional type="number" min=${at.line} placeholder=${String(at.line)} value=${end} onInput=${setEnd} />`}
    <${Trouble} problem=${asking.said.comments} onClose=${() => asking.forget("comments")} />
    <div class="p-row">
      <${Act} small name="comments" type="submit" kind=${at.path ? "primary" : ""} asking=${asking} disabled=${!text.trim()}>Comment<//>
      ${close && html`<${Button} small onClick=${close}>Go back<//>`}
    </div>
  </form>`;
}

/** The comments on the plan as a whole, a count of those in the diff, and the form of a new one. */
export function PlanComments({ plan, rev, asking, may }) {
  const load = useComments(plan, rev);
  const drafts = useRef(new Map()).current;
  const comments = load.data || [];
  const whole = comments.filter((one) => one.path === null);
  const inDiff = comments.filter((one) => one.path !== null && one.state === "open").length;
  if (!comments.length && !may) return null;
  return html`<section class="p-comments" aria-label="Comments">
    ${whole.map((comment) => html`<${Comment} key=${comment.number} ...${{ comment, plan, asking, may }} />`)}
    ${inDiff > 0 && html`<p class="p-muted"><a href="#diff">${counted(inDiff, "open comment")} in the diff</a></p>`}
    ${may &&
    html`<details class="p-add-comment">
      <summary>Add a comment</summary>
      <${CommentForm} ...${{ asking, drafts }} />
    </details>`}
  </section>`;
}
