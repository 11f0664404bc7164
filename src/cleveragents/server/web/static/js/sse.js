// Reads server-sent events over fetch. Unlike EventSource it delivers frames of every type and reports the status of
// the response, so that "not logged in" differs from "unreachable".

import { withQuery } from "./api.js";

const SILENT_MS = 45000; // three times the server's heartbeat

/** Opens a stream. Calls `onOpen()`, `onFrame({id, event, data})`, and `onEnd(status)` once unless `close()` was called. */
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
      watch = setTimeout(() => stop.abort(), SILENT_MS); // a dead connection sends nothing
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

/** A function that takes chunks of text and calls `onFrame` for each complete frame. */
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
  if (colon === 0) return; // heartbeat
  const name = colon < 0 ? line : line.slice(0, colon);
  const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
  if (name === "data") frame.data.push(value);
  else if (name === "id" || name === "event") frame[name] = value;
}
