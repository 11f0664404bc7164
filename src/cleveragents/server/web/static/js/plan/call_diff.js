// The small diff of a call that changed a file, from the call's own arguments.

import { html, useEffect, useMemo, useRef, useState } from "../ui.js";
import { counted } from "../format.js";
import { get } from "../api.js";
import { useLoad } from "../load.js";
import { Line } from "./diff_file.js";
import { useSyntax } from "./syntax.js";

const MOST = 12;
const NONE = [];

/** The diff of a call, loaded when it comes into view; only a link to the whole diff if its arguments hold no text. */
export function CallDiff({ plan, call }) {
  const box = useRef(null);
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    const watch = new IntersectionObserver((found) => found.some((one) => one.isIntersecting) && setSeen(true), { rootMargin: "300px" });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return html`<div class="p-small-diff" ref=${box}>${seen && html`<${Loaded} ...${{ plan, call }} />`}</div>`;
}

function Loaded({ plan, call }) {
  const { data } = useLoad((signal) => get(`/plans/${plan.id}/calls/${call.number}`, {}, { signal }), [plan.id, call.number, call.state]);
  const change = useMemo(() => data && changeOf(data.arguments ?? {}), [data]);
  const tokens = useSyntax(change?.lines ?? NONE, change?.path);
  if (!data) return null;
  if (!change) return html`<p class="p-muted">${counted(call.changed, "file")} changed. <a href="#diff">View diff</a></p>`;
  const rest = change.lines.length - MOST;
  return html`<div class="p-code" tabindex="0" role="group" aria-label=${`Changes of call ${call.number} to ${change.path}`}>
      <table class="p-lines-table"><tbody>
        ${change.lines.slice(0, MOST).map((line, at) => html`<${Line} key=${at} line=${line} tokens=${tokens.get(line)} bare />`)}
      </tbody></table>
    </div>
    ${rest > 0 && html`<p class="p-muted">${counted(rest, "more line")}. <a href="#diff">View diff</a></p>`}`;
}

/** {path, lines} of the arguments of an edit or a write; null for other tools. */
export function changeOf({ path, old, new: fresh, edits, content }) {
  if (typeof path !== "string") return null;
  if (typeof content === "string") return { path, lines: linesOf("", content) };
  const pairs = Array.isArray(edits) ? edits : [{ old, new: fresh }];
  if (!pairs.length || !pairs.every((one) => typeof one?.old === "string" && typeof one?.new === "string")) return null;
  return { path, lines: pairs.flatMap((one) => linesOf(one.old, one.new)) };
}

// Removed and added lines between one common line before and one after.
function linesOf(old, fresh) {
  const before = old ? old.replace(/\n$/, "").split("\n") : [];
  const after = fresh ? fresh.replace(/\n$/, "").split("\n") : [];
  const most = Math.min(before.length, after.length);
  let start = 0;
  while (start < most && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < most - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const lines = (kind, texts) => texts.map((text) => ({ kind, text }));
  return [
    ...lines("context", after.slice(Math.max(0, start - 1), start)),
    ...lines("remove", before.slice(start, before.length - end)),
    ...lines("add", after.slice(start, after.length - end)),
    ...lines("context", end ? after.slice(after.length - end, after.length - end + 1) : []),
  ];
}
