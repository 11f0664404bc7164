// The live list of plans: loaded once, then row by row as events name a plan. A burst of events causes one read.

import { useEffect, useState } from "./ui.js";
import { all, get } from "./api.js";
import { plansOf, ready, useEvents } from "./stream.js";

const GATHER_MS = 120;
const APART_MS = 1000; // least time between two reads
const AT_ONCE = 5; // above this many changed rows, the whole list is read
export const MOST = 600;
const OVER = ["applied", "cancelled", "rejected", "undone"];
const OPEN = ["queued", "processing", "waiting"];
const UNDECIDED = ["complete", "errored", "constrained"];

let state = { plans: new Map(), cut: false, loading: true, error: null };
let loading = null;
let timer = null;
let readAt = -Infinity;
const stale = new Set();
const subjects = new Set();
const listeners = new Set();

/** {plans, cut, loading, error, reload}: the rows of the board, live. `cut`: only the newest `MOST` of the plans that
 * wait for a decision are listed. */
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
    // All open plans are listed, however old; of the ended plans only the latest.
    const [open, left, over] = await Promise.all([
      all("/plans", { state: OPEN, limit: 1000 }, { most: Infinity }),
      all("/plans", { state: UNDECIDED }, { most: MOST }),
      get("/plans", { state: OVER, limit: 100 }),
    ]);
    // The latest row wins: a plan that moved between the reads may be in two lists.
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
  // Ids that are not on the board are read only if they are plans: jobs and changesets have ids too.
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
    // The newest plan before the next possible id is this plan, if it exists.
    const { items } = await get("/plans", { all: true, limit: 1, after: `${id}0` });
    const plans = new Map(state.plans);
    const row = items.find((one) => one.id === id);
    if (!row || (row.parent && !row.needs)) plans.delete(id);
    else plans.set(id, row);
    set({ plans });
  } catch {
    // The next event or visit reads the row again. The frame shows that the server is offline.
  }
}
