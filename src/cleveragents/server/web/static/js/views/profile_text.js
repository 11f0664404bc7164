// What a profile lets a plan do, in one sentence or two.

const DEEDS = {
  read: "read",
  edit: "change files",
  create: "make files",
  delete: "delete files",
  command: "run commands",
  network: "use the network",
  install: "install packages",
  spawn: "make sub-plans",
  apply: "apply its result",
};

/** "Asks before it may use the network, apply its result. Never: …" */
export function profileInWords({ verdicts, never_asks: never }) {
  const that = (verdict) => Object.keys(DEEDS).filter((deed) => verdicts[deed] === verdict).map((deed) => DEEDS[deed]);
  const asks = never ? [] : that("ask");
  const denied = [...that("deny"), ...(never ? that("ask") : [])];
  const said = [];
  if (asks.length) said.push(`It asks before it may ${listed(asks, "or")}.`);
  if (denied.length) said.push(`It may not ${listed(denied, "or")}.`);
  said.push(said.length ? "Everything else it does unasked, in its sandbox." : "It does everything unasked.");
  return said.join(" ");
}

function listed(words, last) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} ${last} ${words.at(-1)}`;
}
