// The permissions of a profile as text.

const CAPABILITIES = {
  read: "read",
  edit: "change files",
  create: "create files",
  delete: "delete files",
  command: "run commands",
  network: "use the network",
  install: "install packages",
  spawn: "start sub-plans",
  apply: "apply its result",
};

/** "Needs approval to use the network or apply its result. Must not delete files. …" */
export function profileInWords({ verdicts, never_asks: never }) {
  const that = (verdict) => Object.keys(CAPABILITIES).filter((one) => verdicts[one] === verdict).map((one) => CAPABILITIES[one]);
  const asks = never ? [] : that("ask");
  const denied = [...that("deny"), ...(never ? that("ask") : [])];
  const said = [];
  if (asks.length) said.push(`Needs approval to ${listed(asks, "or")}.`);
  if (denied.length) said.push(`Must not ${listed(denied, "or")}.`);
  said.push(said.length ? "Everything else is allowed in its sandbox." : "Everything is allowed without approval.");
  return said.join(" ");
}

function listed(words, last) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} ${last} ${words.at(-1)}`;
}
