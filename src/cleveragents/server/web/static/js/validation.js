// Validation errors of the server as messages of a form.

const NAMES = "Use lower-case letters, digits and ._-, starting with a letter or a digit.";

const WORDS = [
  [/^should be lower-case letters, digits and \._-/, NAMES],
  [/^should not be empty$/, "Must not be empty."],
  [/have at least 1 character/, "Must not be empty."],
  [/^(?:\w+ \(\w+\) )?is missing$/, "Required."],
  [/^(?:\w+ )?should be (.+)$/s, "Must be $1."],
  [/have at most (\d+) characters/, "At most $1 characters."],
];

/** The message for a problem; an unknown problem is returned unchanged. */
export function wordsOf(problem) {
  for (const [pattern, words] of WORDS) {
    const found = pattern.exec(problem);
    if (found) return words.replace("$1", found[1] ?? "");
  }
  return problem;
}

/** [{field: message}, problem]: the errors by field, or the whole problem if it concerns none of `fields`. */
export function byField(problem, fields) {
  const found = {};
  for (const one of problem?.errors ?? []) {
    const name = one.where?.[0] === "body" ? one.where.slice(1).join(".") : "";
    if (fields.includes(name)) found[name] = wordsOf(one.problem);
  }
  return [found, problem && !Object.keys(found).length ? problem : null];
}
