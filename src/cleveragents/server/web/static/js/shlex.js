// A command as one types it in a shell, split into its words, and words written so that they split into the same.
// Nothing is run by a shell: what else a shell would do ($HOME, *, |, >) is not done, and `unheeded` names it.

const SPACE = /\s/;
const IN_DOUBLE = new Set(['"', "\\", "$", "`"]);
const PLAIN = /^[\w@%+=:,./-]+$/;
const MEANT_FOR_A_SHELL = /[|&;<>()$`*?~]/;

/** {words, problem, unheeded}: `problem` says why it is not finished; `unheeded` are characters of a shell's own. */
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
      if (next === undefined) return { words, unheeded, problem: "It ends with a backslash that belongs to nothing." };
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
  return { words, unheeded, problem: quote ? `A quote (${quote}) is not closed.` : null };
}

/** The words as one line, quoted where they must be. */
export function joinWords(words) {
  return words.map((word) => (PLAIN.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(" ");
}
