// The field for a command: one line as in a shell, or one argument per line, with a preview of the arguments.

import { html, useState } from "../ui.js";
import { TextArea, TextField } from "../components.js";
import { joinWords, splitWords } from "../shlex.js";

/** `value`: the arguments. `onChange(words)`, or `onChange({unfinished: why})` while the line cannot be split. */
export function CommandLine({ label, value, onChange, error, optional }) {
  const [text, setText] = useState(() => joinWords(Array.isArray(value) ? value : []));
  const [apart, setApart] = useState(false);
  const { words, problem, unheeded } = apart ? { words: value ?? [], unheeded: new Set() } : splitWords(text);
  const type = (typed) => {
    setText(typed);
    const found = splitWords(typed);
    onChange(found.problem ? { unfinished: found.problem } : found.words.length ? found.words : "");
  };
  const change = () => {
    if (apart) setText(joinWords(Array.isArray(value) ? value : []));
    else onChange(words.length ? words : "");
    setApart(!apart);
  };
  const shared = { label, optional, error, class: "mono", autocapitalize: "off", spellcheck: false };
  return html`<div class="command-line">
    ${apart
      ? html`<${TextArea} ...${shared} rows="4" hint="The program, then one argument per line."
          value=${Array.isArray(value) ? value.join("\n") : ""} onInput=${(typed) => onChange(typed === "" ? "" : typed.split("\n"))} />`
      : html`<${TextField} ...${shared} autocomplete="off" hint="For example: sed -i s/a/b/ file.py" value=${text} onInput=${type} />`}
    ${Array.isArray(words) && words.length > 0 &&
    html`<ol class="chips" aria-label="Arguments">${words.map((word, at) => html`<li key=${at} class="chip mono">${word || "(empty)"}</li>`)}</ol>`}
    ${problem && !error && html`<p class="hint">${problem}</p>`}
    ${unheeded.size > 0 &&
    html`<p class="hint">
      No shell runs this command: ${[...unheeded].join(" ")} is passed as text. For shell syntax use${" "}
      <code>sh -c '…'</code>, or quote the characters.
    </p>`}
    <label class="small"><input type="checkbox" checked=${apart} onChange=${change} /> One argument per line</label>
  </div>`;
}
