// Numbers, times and states as people read them. Nothing here touches the page.

const UNITS = [
  ["year", 31536000],
  ["month", 2592000],
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
];

/** "3 minutes ago", "in 2 hours", "just now". */
export function ago(time, now = Date.now()) {
  const seconds = Math.round((new Date(time).getTime() - now) / 1000);
  if (Number.isNaN(seconds)) return "";
  for (const [unit, length] of UNITS) {
    if (Math.abs(seconds) >= length) {
      const count = Math.round(seconds / length);
      const words = `${Math.abs(count)} ${unit}${Math.abs(count) === 1 ? "" : "s"}`;
      return count < 0 ? `${words} ago` : `in ${words}`;
    }
  }
  return seconds < -9 ? `${-seconds} s ago` : "just now";
}

/** "2m 05s", "1h 12m", "0.4 s". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
  if (seconds < 10) return `${Number(seconds).toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h ${two(Math.floor((whole % 3600) / 60))}m`;
}

/** "$0.0042", "$12.30": never fewer than two places, more where the amount is small. */
export function money(usd) {
  if (usd === null || usd === undefined) return "";
  const amount = Number(usd);
  if (amount === 0) return "$0.00";
  return `$${amount.toFixed(Math.abs(amount) < 0.1 ? 4 : 2)}`;
}

/** "12,400" */
export function count(number) {
  return number === null || number === undefined ? "" : Number(number).toLocaleString("en-GB");
}

/** "1 file", "3 files". */
export function counted(number, word, plural = `${word}s`) {
  return `${count(number)} ${number === 1 ? word : plural}`;
}

/** "1.2 kB" */
export function bytes(number) {
  if (number < 1000) return `${number} B`;
  if (number < 1e6) return `${(number / 1000).toFixed(1)} kB`;
  return `${(number / 1e6).toFixed(1)} MB`;
}

const ULID = /^[0-9A-HJKMNP-TV-Z]{26}$/i;

/** An id as short as people use it: its last eight characters, as the command line prints them. A name stays whole. */
export function shortId(id) {
  return ULID.test(id) ? id.slice(-8) : (id ?? "");
}

const STATES = {
  queued: ["wait", "queued"],
  processing: ["run", "running"],
  waiting: ["need", "waiting"],
  complete: ["good", "complete"],
  errored: ["bad", "failed"],
  cancelled: ["off", "cancelled"],
  applied: ["done", "applied"],
  constrained: ["need", "refused"],
  rejected: ["off", "rejected"],
  undone: ["off", "undone"],
  running: ["run", "running"],
  succeeded: ["good", "succeeded"],
  failed: ["bad", "failed"],
  retrying: ["wait", "retrying"],
  passed: ["good", "passed"],
  skipped: ["off", "skipped"],
  live: ["good", "live"],
  offline: ["bad", "offline"],
  ended: ["done", "ended"],
  asked: ["need", "asks"],
  denied: ["bad", "denied"],
};

/** How a state looks: its tone (run, need, good, bad, done, wait, off) and its word. */
export function lookOf(state) {
  const [tone, word] = STATES[state] ?? ["off", state ?? "unknown"];
  return { tone, word };
}
