// Reads something for a view: its data, its error, whether it is on the way, and how to read it again.

import { useCallback, useEffect, useRef, useState } from "./ui.js";
import { ready, useReturn } from "./stream.js";

/** `loader(signal)` gives the data; it runs again when `dependencies` change or on `reload()`. What was there stays
 * until the new is there. It runs after the stream knows its position, so that no event falls in between. */
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
      await ready().catch(() => {}); // the loader will say what is wrong
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
  // While one is on the way, any number of calls make one more afterwards: events come in bursts.
  const reload = useCallback(() => {
    if (running.current) again.current = true;
    else run();
  }, [run]);
  useReturn(state.error, reload);
  return { ...state, reload };
}
