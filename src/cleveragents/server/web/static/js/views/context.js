// The context explorer: the code relevant to a question, and the reason for each fragment.

import { html, useState } from "../ui.js";
import { all, post } from "../api.js";
import { Badge, Button, Code, Empty, ErrorBox, Icon, Loaded, Loading, PageHead, Select, TextArea, TextField } from "../components.js";
import { count, counted, duration } from "../format.js";
import { useLoad } from "../load.js";
import { useSession } from "../session.js";
import { FirstStart } from "./first_start.js";

export function ContextExplorer() {
  const { may } = useSession();
  if (may("operator")) return html`<${ForOperators} />`;
  return html`
    <${PageHead} title="Context" />
    <${Empty} title="Operators only" icon="search">
      <p>You need the operator role in a project. Ask an admin of the project.</p>
    <//>
  `;
}

function ForOperators() {
  const { mayIn } = useSession();
  const load = useLoad(async (signal) => (await all("/resources", {}, { signal })).filter((one) => mayIn(one.project, "operator")));
  return html`
    <${PageHead} title="Context" lead="Find the code relevant to a question, as a plan does." />
    <${Loaded} load=${load} what="Loading repositories">
      ${(resources) => (resources.length ? html`<${Explorer} resources=${resources} />` : html`<${FirstStart} always onAdded=${load.reload} />`)}
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
    setAnswer(null); // never show an old answer below a new question
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
        <${TextField} label="Max tokens" type="number" min="64" value=${asked.budget} onInput=${(budget) => set({ budget })} />
        <${Button} kind="primary" type="submit" busy=${busy} icon="search">Search<//>
      </div>
    </form>
    <div aria-live="polite" aria-busy=${busy ? "true" : "false"}>
      ${error && html`<${ErrorBox} error=${error} again=${ask} />`}
      ${busy && html`<${Loading} what="Searching. The first search in a repository builds its index" />`}
      ${answer && !busy && html`<${Answer} answer=${answer} />`}
      ${!answer && !busy && !error &&
      html`<${Empty} title="No question yet" icon="search">
        <p>Enter a sentence, an error message or a whole issue. The search uses no model and no network.</p>
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
      ${fragments.length === 0 && html`<${Empty} title="No fragments found"><p>Try names from the code or the text of an error message.</p><//>`}
      <div class="fragments">
        ${fragments.map((one, at) => html`<${Fragment} key=${`${one.path}:${at}`} one=${one} rank=${at + 1} />`)}
      </div>
    </section>
    <aside class="stack" aria-label="Search details">
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
    ${one.truncated && html`<span class="small faint">results cut</span>`}
  </li>`;
}
