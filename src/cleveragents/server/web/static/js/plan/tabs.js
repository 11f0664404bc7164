// Tabs with their own address (#diff), reachable by number keys, arrow keys and clicks.

import { html, useEffect, useState } from "../ui.js";
import { useKeys } from "../keys.js";

// [tab, go]: the tab named by the address, or the first, and a function that opens another. `also` maps aliases; the
// number keys open the tabs of `keyed`.
export function useTab(names, also, keyed) {
  const named = () => {
    const name = decodeURIComponent(location.hash.slice(1)).toLowerCase();
    if (!name) return null;
    const begun = names.find((one) => one.startsWith(name));
    return names.includes(name) ? name : (also[name] ?? begun ?? names[0]);
  };
  const [tab, setTab] = useState(() => named() || names[0]);
  useEffect(() => {
    // An alias or a prefix in the address becomes the name of the tab.
    const settle = () => {
      if (named() && location.hash !== `#${named()}`) history.replaceState(null, "", `#${named()}`);
    };
    const changed = () => {
      if (named()) setTab(named());
      settle();
    };
    settle();
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const go = (name) => {
    history.replaceState(null, "", `#${name}`);
    setTab(name);
  };
  useKeys(Object.fromEntries(keyed.map((name, place) => [String(place + 1), () => go(name)])));
  return [tab, go];
}

// `tabs`: [name, label, mark, what]. A mark is a number or a sign beside the label; `what` is its text for screen readers.
// A panel with tabs of its own is `inner`: its tabs have no number keys.
export function Tabs({ tabs, tab, go, label = "Plan views", inner = false, children }) {
  const panel = inner ? "p-inner-panel" : "p-panel";
  useEffect(() => {
    // On narrow screens the row of tabs scrolls.
    const chosen = document.getElementById(`tab-${tab}`);
    const row = chosen.parentElement;
    row.scrollLeft = chosen.offsetLeft - (row.clientWidth - chosen.offsetWidth) / 2;
  }, [tab]);
  const step = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const names = tabs.map(([name]) => name);
    const next = names[(names.indexOf(tab) + by + names.length) % names.length];
    go(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return html`<div class=${inner ? "" : "p-tabs-frame"}>
    <div class=${inner ? "p-tabs p-tabs-inner" : "p-tabs"} role="tablist" aria-label=${label} onKeyDown=${step}>
      ${tabs.map(
        ([name, label, mark, what], place) => html`<button
          key=${name}
          id=${`tab-${name}`}
          type="button"
          role="tab"
          class="p-tab"
          aria-selected=${name === tab ? "true" : "false"}
          aria-controls=${panel}
          aria-keyshortcuts=${inner ? undefined : String(place + 1)}
          tabindex=${name === tab ? "0" : "-1"}
          title=${inner ? undefined : `${label} (${place + 1})`}
          onClick=${() => go(name)}
        >
          ${label}${mark
            ? html`<span class="p-tab-mark" title=${what} aria-hidden=${what ? "true" : undefined}>${mark}</span>
                ${what && html`<span class="unseen">, ${what}</span>`}`
            : null}
        </button>`,
      )}
    </div>
    <div id=${panel} role="tabpanel" class=${panel} aria-labelledby=${`tab-${tab}`} tabindex="0">${children}</div>
  </div>`;
}
