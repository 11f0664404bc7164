// The context explorer: what of a repository matters for a question, and why each piece was chosen.

import { html, useState } from "../ui.js";
import { all, post } from "../api.js";
import { Badge, Button, Code, Empty, ErrorBox, Icon, Loaded, Loading, PageHead, Select, TextArea, TextField } from "../components.js";
import { count, counted, duration } from "../format.js";
import { useLoad } from "../load.js";
import { useSession } from "../session.js";
import { NoResources } from "./no_resources.js";

export function ContextExplorer() {
  const { may } = useSession();
  if (may("operator")) return html`<${ForOperators} />`;
  return html`
    <${PageHead} title="Context" />
    <${Empty} title="For operators" icon="search">
      <p>Asking a repository needs the role operator in its project. An admin of the project can give it to you.</p>
    <//>
  `;
}

function ForOperators() {
  const { mayIn } = useSession();
  const load = useLoad(async (signal) => (await all("/resources", {}, { signal })).filter((one) => mayIn(one.project, "operator")));
  return html`
    <${PageHead} title="Context" lead="Ask a question as a plan would; see which pieces of the repository answer it, and who found them." />
    <${Loaded} load=${load} what="Reading repositories">
      ${(resources) => (resources.length ? html`<${Explorer} resources=${resources} />` : html`<${NoResources} />`)}
    <//>
  `;
}

function Explorer({ resources }) {
  const [asked, setAsked] = useState({ question: "", resource: resources[0].name, budget: "8000" });
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const set = (entry) => setAsked((before) => ({ ...before, ...entry }));
  const ask = async (event) => {
    event.preventDefault();
    if (!asked.question.trim() || busy) return;
    setBusy(true);
    setError(null);
    setAnswer(null); // what is shown belongs to the question above it
    try {
      const body = { question: asked.question, resource: asked.resource };
      if (asked.budget) body.budget = Number(asked.budget);
      setAnswer(await post("/context", body));
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  const sendOnEnter = (event) => {
    if (event.key === "Enter" && !event.shiftKey) ask(event);
  };
  return html`
    <form class="ask" onSubmit=${ask}>
      <${TextArea}
        label="Question"
        rows="2"
        autofocus
        placeholder="Where is the session cookie signed?"
        value=${asked.question}
        onInput=${(question) => set({ question })}
        onKeyDown=${sendOnEnter}
      />
      <div class="ask-row">
        <${Select} label="Repository" value=${asked.resource} onInput=${(resource) => set({ resource })} options=${resources.map((one) => one.name)} />
        <${TextField} label="Tokens at most" type="number" min="64" value=${asked.budget} onInput=${(budget) => set({ budget })} />
        <${Button} kind="primary" type="submit" busy=${busy} icon="search">Ask<//>
      </div>
    </form>
    <div aria-live="polite" aria-busy=${busy ? "true" : "false"}>
      ${error && html`<${ErrorBox} error=${error} again=${ask} />`}
      ${busy && html`<${Loading} what="Looking; the first question in a repository builds its index" />`}
      ${answer && !busy && html`<${Answer} answer=${answer} />`}
      ${!answer && !busy && !error &&
      html`<${Empty} title="Ask something" icon="search">
        <p>A sentence, an error message, a whole issue. No model and no network is used.</p>
      <//>`}
    </div>
  `;
}

function Answer({ answer }) {
  const { fragments } = answer;
  return html`<div class="found">
    <section aria-label="Fragments">
      <div class="section-head">
        <h2>${counted(fragments.length, "fragment")}</h2>
        <span class="small faint">${count(answer.tokens)} of ${count(answer.budget)} tokens, ${duration(answer.took_ms / 1000)}</span>
      </div>
      ${fragments.length === 0 && html`<${Empty} title="Nothing was found"><p>Other words may help; names and error messages most.</p><//>`}
      <div class="fragments">
        ${fragments.map((one, at) => html`<${Fragment} key=${`${one.path}:${at}`} one=${one} rank=${at + 1} />`)}
      </div>
    </section>
    <aside class="stack" aria-label="How it was found">
      ${answer.notes.length > 0 &&
      html`<section>
        <h2>Notes</h2>
        <div class="notes">${answer.notes.map((note) => html`<p class="note" key=${note}>${note}</p>`)}</div>
      </section>`}
      <section>
        <h2>Strategies</h2>
        <ul class="strategies">${answer.strategies.map((one) => html`<${Strategy} key=${one.name} one=${one} />`)}</ul>
      </section>
    </aside>
  </div>`;
}

function Fragment({ one, rank }) {
  return html`<details class="fragment card" open=${rank <= 2}>
    <summary>
      <span class="fragment-rank">${rank}</span>
      <span class="fragment-path">${one.path}${one.lines ? `:${one.lines[0]}–${one.lines[1]}` : ""}</span>
      <span class="small faint number">${one.score.toFixed(3)} · ${one.depth} · ${counted(one.tokens, "token")}</span>
      <span class="fragment-why">
        ${one.found_by.map((why, at) => html`<span class="chip" key=${at}><b>${why.strategy}</b> ${why.signal} ${why.score.toFixed(2)}</span>`)}
      </span>
    </summary>
    <${Code} label=${`Text of ${one.path}`}>${one.text}<//>
  </details>`;
}

const LOOKS = { used: "good", empty: "off", late: "need", timed_out: "need", broken: "bad", failed: "bad", refused: "wait" };

function Strategy({ one }) {
  return html`<li>
    <span class="name">${one.name}</span>
    <span class="faint number">${one.found} found · ${one.ms} ms</span>
    <${Badge} tone=${LOOKS[one.status] ?? "need"}>${one.status.replace("_", " ")}<//>
    ${one.error && html`<span class="why"><${Icon} name="tone-bad" /> ${one.error}</span>`}
    ${one.truncated && html`<span class="small faint">more than is kept</span>`}
  </li>`;
}
