// Icons, drawn as strokes on a 16 × 16 grid. All are decorative: each has a text beside it.

import { html } from "./ui.js";

const PATHS = {
  "tone-run": "M8 2.5a5.5 5.5 0 1 1-5.5 5.5",
  "tone-need": "M8 2 14.5 13.5h-13zM8 6.5v3M8 11.6v.1",
  "tone-good": "M3 8.5 6.5 12 13 4.5",
  "tone-bad": "M4 4l8 8M12 4l-8 8",
  "tone-done": "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM5.3 8.2l2 2 3.5-4",
  "tone-wait": "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.8V8l2.2 1.6",
  "tone-off": "M3.5 8h9",
  board: "M2.5 3h3v10h-3zM6.5 3h3v7h-3zM10.5 3h3v5h-3z",
  plus: "M8 3v10M3 8h10",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3l3.4 3.4",
  cost: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM10 6H7.2a1 1 0 0 0 0 2h1.6a1 1 0 0 1 0 2H6M8 4.6v6.8",
  bell: "M4.5 10.5V7a3.5 3.5 0 0 1 7 0v3.5l1 1.5h-9zM6.8 13.5h2.4",
  log: "M3 3.5h10M3 6.5h10M3 9.5h7M3 12.5h5",
  jobs: "M3 4.5h10v8H3zM6 4.5v-2h4v2M3 8h10",
  folder: "M2 4h4l1.5 1.5H14v7.5H2z",
  users: "M6 7.5a2.3 2.3 0 1 0 0-4.6 2.3 2.3 0 0 0 0 4.6zM2 13c.3-2.4 1.9-3.6 4-3.6s3.7 1.2 4 3.6M10.5 3.2a2.2 2.2 0 0 1 0 4.2M11.6 9.7c1.4.4 2.2 1.5 2.4 3.3",
  book: "M8 4c-1.5-1-3.5-1.2-5.5-1v9.5c2-.2 4 0 5.5 1 1.5-1 3.5-1.2 5.5-1V3C11.5 2.8 9.5 3 8 4zM8 4v9.5",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1.1 1.1M11.9 11.9 13 13M13 3l-1.1 1.1M4.1 11.9 3 13",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z",
  auto: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 2v12M8 5h4.7M8 8h6M8 11h4.7",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  close: "M4 4l8 8M12 4l-8 8",
  keys: "M2 4.5h12v7H2zM4.5 7h.1M7 7h.1M9.5 7h.1M12 7h-.1M5 9.5h6",
  refresh: "M13 8a5 5 0 1 1-1.5-3.6M13 2v3h-3",
  trash: "M3 4.5h10M6 4.5V3h4v1.5M4.5 4.5l.6 8.5h5.8l.6-8.5",
  check: "M3 8.5 6.5 12 13 4.5",
  x: "M4 4l8 8M12 4l-8 8",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  left: "M10 4 6 8l4 4",
  play: "M5 3v10l8-5z",
  stop: "M4 4h8v8H4z",
  undo: "M6 4 3 7l3 3M3 7h6a3.5 3.5 0 0 1 0 7H7",
  branch: "M5 3a1.2 1.2 0 1 0 0 2.4A1.2 1.2 0 0 0 5 3zM5 10.6a1.2 1.2 0 1 0 0 2.4 1.2 1.2 0 0 0 0-2.4zM11 5a1.2 1.2 0 1 0 0 2.4A1.2 1.2 0 0 0 11 5zM5 5.5v5M11 7.5c0 2-3 2-5.5 3.5",
  talk: "M2.5 3h11v8H8l-3 2.5V11H2.5zM5 6h6M5 8.5h4",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  clock: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.8V8l2.2 1.6",
  shield: "M8 2l5 1.8v4C13 11 11 13.2 8 14.3 5 13.2 3 11 3 7.8v-4zM5.7 8l1.7 1.7 3-3.2",
  out: "M6 3H3v10h3M9.5 5l3 3-3 3M12.5 8H6",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  edit: "M3 13l.7-3L11 2.7 13.3 5 6 12.3zM9.5 4.2l2.3 2.3",
  empty: "M2.5 9.5 4.5 3h7l2 6.5v3.5h-11zM2.5 9.5H6l.8 1.5h2.4l.8-1.5h3.5",
};

export function Icon({ name, size = 16 }) {
  return html`<svg class=${`icon icon-${name}`} width=${size} height=${size} viewBox="0 0 16 16" aria-hidden="true">
    <path d=${PATHS[name] ?? PATHS["tone-off"]} fill="none" stroke="currentColor" stroke-width="1.5"
      stroke-linecap="round" stroke-linejoin="round" />
  </svg>`;
}
