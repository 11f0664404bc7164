// The plans, kept current: read once, then each row again when events name it. Bursts of events make one reading.

import { useEffect, useState } from "./ui.js";
import { all, get } from "./api.js";
import { plansOf, ready, useEvents } from "./stream.js";

const GATHER_MS = 120;
const APART_MS = 1000; // between two readings, however many events there are
const AT_ONCE = 5; // rows read one by one; for more the list is read again
export const MOST = 600;
const OVER = ["applied", "cancelled", "rejected", "undone"];
const UNDER_WAY = ["queued", "processing", "waiting"];
const LEFT = ["complete", "errored", "constrained"];

let state = { plans: new Map(), cut: false, loading: true, error: null };
let loading = null;
let timer = null;
let readAt = -Infinity;
const stale = new Set();
const subjects = new Set();
const listeners = new Set();

/** {plans: rows, cut, loading, error, reload}: all plans that are something to a person, as they change. `cut`: of
 * those that ended and were never decided about, only the newest `MOST`. */
export function usePlans() {
  const [now, setNow] = useState(state);
  useEffect(() => {
    listeners.add(setNow);
    setNow(state);
    reload();
    return () => listeners.delete(setNow);
  }, []);
  useEvents(null, noteEvent);
  return { ...now, plans: [...now.plans.values()], reload };
}

function set(next) {
  state = { ...state, ...next };
  for (const listener of listeners) listener(state);
}

function reload() {
  loading ??= read().finally(() => {
    loading = null;
  });
  return loading;
}

async function read() {
  stale.clear();
  try {
    await ready();
    // What is under way may be old, and has to be there all the same; of what is over the latest will do.
    const [open, left, over] = await Promise.all([
      all("/plans", { state: UNDER_WAY, limit: 1000 }, { most: Infinity }),
      all("/plans", { state: LEFT }, { most: MOST }),
      get("/plans", { state: OVER, limit: 100 }),
    ]);
    // The latest last: of a plan that moved on meanwhile, two of them may tell.
    const rows = [...open, ...left, ...over.items].sort((a, b) => (a.updated < b.updated ? -1 : 1));
    set({ plans: new Map(rows.map((row) => [row.id, row])), cut: left.length >= MOST, loading: false, error: null });
  } catch (error) {
    set({ loading: false, error });
  }
}

function noteEvent(event) {
  if (event.type === "reset") {
    reload();
    return;
  }
  if (event.type.startsWith("user.") || event.type.startsWith("access.")) return;
  if (/^(plan|approval|conflict|budget)\./.test(event.type)) subjects.add(event.subject);
  for (const id of plansOf(event)) stale.add(id);
  plan();
}

function plan() {
  timer ??= setTimeout(refresh, Math.max(GATHER_MS, readAt + APART_MS - performance.now()));
}

async function refresh() {
  timer = null;
  readAt = performance.now();
  if (loading) await loading;
  // An id that is not on the board is asked for only if it is a plan's: jobs and changesets have ids, too.
  const known = [...stale].filter((id) => state.plans.has(id) || subjects.has(id));
  stale.clear();
  subjects.clear();
  if (known.length > AT_ONCE) {
    await reload();
  } else {
    await Promise.all(known.map(refreshOne));
  }
  if (stale.size) plan();
}

async function refreshOne(id) {
  try {
    // The newest plan of those before the next possible id: this one, if it is there.
    const { items } = await get("/plans", { all: true, limit: 1, after: `${id}0` });
    const plans = new Map(state.plans);
    const row = items.find((one) => one.id === id);
    if (!row || (row.parent && !row.needs)) plans.delete(id);
    else plans.set(id, row);
    set({ plans });
  } catch {
    // The next event, or the next visit, reads it again; that the server is away is said elsewhere.
  }
}
