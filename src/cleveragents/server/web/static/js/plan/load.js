// The live data of a plan: the plan itself, its events, and the actions on it.
//
// The server decides the state of a plan and its actions; the page never guesses. Each event of the plan triggers a
// new read: at most one at a time, and one more if events arrive meanwhile. So the page always shows a state that the
// server returned.

import { useCallback, useEffect, useRef, useState } from "../ui.js";
import { all, del, get, post, Problem } from "../api.js";
import { useLoad } from "../load.js";
import { plansOf, ready, useEvents, useReturn } from "../stream.js";

const SETTLE_MS = 120;
const MOST_EVENTS = 5000;

// The plan and its events. `rev` rises whenever the plan may have changed.
export function usePlan(id) {
  const [plan, setPlan] = useState(null);
  const [problem, setProblem] = useState(null);
  const [events, setEvents] = useState([]);
  const [rev, setRev] = useState(0);
  const reader = useReader(id, setPlan, setProblem, setRev);
  const known = useRef(new Set());
  known.current = familyOf(id, plan);
  const job = plan && plan.job;
  const readEvents = useCallback(
    () =>
      eventsOf(id).then(
        (past) => setEvents((now) => joined(past, now)),
        () => {}, // the next reset reads them again; the plan itself is read separately
      ),
    [id],
  );

  useEffect(() => {
    setPlan(null);
    setProblem(null);
    setEvents([]);
    // The stream's position comes first, so that no event falls between the position and the read.
    ready()
      .catch(() => {})
      .then(() => {
        reader.now();
        readEvents();
      });
    return reader.stop;
  }, [id]);

  useEvents(
    (event) => event.type === "reset" || plansOf(event).some((one) => known.current.has(one)),
    (event) => {
      if (event.type === "reset") {
        readEvents();
      } else if (concerns(event, id, job)) {
        setEvents((now) => joined(now, [event]));
      }
      reader.soon();
    },
    [id, job],
  );
  useReturn(problem, () => {
    reader.now();
    readEvents();
  });
  return { plan, problem, events, rev, reload: reader.now };
}

// The ids of the plan, its job and its sub-plans.
function familyOf(id, plan) {
  const ids = [id];
  if (plan) ids.push(plan.job, ...(plan.sub_plans || []).map((row) => row.id));
  return new Set(ids.filter(Boolean));
}

// Whether an event belongs to the plan itself. Events of sub-plans are shown on their own pages.
function concerns(event, id, job) {
  if (event.subject === id) return true;
  return event.type.startsWith("job.") && (event.subject === job || event.facts?.kind?.split(":")[1] === id);
}

// The events of the plan and its jobs from the first on. Without `after` the API returns the latest.
async function eventsOf(plan) {
  const found = [];
  let after = 0;
  while (after !== null && found.length < MOST_EVENTS) {
    const page = await get("/events", { plan, after, limit: 1000 });
    found.push(...page.items);
    after = page.next;
  }
  return found;
}

// The latest events of both lists by position, without duplicates.
export function joined(some, more) {
  const last = some.length ? some[some.length - 1].position : -1;
  if (more.length === 1 && more[0].position > last) return [...some, more[0]].slice(-MOST_EVENTS);
  const found = new Map([...some, ...more].map((event) => [event.position, event]));
  return [...found.values()].sort((a, b) => a.position - b.position).slice(-MOST_EVENTS);
}

function useReader(id, setPlan, setProblem, setRev) {
  const state = useRef(null);
  if (!state.current || state.current.id !== id) {
    state.current = { id, reading: false, again: false, timer: 0, over: false };
  }
  const mine = state.current;
  const read = useCallback(async () => {
    if (mine.over) return;
    if (mine.reading) {
      mine.timer = 0;
      mine.again = true;
      return;
    }
    mine.reading = true;
    mine.again = false;
    clearTimeout(mine.timer);
    mine.timer = 0;
    try {
      const plan = await get(`/plans/${encodeURIComponent(id)}`);
      if (mine.over) return;
      setPlan(plan);
      setProblem(null);
      setRev((rev) => rev + 1);
    } catch (error) {
      if (!mine.over) setProblem(error);
    } finally {
      mine.reading = false;
      if (mine.again) read();
    }
  }, [id]);
  return {
    now: read,
    // Later events do not postpone the read: a busy plan is read all the time.
    soon: () => {
      mine.timer ||= setTimeout(read, SETTLE_MS);
    },
    stop: () => {
      mine.over = true;
      clearTimeout(mine.timer);
    },
  };
}

// Loads a resource of the plan, and again when `rev` rises. The old data stays until the new data is there; `at` is
// the `rev` that it was read for.
export function useRead(path, rev, { query = {}, whole = false } = {}) {
  const spelled = JSON.stringify(query);
  const now = useRef(rev);
  now.current = rev;
  const read = async (signal) => {
    const at = now.current;
    return { at, data: await (whole ? all(path, query, { signal }) : get(path, query, { signal })) };
  };
  const load = useLoad(read, [path, spelled]);
  const first = useRef(rev);
  useEffect(() => {
    if (rev !== first.current) load.reload();
    first.current = rev;
  }, [rev]);
  return { ...load, data: load.data && load.data.data, at: load.data && load.data.at };
}

// Sends actions on the plan, one at a time. `busy` names the running action; `said` holds the problem of each place.
// After a conflict with another user the plan is read again, and the problem is shown, unless `failed` handles it.
export function useAsking(id, reload) {
  const [busy, setBusy] = useState(null);
  const [said, setSaid] = useState({});
  const under = useRef(null);
  const during = useCallback(
    async (name, place, doIt, again, failed) => {
      if (under.current) return null;
      under.current = name;
      setBusy(name);
      setSaid((now) => ({ ...now, [place]: null }));
      let done = null;
      try {
        done = (await doIt()) ?? {};
      } catch (error) {
        const problem = error instanceof Problem ? error : new Problem(0, "error", String(error));
        if (!failed?.(problem)) setSaid((now) => ({ ...now, [place]: problem }));
      }
      under.current = null;
      // The buttons stay disabled until the plan is read again: `can` may be out of date.
      if (done === null || again) await reload();
      setBusy(null);
      return done;
    },
    [id, reload],
  );
  const where = `/plans/${encodeURIComponent(id)}`;
  const ask = (name, body = {}, place = name, failed = null) =>
    during(name, place, () => post(`${where}/${name}`, body), true, failed);
  const remove = (force) => during("delete", "delete", () => del(force ? `${where}?force=true` : where), false);
  const forget = useCallback((place) => setSaid((now) => ({ ...now, [place]: null })), []);
  return { ask, remove, busy, said, forget };
}
