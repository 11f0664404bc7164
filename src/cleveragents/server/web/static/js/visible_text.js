// Spells out invisible and direction-changing characters, as `agents` does on a terminal.

// Control characters except tab and line breaks, direction marks, and characters without width.
const UNSEEN = /(?![\t\n\r])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;
const EACH = new RegExp(UNSEEN.source, "gu");

/** The text with these characters as `\\u202e` or `\\x1b`. */
export function escapeInvisible(text) {
  return UNSEEN.test(text) ? text.replace(EACH, name) : text;
}

function name(character) {
  const code = character.codePointAt(0);
  const [letter, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${letter}${code.toString(16).padStart(digits, "0")}`;
}
