// What a plan prints while it runs: as it comes, bounded, and searched.
//
// Pieces arrive faster than anybody reads; they are gathered and drawn at most once per frame, and only the last
// lines are in the page.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../ui.js";
import { Button, Empty } from "../components.js";
import { count, counted } from "../format.js";
import { useOutput } from "../stream.js";
import { Lines } from "./ansi.js";
import { isRunning } from "./plan_text.js";

const KEPT = 5000;
const DRAWN = 800;

// What it printed so far: {lines, dropped}, and in `node` which node of which actor was last said to be at work.
// Held by the page, so that no tab change loses any.
export function useLines(id) {
  const held = useRef(null);
  const [, redraw] = useState(0);
  const frame = useRef(0);
  if (!held.current || held.current.id !== id) held.current = { id, lines: new Lines(KEPT) };
  const mine = held.current;
  useOutput(id, (piece) => {
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

// `builtin/executor:think`; null when none is.
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
  const [wanted, setWanted] = useState("");
  const box = useRef(null);
  const found = wanted ? lines.lines.filter((line) => contains(line.text, wanted)) : lines.lines;
  const drawn = found.slice(-DRAWN);
  const last = drawn.length ? drawn[drawn.length - 1] : null;
  useLayoutEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [follow, last && last.key, last && last.text, drawn.length]);
  // Who scrolls up wants to read; who scrolls to the end wants to follow again.
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    const atEnd = scrollHeight - scrollTop - clientHeight < 24;
    if (atEnd !== follow) setFollow(atEnd);
  };
  if (!lines.lines.length) {
    const hint = isRunning(plan) ? "It appears here as it is printed." : "It printed nothing, or that was removed.";
    return html`<${Empty} title="No output" icon="log">${hint}<//>`;
  }
  const hidden = lines.dropped + found.length - drawn.length;
  return html`<div class="p-output">
    <div class="p-tools">
      <input type="search" class="p-search" aria-label="Search the output" placeholder="Search the output" value=${wanted}
        onInput=${(event) => setWanted(event.target.value)} />
      <span class="p-muted" role="status">${wanted ? counted(found.length, "line") : ""}</span>
      <label class="p-check"><input type="checkbox" checked=${follow} onChange=${() => setFollow(!follow)} />Follow</label>
      <${Button} small icon="copy" onClick=${() => copied(found)}>Copy<//>
    </div>
    <div class="p-lines" ref=${box} onScroll=${onScroll} tabindex="0" role="log" aria-live="off" aria-label="Output">
      ${hidden > 0 &&
      html`<div class="p-line-hidden">
        ${count(hidden)} earlier lines are not shown${wanted ? "" : "; search finds them while they are kept"}
      </div>`}
      ${drawn.map(
        (line) => html`<div key=${line.key} class=${`p-line p-line-${line.kind}`}>${marked(line.text, wanted)}</div>`,
      )}
    </div>
  </div>`;
}

const copied = (lines) => navigator.clipboard?.writeText(lines.map((line) => line.text).join("\n"));

const contains = (text, wanted) => text.toLowerCase().includes(wanted.toLowerCase());

function marked(text, wanted) {
  const at = wanted ? text.toLowerCase().indexOf(wanted.toLowerCase()) : -1;
  if (at < 0) return text || "\u00a0";
  return html`${text.slice(0, at)}<mark>${text.slice(at, at + wanted.length)}</mark>${text.slice(at + wanted.length)}`;
}
