// Splits a command line into arguments and joins arguments to a command line, with the quoting rules of a shell.
// No shell is involved: other shell syntax ($HOME, *, |, >) has no effect and is reported as `unheeded`.

const SPACE = /\s/;
const IN_DOUBLE = new Set(['"', "\\", "$", "`"]);
const PLAIN = /^[\w@%+=:,./-]+$/;
const MEANT_FOR_A_SHELL = /[|&;<>()$`*?~]/;

/** {words, problem, unheeded}: `problem` explains an unfinished line; `unheeded` are unquoted shell characters. */
export function splitWords(text) {
  const words = [];
  const unheeded = new Set();
  let word = null;
  let quote = null;
  for (let at = 0; at < text.length; at += 1) {
    const one = text[at];
    if (quote === "'") {
      if (one === "'") quote = null;
      else word += one;
    } else if (one === "\\") {
      const next = text[at + 1];
      if (next === undefined) return { words, unheeded, problem: "The line ends with a backslash." };
      at += 1;
      if (next === "\n") continue; // the line goes on
      word = (word ?? "") + (quote && !IN_DOUBLE.has(next) ? `\\${next}` : next);
    } else if (quote) {
      if (one === quote) quote = null;
      else word += one;
    } else if (one === "'" || one === '"') {
      quote = one;
      word ??= "";
    } else if (SPACE.test(one)) {
      if (word !== null) words.push(word);
      word = null;
    } else {
      if (MEANT_FOR_A_SHELL.test(one)) unheeded.add(one);
      word = (word ?? "") + one;
    }
  }
  if (word !== null) words.push(word);
  return { words, unheeded, problem: quote ? `Missing closing quote (${quote}).` : null };
}

/** The arguments as one line, quoted where needed. */
export function joinWords(words) {
  return words.map((word) => (PLAIN.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(" ");
}
