// The router. The address is the only state, so that every view can be linked, reloaded and reached by "back".

import { useEffect, useState } from "./ui.js";

const listeners = new Set();

/** Opens a path of the page. `replace` replaces the current history entry. */
export function navigate(path, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", path);
  else if (path !== location.pathname + location.search) history.pushState(null, "", path);
  tell();
  if (!replace) {
    scrollTo(0, 0);
    // Screen readers continue at the heading of the new view.
    requestAnimationFrame(() => document.querySelector("main h1")?.focus({ preventScroll: true }));
  }
}

/** The current {path, query}. */
export function useLocation() {
  const [now, setNow] = useState(current);
  useEffect(() => {
    const listener = () => setNow(current());
    listeners.add(listener);
    addEventListener("popstate", listener);
    return () => {
      listeners.delete(listener);
      removeEventListener("popstate", listener);
    };
  }, []);
  return now;
}

/** Sets entries of the query in the address; "" or null removes an entry. */
export function setQuery(entries) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(entries)) {
    if (value === "" || value === null || value === undefined) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  navigate(location.pathname + (text ? `?${text}` : ""), { replace: true });
}

function current() {
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

function tell() {
  for (const listener of [...listeners]) listener();
}
