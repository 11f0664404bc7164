// The message field of a session. A message that could not be sent stays in the field, also after a reload of the page.

import { html, useEffect, useRef, useState } from "../ui.js";
import { newKey, post } from "../api.js";
import { Button, ErrorBox, TextArea } from "../components.js";
import { useKeys } from "../keys.js";

const SENDS = "Enter sends, Shift+Enter adds a line.";
const PREFIX = "cleveragents.draft.";
const keyOf = (id) => `${PREFIX}${id}`;
const TYPES = "image/png,image/jpeg,image/gif,image/webp,application/pdf";
const MOST_FILES = 5;
const MOST_BYTES = 10_000_000;

/** Returns why these files cannot be attached, in the words of the server; null if they can. */
function refusal(files) {
  if (files.length > MOST_FILES) return "a question has at most 5 attachments";
  if (files.reduce((sum, file) => sum + file.size, 0) <= MOST_BYTES) return null;
  return "the attachments of a question have at most 10,000,000 bytes together";
}

/** Returns the file as the API takes it. */
function encodedFile(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done({ name: file.name.slice(-255), content: reader.result.split(",")[1] ?? "" });
    reader.onerror = () => failed(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

/** Keeps the text of an unsent message for the session with this id. */
export function keepDraft(id, text) {
  if (text) sessionStorage.setItem(keyOf(id), text);
  else sessionStorage.removeItem(keyOf(id));
}

/** Removes all unsent messages: the next user of this tab must not see them. */
export function forgetDrafts() {
  for (const name of Object.keys(sessionStorage)) if (name.startsWith(PREFIX)) sessionStorage.removeItem(name);
}

/** `running`: a turn runs, which `stop` ends. `sent` is called with the new turn. */
export function Composer({ id, callsTools, running, stop, stopping, sent }) {
  const [text, setText] = useState(() => sessionStorage.getItem(keyOf(id)) ?? "");
  const [readOnly, setReadOnly] = useState(false);
  const [files, setFiles] = useState([]);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const place = useRef(null);
  const request = useRef({ body: "", key: "" });
  useKeys({ m: () => place.current?.querySelector("textarea").focus() });
  useEffect(() => keepDraft(id, text), [text]);
  const send = async (event) => {
    event?.preventDefault();
    if (busy || running || !text.trim()) return;
    setBusy(true);
    setError(null);
    try {
      const body = { text, read_only: readOnly };
      if (files.length) body.attachments = await Promise.all(files.map(encodedFile));
      // The same message has the same key: if the response was lost, a second attempt sends nothing twice.
      const same = JSON.stringify(body);
      if (request.current.body !== same) request.current = { body: same, key: newKey() };
      const turn = await post(`/conversations/${id}/turns`, body, { key: request.current.key });
      request.current = { body: "", key: "" };
      setText((now) => (now === text ? "" : now));
      setFiles((now) => (now === files ? [] : now));
      sent(turn);
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  const attach = (event) => {
    const chosen = [...files, ...event.currentTarget.files];
    event.currentTarget.value = "";
    const problem = refusal(chosen);
    setError(problem && { heading: "Files not attached", message: problem });
    if (!problem) setFiles(chosen);
  };
  const typed = (event) => {
    if (event.key === "Escape") event.currentTarget.blur();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  return html`<form class="s-composer" ref=${place} onSubmit=${send} aria-label="Send a message">
    ${error && html`<${ErrorBox} error=${error} title=${error.heading ?? "Message not sent"} />`}
    <${TextArea} label="Message" rows="2" maxlength="100000" placeholder="Ask a question, or say what to change"
      hint=${callsTools ? SENDS : `${SENDS} This model starts no plans by itself: /plan GOAL starts one.`} value=${text} onInput=${setText} onKeyDown=${typed} />
    ${files.length > 0 &&
    html`<p class="p-row soft" role="status">
      Attached: ${files.map((file) => file.name).join(", ")}
      <${Button} small onClick=${() => setFiles([])}>Detach<//>
    </p>`}
    <div class="p-row s-composer-row">
      <label class="p-check"><input type="checkbox" checked=${readOnly} onChange=${() => setReadOnly(!readOnly)} />Answer only, start no plan</label>
      <label class="button s-attach">
        Attach<input type="file" class="unseen" aria-label="Attach images or PDFs" multiple accept=${TYPES} onChange=${attach} />
      </label>
      ${running && html`<${Button} icon="stop" busy=${stopping} onClick=${stop}>Stop<//>`}
      <${Button} kind="primary" type="submit" icon="right" busy=${busy} disabled=${running || !text.trim()}>Send<//>
    </div>
  </form>`;
}
