// Terminal output as plain text: escape sequences removed, overwritten lines in their final form.

// CSI sequences, choices of a character set, OSC sequences up to their end, other escapes, control characters.
const ESCAPES =
  /\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]+[0-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]/g;

export const stripped = (text) => text.replace(ESCAPES, "").replace(/\x1b/g, "");

// A bounded list of lines; the last one may still grow. A carriage return restarts its line, as in a terminal.
export class Lines {
  constructor(most) {
    this._most = most;
    this._next = 1;
    this.lines = [];
    this.dropped = 0;
    this._open = null;
    this.node = null;
  }

  // Adds text of a kind. Text of another kind starts a new line.
  add(kind, text) {
    const clean = stripped(text).replace(/\r\n/g, "\n");
    if (this._open && this._open.kind !== kind) this._open = null;
    clean.split("\n").forEach((part, place, parts) => {
      if (place > 0) this._open = null;
      if (part !== "" || place < parts.length - 1) this._write(kind, part);
    });
    if (this.lines.length > this._most) {
      this.dropped += this.lines.length - this._most;
      this.lines = this.lines.slice(-this._most);
    }
  }

  _write(kind, part) {
    if (!this._open) {
      this._open = { key: this._next, kind, text: "", raw: "" };
      this._next += 1;
      this.lines.push(this._open);
    }
    // A carriage return at the end takes effect with the next text.
    const raw = this._open.raw + part;
    const written = raw.replace(/\r+$/, "");
    const text = written.slice(written.lastIndexOf("\r") + 1);
    const line = { ...this._open, text, raw: raw === written ? text : `${text}\r` };
    this.lines[this.lines.length - 1] = line;
    this._open = line;
  }
}
