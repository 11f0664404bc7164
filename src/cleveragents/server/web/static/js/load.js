// Loads the data of a view.

import { useCallback, useEffect, useRef, useState } from "./ui.js";
import { ready, useReturn } from "./stream.js";

/** {data, error, loading, reload}. `loader(signal)` returns the data; it runs again when `dependencies` change or on
 * `reload()`, which keeps the old data until the new data is there. It runs after the stream knows its position, so
 * that no event falls in between. */
export function useLoad(loader, dependencies = []) {
  const [state, setState] = useState({ data: null, error: null, loading: true });
  const running = useRef(null);
  const again = useRef(false);
  const run = useCallback(async () => {
    const stop = new AbortController();
    running.current = stop;
    setState((before) => ({ ...before, loading: true }));
    let next;
    try {
      await ready().catch(() => {}); // the loader reports the error
      next = { data: await loader(stop.signal), error: null, loading: false };
    } catch (error) {
      next = { error, loading: false };
    }
    if (running.current !== stop) return;
    running.current = null;
    setState((before) => ({ ...before, ...next }));
    if (again.current) {
      again.current = false;
      run();
    }
  }, dependencies);
  useEffect(() => {
    again.current = false;
    setState({ data: null, error: null, loading: true });
    run();
    return () => {
      running.current?.abort();
      running.current = null;
    };
  }, [run]);
  // During a load, any number of calls cause one more load: events come in bursts.
  const reload = useCallback(() => {
    if (running.current) again.current = true;
    else run();
  }, [run]);
  useReturn(state.error, reload);
  return { ...state, reload };
}
