// Numbers, times and ids as text. Pure functions without elements.

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

/** "$0.0042", "$12.30": two decimals, four for amounts below $0.10. */
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

/** The last eight characters of an id, as the command line prints it. Names stay whole. */
export function shortId(id) {
  return ULID.test(id) ? id.slice(-8) : (id ?? "");
}

const JOB_TONES = { queued: "wait", running: "run", succeeded: "good", failed: "bad", cancelled: "off" };

/** The tone of a job's state. */
export function jobTone(state) {
  return JOB_TONES[state] ?? "off";
}
