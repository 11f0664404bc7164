// The live output of a plan, with search.
//
// Output is drawn at most once per frame, and only the last lines are in the page: a command can print far faster
// than a browser draws.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../ui.js";
import { Button, Empty } from "../components.js";
import { count, counted } from "../format.js";
import { useOutput } from "../stream.js";
import { Lines } from "./ansi.js";
import { isRunning } from "./plan_text.js";
import { Transcript } from "./transcript.js";

const KEPT = 5000;
const DRAWN = 800;

// The output so far: {lines, dropped, node, transcript, heard}. `node` is the actor's node that ran last, `heard` the
// number of pieces. The plan's page holds it, so that switching tabs loses nothing.
export function useLines(id) {
  const held = useRef(null);
  const [, redraw] = useState(0);
  const frame = useRef(0);
  if (!held.current || held.current.id !== id) held.current = { id, lines: Object.assign(new Lines(KEPT), { transcript: new Transcript(), heard: 0 }) };
  const mine = held.current;
  useOutput(id, (piece) => {
    mine.lines.heard += 1;
    mine.lines.transcript.add(piece);
    if (piece.kind === "node") mine.lines.node = nodeOf(piece.text);
    else mine.lines.add(piece.kind, piece.text);
    frame.current ||= requestAnimationFrame(() => {
      frame.current = 0;
      redraw((now) => now + 1);
    });
  });
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  return mine.lines;
}

// `builtin/executor:think`, or null if no node runs.
function nodeOf(text) {
  try {
    const { actor, node } = JSON.parse(text);
    return actor && node ? `${actor}:${node}` : null;
  } catch {
    return null;
  }
}

export function Output({ plan, lines }) {
  const [follow, setFollow] = useState(true);
  const [query, setQuery] = useState("");
  const box = useRef(null);
  const found = query ? lines.lines.filter((line) => contains(line.text, query)) : lines.lines;
  const drawn = found.slice(-DRAWN);
  const last = drawn.length ? drawn[drawn.length - 1] : null;
  useLayoutEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [follow, last && last.key, last && last.text, drawn.length]);
  // Scrolling up stops following; scrolling to the end starts it again.
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    const atEnd = scrollHeight - scrollTop - clientHeight < 24;
    if (atEnd !== follow) setFollow(atEnd);
  };
  if (!lines.lines.length) {
    const hint = isRunning(plan) ? "Output appears here while the plan runs." : "The plan printed nothing, or its output was removed.";
    return html`<${Empty} title="No output" icon="log">${hint}<//>`;
  }
  const hidden = lines.dropped + found.length - drawn.length;
  return html`<div class="p-output">
    <div class="p-tools">
      <input type="search" class="p-search" aria-label="Search output" placeholder="Search output" value=${query}
        onInput=${(event) => setQuery(event.target.value)} />
      <span class="p-muted" role="status">${query ? counted(found.length, "line") : ""}</span>
      <label class="p-check"><input type="checkbox" checked=${follow} onChange=${() => setFollow(!follow)} />Follow</label>
      <${Button} small icon="copy" onClick=${() => copied(found)}>Copy<//>
    </div>
    <div class="p-lines" ref=${box} onScroll=${onScroll} tabindex="0" role="log" aria-live="off" aria-label="Output">
      ${hidden > 0 &&
      html`<div class="p-line-hidden">
        ${count(hidden)} earlier lines hidden${query ? "" : "; search to find them"}
      </div>`}
      ${drawn.map(
        (line) => html`<div key=${line.key} class=${`p-line p-line-${line.kind}`}>${marked(line.text, query)}</div>`,
      )}
    </div>
  </div>`;
}

const copied = (lines) => navigator.clipboard?.writeText(lines.map((line) => line.text).join("\n"));

const contains = (text, query) => text.toLowerCase().includes(query.toLowerCase());

function marked(text, query) {
  const at = query ? text.toLowerCase().indexOf(query.toLowerCase()) : -1;
  if (at < 0) return text || "\u00a0";
  return html`${text.slice(0, at)}<mark>${text.slice(at, at + query.length)}</mark>${text.slice(at + query.length)}`;
}
