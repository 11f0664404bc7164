// The live stream of events and output: one connection per browser, for any number of tabs.
//
// Tabs elect a leader with a Web Lock, which the browser releases when a tab dies. The leader holds the stream and
// forwards each frame over a BroadcastChannel. Every tab keeps its own position: it delivers the next event, drops
// older ones, and fills a gap from the server first. So a change of leader, duplicates and lost messages do no harm.

import { useEffect, useState } from "./ui.js";
import { get, reportSignedOut } from "./api.js";
import { openStream } from "./sse.js";
import { Sequence } from "./sequence.js";

const KEY = "cleveragents.position";
const FAR = 2000; // with more missing events, views reload instead of catching up
const MOST_OUTPUTS = 20;
const RETRY_MS = [250, 500, 1000, 2000, 4000];

const tab = Math.random().toString(36).slice(2);
const handlers = new Set();
const outputs = new Map(); // plan or conversation → {sequence, handlers}
const statusListeners = new Set();
const subscribed = new Map(); // tab → ids whose output it shows; the leader subscribes to all of them
const forwarded = new Map(); // id → number of the last output that this leader forwarded

let status = "connecting";
let channel = null;
let leading = false;
let connection = null;
let failures = 0;
let refused = false;
let started = null;

const events = new Sequence({
  read: async (after) => (await get("/events", { after, limit: 500 })).items,
  numberOf: (event) => event.position,
  deliver: deliverEvent,
});

/** Resolves once the position of the stream is known. Data read afterwards misses no event. */
export function ready() {
  started ??= start().catch((error) => {
    started = null;
    setStatus("offline");
    // Without a session, the view after the login tries again.
    if (error.status !== 401) setTimeout(() => ready().then(tellReset, () => {}), RETRY_MS.at(-1));
    throw error;
  });
  return started;
}

/** Reconnects after a login. Without a session the stream does not retry. */
export function wake() {
  if (!leading || !refused) return;
  refused = false;
  connect();
}

/** Calls `handler(event)` for each event that passes `filter`: null (all), {subject}, {types}, {plan} or a function.
 * After too long a gap it gets {type: "reset"} and must read its data again. */
export function useEvents(filter, handler, dependencies = []) {
  useEffect(() => {
    const entry = { passes: passer(filter), handler };
    handlers.add(entry);
    ready();
    return () => handlers.delete(entry);
  }, dependencies);
}

/** Calls `handler(piece)` with all output of a plan, or of a conversation, in order: {number, kind, text, time}. `of` is
 * the path of the list with this id. */
export function useOutput(id, handler, of = "/plans") {
  useEffect(() => {
    if (!id) return undefined;
    return followOutput(id, handler, of);
  }, [id]);
}

/** The connection status: "connecting", "live" or "offline". */
export function useConnection() {
  const [now, setNow] = useState(status);
  useEffect(() => {
    statusListeners.add(setNow);
    setNow(status);
    return () => statusListeners.delete(setNow);
  }, []);
  return now;
}

/** Calls `again()` when the server is back, if `error` means that it was unreachable. */
export function useReturn(error, again) {
  const now = useConnection();
  const away = Boolean(error) && (error.status === 0 || error.status >= 502);
  useEffect(() => {
    if (now === "live" && away) again();
  }, [now]);
}

/** The ids of the plans that an event concerns. */
export function plansOf(event) {
  const facts = event.facts ?? {};
  const kind = typeof facts.kind === "string" && facts.kind.includes(":") ? facts.kind.split(":")[1] : null;
  const named = [event.subject, facts.plan_id, facts.plan, facts.root, facts.root_id, facts.parent, facts.child, kind];
  return [...new Set(named.filter((one) => typeof one === "string" && one))];
}

function passer(filter) {
  if (filter === null || filter === undefined) return () => true;
  if (typeof filter === "function") return filter;
  return (event) =>
    (!filter.subject || event.subject === filter.subject) &&
    (!filter.types || filter.types.includes(event.type)) &&
    (!filter.plan || plansOf(event).includes(filter.plan));
}

function deliverEvent(event) {
  sessionStorage.setItem(KEY, String(event.position));
  tell(event, (entry) => entry.passes(event));
}

function tellReset() {
  tell({ type: "reset" }, () => true);
}

/** Passes an event to the handlers. An error in one handler must not affect the others or end the stream. */
function tell(event, accepts) {
  for (const entry of [...handlers]) {
    try {
      if (accepts(entry)) entry.handler(event);
    } catch (error) {
      console.error(error);
    }
  }
}

function setStatus(next) {
  if (leading) channel?.postMessage({ kind: "status", status: next });
  if (next === status) return;
  status = next;
  for (const listener of statusListeners) listener(next);
}

async function start() {
  await settle();
  channel = new BroadcastChannel("cleveragents");
  channel.onmessage = ({ data }) => hear(data);
  addEventListener("pagehide", () => channel.postMessage({ kind: "wants", tab, plans: [] }));
  addEventListener("online", () => leading && !refused && connect());
  channel.postMessage({ kind: "hello", tab });
  if (navigator.locks) {
    navigator.locks.request("cleveragents-stream", lead);
  } else {
    lead(); // no locks on an insecure origin: each tab is its own leader
  }
}

/** Sets the position: that of this tab's last visit, or the end of the log. */
async function settle() {
  const [latest] = (await get("/events", { limit: 1 })).items.slice(-1);
  const end = latest ? latest.position : 0;
  const kept = Number(sessionStorage.getItem(KEY) ?? Number.NaN);
  const usable = Number.isInteger(kept) && kept <= end && end - kept <= FAR;
  const current = events.last ?? (usable ? kept : end);
  const far = current > end || end - current > FAR; // a different log, or a long sleep
  events.last = far ? end : current;
  if (far) tellReset();
}

function lead() {
  leading = true;
  channel.postMessage({ kind: "who" });
  connect();
  return new Promise(() => {}); // holds the lock until the tab closes
}

function connect() {
  connection?.close();
  const plans = [...new Set([...outputs.keys(), ...[...subscribed.values()].flat()])].slice(-MOST_OUTPUTS);
  const output = plans.map((id) => `${id}:${forwarded.get(id) ?? 0}`);
  connection = openStream("/api/events/stream", { after: events.last, output }, {
    onOpen: () => {
      failures = 0;
      setStatus("live");
    },
    onFrame: (frame) => {
      if (frame.event === "problem") return; // the stream ends; the next attempt gets the status
      const kind = frame.event === "output" || frame.event === "reset" ? frame.event : "event";
      const message = { kind, data: JSON.parse(frame.data) };
      if (kind === "output") forwarded.set(message.data.plan_id, message.data.number);
      channel.postMessage(message);
      hear(message);
    },
    onEnd: (code) => {
      setStatus(failures ? "offline" : "connecting");
      refused = code === 401;
      if (refused) {
        reportSignedOut();
        return;
      }
      const pause = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
      failures += 1;
      const mine = connection;
      setTimeout(() => connection === mine && reconnect(), pause);
    },
  });
}

async function reconnect() {
  const before = connection;
  try {
    await settle();
  } catch {
    // Still unreachable: the next connection attempt fails and retries.
  }
  if (connection === before) connect();
}

function hear(message) {
  if (message.kind === "event") events.offer(message.data, FAR, skip);
  if (message.kind === "reset") restart(message.data.position);
  if (message.kind === "output") outputs.get(message.data.plan_id)?.sequence.offer(message.data);
  if (message.kind === "status") setStatus(message.status);
  if (message.kind === "wants" && leading) noteWants(message.tab, message.plans);
  if (message.kind === "hello" && leading) channel.postMessage({ kind: "status", status });
  if (message.kind === "who") tellWants();
}

/** The server does not know this position: its log is a different one, or was restored. */
function restart(position) {
  events.last = position;
  skip(position);
}

function skip(position) {
  sessionStorage.setItem(KEY, String(position));
  tellReset();
}

function noteWants(who, plans) {
  const before = (subscribed.get(who) ?? []).join();
  if (plans.length) subscribed.set(who, plans);
  else subscribed.delete(who);
  if (before !== plans.join() && plans.length) connect();
}

function tellWants() {
  channel?.postMessage({ kind: "wants", tab, plans: [...outputs.keys()] });
}

function followOutput(id, handler, of) {
  let entry = outputs.get(id);
  if (!entry) {
    const hearing = new Set();
    const sequence = new Sequence({
      read: async (after) => (await get(`${of}/${id}/output`, { after })).items,
      numberOf: (piece) => piece.number,
      deliver: (piece) => hearing.forEach((one) => one(piece)),
      first: 0,
    });
    entry = { sequence, handlers: hearing };
    outputs.set(id, entry);
    ready().then(() => {
      sequence.catchUp();
      if (leading) connect();
      else tellWants();
    });
  }
  entry.handlers.add(handler);
  return () => {
    entry.handlers.delete(handler);
    if (entry.handlers.size) return;
    outputs.delete(id);
    if (!leading) tellWants();
  };
}
