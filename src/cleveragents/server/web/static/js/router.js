// Where we are: the address is the state, so that every view can be linked, reloaded and gone back to.

import { useEffect, useState } from "./ui.js";

const listeners = new Set();

/** Goes to a path of ours. `replace` leaves no step to go back to. */
export function navigate(path, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", path);
  else if (path !== location.pathname + location.search) history.pushState(null, "", path);
  tell();
  if (!replace) {
    scrollTo(0, 0);
    // Who hears the page rather than sees it is put where the new view begins.
    requestAnimationFrame(() => document.querySelector("main h1")?.focus({ preventScroll: true }));
  }
}

/** {path, query}, as it changes. */
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

/** Sets entries of the query in place; "" or null removes one. */
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
