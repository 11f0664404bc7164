// What the server's validation says, in words for who fills in a form.

const NAMES = "Letters, digits and ._- in lower case; the first is a letter or a digit.";

const WORDS = [
  [/^should be letters, digits and \._-/, NAMES],
  [/^should not be empty$/, "This must not be empty."],
  [/have at least 1 character/, "This must not be empty."],
  [/^(?:\w+ \(\w+\) )?is missing$/, "This is needed."],
  [/^(?:\w+ )?should be (.+)$/s, "It should be $1."],
  [/have at most (\d+) characters/, "At most $1 characters."],
];

/** One problem of one field. What is not known stays as it is. */
export function wordsOf(problem) {
  for (const [pattern, words] of WORDS) {
    const found = pattern.exec(problem);
    if (found) return words.replace("$1", found[1] ?? "");
  }
  return problem;
}

/** Of a refused form: [{field: words}, what concerns none of `fields`, or null]. */
export function byField(problem, fields) {
  const found = {};
  for (const one of problem?.errors ?? []) {
    const name = one.where?.[0] === "body" ? one.where.slice(1).join(".") : "";
    if (fields.includes(name)) found[name] = wordsOf(one.problem);
  }
  return [found, problem && !Object.keys(found).length ? problem : null];
}
