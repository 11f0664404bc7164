// Hunks as rows of the side-by-side view, and the changed part within a pair of lines.

const LONGEST = 500;

// Rows {left, right}: removed lines beside the lines that replace them.
export function sideBySide(lines) {
  const rows = [];
  let removed = [];
  let added = [];
  const flush = () => {
    for (let place = 0; place < Math.max(removed.length, added.length); place += 1) {
      rows.push({ left: removed[place] || null, right: added[place] || null });
    }
    removed = [];
    added = [];
  };
  for (const line of lines) {
    if (line.kind === "remove") {
      if (added.length) flush();
      removed.push(line);
    } else if (line.kind === "add") {
      added.push(line);
    } else {
      flush();
      rows.push({ left: line, right: line });
    }
  }
  flush();
  return rows;
}

// A map from each line of a replaced pair to [before, changed, after] of its text.
export function changedParts(lines) {
  const parts = new Map();
  for (const { left, right } of sideBySide(lines)) {
    if (left && right && left !== right && left.text.length + right.text.length <= LONGEST) {
      const found = between(left.text, right.text);
      if (found) {
        parts.set(left, found[0]);
        parts.set(right, found[1]);
      }
    }
  }
  return parts;
}

// Two texts cut at their common prefix and suffix; null if they have too little in common.
function between(old, fresh) {
  const most = Math.min(old.length, fresh.length);
  let start = 0;
  while (start < most && old[start] === fresh[start]) start += 1;
  let end = 0;
  while (end < most - start && old[old.length - 1 - end] === fresh[fresh.length - 1 - end]) end += 1;
  const common = (old.slice(0, start) + old.slice(old.length - end)).trim().length;
  if (common < 3) return null;
  const cut = (text) => [text.slice(0, start), text.slice(start, text.length - end), text.slice(text.length - end)];
  return [cut(old), cut(fresh)];
}

// [added, removed] lines of a file, counted from its hunks if the server did not send them.
export function countsOf(file) {
  if (Number.isInteger(file.added) || Number.isInteger(file.removed)) {
    return [file.added || 0, file.removed || 0];
  }
  const lines = (file.hunks || []).flatMap((hunk) => hunk.lines);
  return ["add", "remove"].map((kind) => lines.filter((line) => line.kind === kind).length);
}
