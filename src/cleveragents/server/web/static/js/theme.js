// The theme: light, dark or the system's. The choice is stored in this browser.

import { useEffect, useState } from "./ui.js";

const KEY = "cleveragents.theme";
const ORDER = ["auto", "light", "dark"];

/** [theme, next]: the chosen theme, and a function that switches to the next one in all tabs. */
export function useTheme() {
  const [theme, setTheme] = useState(chosen);
  useEffect(() => {
    const follow = (event) => {
      if (event.key !== KEY) return;
      show(chosen());
      setTheme(chosen());
    };
    addEventListener("storage", follow);
    return () => removeEventListener("storage", follow);
  }, []);
  const next = () => {
    const other = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    if (other === "auto") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, other);
    show(other);
    setTheme(other);
  };
  return [theme, next];
}

function chosen() {
  return localStorage.getItem(KEY) ?? "auto";
}

function show(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
