// The live data of a session: the conversation, its turns and their output as it arrives.

import { useEffect, useRef, useState } from "../ui.js";
import { all, get } from "../api.js";
import { useLoad } from "../load.js";
import { useEvents, useOutput } from "../stream.js";

const KEPT = 4000;
const LOOK_MS = 10000;

/** The state of a turn as [word, tone]; without turns, `state` is null. */
export function stateOf(state) {
  const tones = { running: "run", answered: "good", stopped: "wait", interrupted: "wait", failed: "bad" };
  return state ? [state, tones[state] ?? "off"] : ["new", "off"];
}

/** The title of a session, which is its first question. */
export const titleOf = (talk) => talk.title || "New session";

/** {data: {talk, turns}, error, loading, reload} of the session with this id, or this part of an id. */
export function useTalk(id) {
  const path = `/conversations/${encodeURIComponent(id)}`;
  const load = useLoad(async (signal) => {
    const [talk, turns] = await Promise.all([get(path, {}, { signal }), all(`${path}/turns`, {}, { signal })]);
    return { talk, turns };
  }, [id]);
  const whole = load.data?.talk.id;
  const running = load.data?.talk.state === "running";
  useEffect(() => {
    // A turn whose process died reports no end.
    const timer = running && setInterval(load.reload, LOOK_MS);
    return () => clearInterval(timer);
  }, [running, load.reload]);
  useEvents((event) => event.type === "reset" || (whole && event.facts?.conversation === whole), load.reload, [whole, load.reload]);
  return load;
}

/** The pieces of output so far, oldest first. They are drawn at most once per frame. */
export function usePieces(id) {
  const held = useRef(null);
  const frame = useRef(0);
  const [, redraw] = useState(0);
  if (held.current?.id !== id) held.current = { id, pieces: [] };
  const mine = held.current;
  const add = (piece) => {
    mine.pieces = [...mine.pieces.slice(-KEPT), piece];
    frame.current ||= requestAnimationFrame(() => {
      frame.current = 0;
      redraw((now) => now + 1);
    });
  };
  useOutput(id, add, "/conversations");
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  return mine.pieces;
}

/** The pieces of each turn, in the order of `turns`. */
export function piecesByTurn(turns, pieces) {
  return turns.map((turn, at) => {
    const end = turns[at + 1]?.output_after ?? Infinity;
    return pieces.filter((piece) => piece.number > turn.output_after && piece.number <= end);
  });
}

/** The output of a turn as entries: {kind: "text", text}, {kind: "tool", tool, what, result, failed} and
 * {kind: "plan", plan}, each with a stable `key`. */
export function entriesOf(pieces) {
  const entries = [];
  let text = null;
  let open = []; // calls without a result
  const add = (entry) => {
    entries.push(entry);
    text = null;
    return entry;
  };
  const see = (key, seen) => {
    if (seen.event === "thinking") text = null;
    if (seen.event === "plan") add({ key, kind: "plan", plan: String(seen.plan) });
    if (seen.event === "tool") open.push(add({ key, kind: "tool", tool: seen.tool, what: argumentsOf(seen.arguments), result: "" }));
    if (seen.event === "tool_done") open = ended(open, { result: seen.text || "" });
  };
  for (const { number, kind, text: said } of pieces) {
    if (kind === "node") {
      see(`n${number}`, objectIn(said));
    } else if (kind === "model") {
      const now = text ?? add({ key: `t${number}`, kind: "text", text: "" });
      now.text += said;
      text = now;
    } else if (kind === "progress") {
      for (const failure of said.matchAll(/^ {4}it failed: (.*)$/gm)) open = ended(open, { result: failure[1], failed: true });
    }
  }
  return entries.filter((entry) => entry.kind !== "text" || entry.text.trim());
}

// With several open calls, nothing says which of them has ended.
function ended(open, outcome) {
  if (open.length === 1) Object.assign(open[0], outcome);
  return open.slice(1);
}

function objectIn(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

function argumentsOf(given) {
  if (given === null || typeof given !== "object") return "";
  return Object.values(given)
    .map((one) => (typeof one === "string" ? one : JSON.stringify(one)))
    .join(" ")
    .replace(/\s+/g, " ");
}
