// Characters that nobody sees, and that make something else of what is seen, spelt out as `agents` does on a terminal.

// Controls but tab and line breaks; what sets the direction of text, or overrides it.
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
const EACH = new RegExp(UNSEEN.source, "g");

/** The text with those as `\\u202e` or `\\x1b`. */
export function spelt(text) {
  return UNSEEN.test(text) ? text.replace(EACH, name) : text;
}

function name(character) {
  const code = character.charCodeAt(0);
  return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}
