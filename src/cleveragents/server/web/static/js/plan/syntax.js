// The syntax of code as coloured tokens, for diffs.
//
// highlight.js only finds the tokens; their texts become text nodes, so that no HTML of a repository reaches the page.
// The library and each language are loaded with the first diff that needs them. Long lines and hunks stay plain.

import { useEffect, useState } from "../ui.js";

const LONGEST = 20_000;
const LONGEST_LINE = 1000;
const PLACE = "../../vendor/highlight";
const LANGUAGES = {
  python: "py pyi",
  javascript: "js mjs cjs jsx",
  typescript: "ts mts cts tsx",
  json: "json jsonc",
  yaml: "yaml yml",
  xml: "xml html htm svg vue",
  css: "css",
  bash: "sh bash zsh",
  go: "go",
  rust: "rs",
  java: "java",
  c: "c h",
  cpp: "cpp cc cxx hpp hh",
  csharp: "cs",
  ruby: "rb",
  php: "php",
  sql: "sql",
  markdown: "md markdown",
  ini: "toml ini cfg",
  dockerfile: "dockerfile",
  makefile: "makefile mk",
  kotlin: "kt kts",
  swift: "swift",
  lua: "lua",
};
const BY_ENDING = new Map(Object.entries(LANGUAGES).flatMap(([name, ends]) => ends.split(" ").map((end) => [end, name])));
const loaded = new Map();

/** The language of a path, by the end of its name; null if unknown. */
export function languageOf(path) {
  return BY_ENDING.get((path ?? "").split("/").at(-1).split(".").at(-1).toLowerCase()) ?? null;
}

/** A map from each line of a diff to its tokens [[text, class], …]; empty until the language is loaded. */
export function useSyntax(lines, path) {
  const [found, setFound] = useState(new Map());
  useEffect(() => {
    let wanted = true;
    tokensOf(lines, languageOf(path)).then((tokens) => wanted && setFound(tokens));
    return () => (wanted = false);
  }, [lines, path]);
  return found;
}

/** The tokens of the lines. Both sides of the diff are read as texts of their own. */
export async function tokensOf(lines, language) {
  const found = new Map();
  const library = language && (await load(language));
  if (!library) return found;
  for (const side of ["remove", "add"]) {
    const mine = lines.filter((line) => line.kind === "context" || line.kind === side);
    const text = mine.map((line) => line.text).join("\n");
    if (text.length > LONGEST || mine.some((line) => line.text.length > LONGEST_LINE)) continue;
    const rows = rowsOf(library.highlight(text, { language, ignoreIllegals: true })._emitter.rootNode);
    // A row that lost or gained a character would show another text than the file has.
    mine.forEach((line, at) => {
      if (rows[at]?.map(([piece]) => piece).join("") === line.text) found.set(line, rows[at]);
    });
  }
  return found;
}

function load(language) {
  if (!loaded.has(language)) {
    const both = Promise.all([import(`${PLACE}/core.min.js`), import(`${PLACE}/${language}.min.js`)]);
    const ready = both.then(([core, grammar]) => {
      core.default.registerLanguage(language, grammar.default);
      return core.default;
    });
    loaded.set(language, ready.catch(() => loaded.delete(language) && null)); // without colours; the next diff retries
  }
  return loaded.get(language);
}

// The tree of tokens as lines of [text, class].
function rowsOf(root) {
  const rows = [[]];
  const walk = (node, scope) => {
    if (typeof node === "string") {
      node.split("\n").forEach((piece, at) => {
        if (at) rows.push([]);
        if (piece) rows.at(-1).push([piece, scope]);
      });
      return;
    }
    const own = node.scope && !node.scope.startsWith("language:") ? `hl-${node.scope.split(".")[0]}` : scope;
    for (const child of node.children) walk(child, own);
  };
  walk(root, "");
  return rows;
}
