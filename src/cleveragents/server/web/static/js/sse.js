// Reads server-sent events over fetch: unlike EventSource it hands on frames of every type, and says which status
// the server answered with, so that "not logged in" is told from "not there".

import { withQuery } from "./api.js";

const SILENT_MS = 45000; // three times as long as the server is ever silent

/** Opens a stream. `onFrame({id, event, data})`, `onOpen()`, and `onEnd(status)` once, unless it was closed by us. */
export function openStream(path, query, { onOpen, onFrame, onEnd }) {
  const stop = new AbortController();
  let closed = false;
  run(withQuery(path, query), stop, onOpen, onFrame).then((status) => {
    if (!closed) onEnd(status);
  });
  const close = () => {
    closed = true;
    stop.abort();
  };
  return { close };
}

async function run(address, stop, onOpen, onFrame) {
  let watch = null;
  try {
    const headers = { Accept: "text/event-stream" };
    const response = await fetch(address, { headers, credentials: "same-origin", cache: "no-store", signal: stop.signal });
    if (!response.ok) return response.status;
    onOpen();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser(onFrame);
    for (;;) {
      clearTimeout(watch);
      watch = setTimeout(() => stop.abort(), SILENT_MS); // a connection can die without a word
      const { done, value } = await reader.read();
      if (done || stop.signal.aborted) return 200;
      parse(value);
    }
  } catch {
    return 0;
  } finally {
    clearTimeout(watch);
  }
}

/** A function that takes text as it arrives and calls `onFrame` for each whole frame in it. */
export function parser(onFrame) {
  let rest = "";
  let frame = { id: null, event: "message", data: [] };
  return (text) => {
    const lines = (rest + text).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (frame.data.length) onFrame({ ...frame, data: frame.data.join("\n") });
        frame = { id: null, event: "message", data: [] };
      } else {
        take(frame, line);
      }
    }
  };
}

function take(frame, line) {
  const colon = line.indexOf(":");
  if (colon === 0) return; // a comment that keeps the connection alive
  const name = colon < 0 ? line : line.slice(0, colon);
  const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
  if (name === "data") frame.data.push(value);
  else if (name === "id" || name === "event") frame[name] = value;
}
