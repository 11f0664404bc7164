// Markdown as elements, for the texts of agents.
//
// marked only splits the text into tokens; every element is made here, so that no HTML of an agent reaches the page.
// Links lead to the web alone. A text that is too long or nested too deeply is shown as it is.

import { createContext, h, html, useContext, useEffect, useState } from "../ui.js";

const LONGEST = 16 * 1024;
const MOST_MARKS = 400;
const LONGEST_WORD = 500;
const DEEPEST = 40;
const REFERENCE = /^(?=[^:]*[./])[^\s:]+:\d+(-\d+)?$/; // src/session.py:12
const WEB = /^(https?:|mailto:)/i;

/** A function that opens a reference such as `src/session.py:12`; null where references cannot be opened. */
export const ReferenceContext = createContext(null);

function Reference({ text }) {
  const open = useContext(ReferenceContext);
  if (!open) return html`<code class="p-reference">${text}</code>`;
  return html`<button type="button" class="p-reference" title="Show these lines" onClick=${() => open(text)}><code>${text}</code></button>`;
}

/** The text as elements. The parser is loaded with the first text. */
export function Markdown({ text }) {
  const [tokens, setTokens] = useState(null);
  useEffect(() => {
    let wanted = true;
    split(text).then((found) => wanted && setTokens(found));
    return () => (wanted = false);
  }, [text]);
  if (!tokens) return html`<pre class="p-markdown-raw">${text}</pre>`;
  return html`<div class="p-markdown">${blocks(tokens, 0)}</div>`;
}

/** The tokens of the text; null if it has to be shown as it is. */
export async function split(text) {
  if (text.length > LONGEST || isCostly(text)) return null;
  try {
    const { lexer } = await import("../../vendor/marked.esm.js");
    const tokens = lexer(text);
    blocks(tokens, 0);
    return tokens;
  } catch {
    return null; // nested too deeply
  }
}

// marked takes quadratic time for many emphasis marks or very long words; a hostile answer would freeze the page.
const isCostly = (text) =>
  (text.match(/[*_~[\]]/g) || []).length > MOST_MARKS || text.split(/\s+/).some((word) => word.length > LONGEST_WORD);

const blocks = (tokens, depth) => (tokens || []).map((token) => block(token, depth + 1));
const spans = (tokens, depth) => (tokens || []).map((token) => span(token, depth + 1));

function block(token, depth) {
  if (depth > DEEPEST) throw new RangeError("nested too deeply");
  switch (token.type) {
    case "space":
      return null;
    case "heading":
      // The page has its own headings above these.
      return h(`h${Math.min(token.depth + 2, 6)}`, null, spans(token.tokens, depth));
    case "paragraph":
      return html`<p>${spans(token.tokens, depth)}</p>`;
    case "code":
      return html`<pre><code>${token.text}</code></pre>`;
    case "blockquote":
      return html`<blockquote>${blocks(token.tokens, depth)}</blockquote>`;
    case "hr":
      return html`<hr />`;
    case "list":
      return h(
        token.ordered ? "ol" : "ul",
        token.ordered && token.start ? { start: token.start } : null,
        token.items.map((item) => html`<li>${blocks(item.tokens, depth)}</li>`),
      );
    case "table":
      return table(token, depth);
    case "text":
      return token.tokens ? spans(token.tokens, depth) : html`${token.text}`;
    default:
      return html`<p>${token.raw}</p>`;
  }
}

function table(token, depth) {
  const cells = (row, name) => row.map((cell) => h(name, null, spans(cell.tokens, depth)));
  return html`<table>
    <thead><tr>${cells(token.header, "th")}</tr></thead>
    <tbody>${token.rows.map((row) => html`<tr>${cells(row, "td")}</tr>`)}</tbody>
  </table>`;
}

function span(token, depth) {
  if (depth > DEEPEST) throw new RangeError("nested too deeply");
  switch (token.type) {
    case "strong":
      return html`<strong>${spans(token.tokens, depth)}</strong>`;
    case "em":
      return html`<em>${spans(token.tokens, depth)}</em>`;
    case "del":
      return html`<del>${spans(token.tokens, depth)}</del>`;
    case "codespan":
      return REFERENCE.test(token.text) ? html`<${Reference} text=${token.text} />` : html`<code>${token.text}</code>`;
    case "br":
      return html`<br />`;
    case "link":
      if (!WEB.test(token.href)) return html`${token.raw}`;
      return html`<a href=${token.href} title=${token.href} target="_blank" rel="noopener noreferrer nofollow"
        >${spans(token.tokens, depth)}</a
      >`;
    case "escape":
      return html`${token.text}`;
    case "text":
      return token.tokens ? spans(token.tokens, depth) : html`${token.text}`;
    default:
      return html`${token.raw}`; // HTML and images: as they were written
  }
}
