// A command for a plan to run: one line as in a shell, or one word per line; its words are shown as they will be.

import { html, useState } from "../ui.js";
import { TextArea, TextField } from "../components.js";
import { joinWords, splitWords } from "../shlex.js";

/** `value`: the words. `onChange(words)`, or `onChange({unfinished: why})` while they cannot be told. */
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
      ? html`<${TextArea} ...${shared} rows="4" hint="The program, then each of its arguments on a line of its own."
          value=${Array.isArray(value) ? value.join("\n") : ""} onInput=${(typed) => onChange(typed === "" ? "" : typed.split("\n"))} />`
      : html`<${TextField} ...${shared} autocomplete="off" hint="For example: sed -i s/a/b/ file.py" value=${text} onInput=${type} />`}
    ${Array.isArray(words) && words.length > 0 &&
    html`<ol class="chips" aria-label="Its words">${words.map((word, at) => html`<li key=${at} class="chip mono">${word || "(empty)"}</li>`)}</ol>`}
    ${problem && !error && html`<p class="hint">${problem}</p>`}
    ${unheeded.size > 0 &&
    html`<p class="hint">
      No shell runs it: ${[...unheeded].join(" ")} would be taken as they are. Where you want what a shell does, write${" "}
      <code>sh -c '…'</code>, or quote them.
    </p>`}
    <label class="small"><input type="checkbox" checked=${apart} onChange=${change} /> One word per line</label>
  </div>`;
}
