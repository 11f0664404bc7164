// The sessions: conversations with an assistant about a repository. A message starts a new one.

import { html, useRef, useState } from "../ui.js";
import { all, get, newKey, post } from "../api.js";
import { Badge, Button, Empty, ErrorBox, Id, Link, Loaded, PageHead, Select, TextArea, TextField, toastProblem, When } from "../components.js";
import { counted } from "../format.js";
import { useLoad } from "../load.js";
import { navigate, setQuery, useLocation } from "../router.js";
import { useSession } from "../session.js";
import { useEvents } from "../stream.js";
import { byField } from "../validation.js";
import { FirstStart } from "../views/first_start.js";
import { keepDraft } from "./composer.js";
import { stateOf, titleOf } from "./load.js";

const PAGE = 50;

export function Sessions() {
  const { may, mayIn } = useSession();
  const known = useLoad(async (signal) => {
    const lists = ["/resources", "/models", "/profiles"].map((path) => all(path, {}, { signal }));
    const [resources, models, profiles, about] = await Promise.all([...lists, get("/about", {}, { signal })]);
    return { resources, profiles, models: models.filter((one) => one.key !== "missing"), model: about.default_model };
  });
  const own = (known.data?.resources ?? []).filter((one) => mayIn(one.project, "operator"));
  return html`<div>
    <${PageHead} title="Sessions" lead="Ask about a repository, or say what to change. A change becomes a plan, which you review before it is applied." />
    ${may("operator") &&
    html`<div class="s-new"><${Loaded} load=${known} what="Loading the form">
      ${(found) => (own.length ? html`<${NewSession} ...${found} resources=${own} />` : html`<${FirstStart} always onAdded=${known.reload} />`)}
    <//></div>`}
    <${List} resources=${known.data?.resources ?? []} />
  </div>`;
}

function NewSession({ resources, models, profiles, model: usual }) {
  const [draft, setDraft] = useState({ resource: resources[0].name, text: "", model: "", profile: "", usd: "" });
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const request = useRef({ body: "", key: "" });
  const set = (name) => (value) => setDraft((before) => ({ ...before, [name]: value }));
  const [wrong, general] = byField(error, ["resource", "model", "profile", "limits.usd"]);
  const start = async (event) => {
    event?.preventDefault();
    if (busy || !draft.text.trim()) return;
    const body = { resource: draft.resource, model: draft.model.trim() || null, profile: draft.profile || null, limits: draft.usd ? { usd: Number(draft.usd) } : null };
    const same = JSON.stringify(body);
    if (request.current.body !== same) request.current = { body: same, key: newKey() };
    setBusy(true);
    setError(null);
    try {
      const made = await post("/conversations", body, { key: request.current.key });
      // The message stays in the field of the new session if it cannot be sent.
      keepDraft(made.id, draft.text);
      const sent = await post(`/conversations/${made.id}/turns`, { text: draft.text }, { key: `${request.current.key}-1` }).catch(toastProblem);
      if (sent) keepDraft(made.id, "");
      navigate(`/sessions/${made.id}`);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  const typed = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      start();
    }
  };
  return html`<form class="card card-body form-part" onSubmit=${start} aria-label="New session">
    ${general && html`<${ErrorBox} error=${general} title="Session not started" />`}
    <${TextArea} label="Message" rows="3" maxlength="100000" placeholder="Where is the session cookie signed?" hint="Enter sends, Shift+Enter adds a line."
      value=${draft.text} onInput=${set("text")} onKeyDown=${typed} />
    <div class="s-new-row">
      <${Select} label="Repository" value=${draft.resource} onInput=${set("resource")} error=${wrong.resource}
        options=${resources.map((one) => ({ value: one.name, label: `${one.project} / ${one.name}` }))} />
      <${TextField} label="Model" optional=${Boolean(usual)} list="models" placeholder=${usual || "PROVIDER/NAME"} value=${draft.model} onInput=${set("model")} error=${wrong.model} />
      <${Select} label="Profile of plans" value=${draft.profile} onInput=${set("profile")} error=${wrong.profile}
        options=${[{ value: "", label: "Default" }, ...profiles.map((one) => one.name)]} />
      <${TextField} label="Dollars" optional type="number" min="0" step="0.01" inputmode="decimal" placeholder="no limit" value=${draft.usd} onInput=${set("usd")} error=${wrong["limits.usd"]} />
      <datalist id="models">${models.map((one) => html`<option key=${one.model} value=${one.model}></option>`)}</datalist>
      <${Button} kind="primary" type="submit" icon="right" busy=${busy} disabled=${!draft.text.trim()}>Send<//>
    </div>
    ${!usual && html`<p class="soft small">The server has no default model. Name one.</p>`}
  </form>`;
}

function List({ resources }) {
  const { query } = useLocation();
  const resource = query.get("resource") ?? "";
  const [most, setMost] = useState(PAGE);
  const load = useLoad((signal) => get("/conversations", { resource, limit: most }, { signal }), [resource, most]);
  useEvents((event) => event.type === "reset" || /^(conversation|turn)\./.test(event.type), load.reload, [load.reload]);
  return html`<section class="board-list" aria-labelledby="all-sessions">
    <div class="section-head">
      <h2 id="all-sessions">All sessions</h2>
      ${resources.length > 1 &&
      html`<select aria-label="Repository of the sessions" class="s-filter" onChange=${(event) => setQuery({ resource: event.currentTarget.value })}>
        <option value="" selected=${!resource}>All repositories</option>
        ${resources.map((one) => html`<option key=${one.name} value=${one.name} selected=${one.name === resource}>${one.name}</option>`)}
      </select>`}
    </div>
    <${Loaded} load=${load} what="Loading sessions">
      ${(page) => html`
        ${!page.items.length &&
        html`<${Empty} title="No sessions yet" icon="talk">
          <p>Sessions of the command line appear here, too: <code>agents session start</code>.</p>
        <//>`}
        <ul class="group-rows">${page.items.map((talk) => html`<${Row} key=${talk.id} talk=${talk} />`)}</ul>
        ${page.next && most < 1000 && html`<${Button} kind="quiet" small onClick=${() => setMost(most + PAGE)}>Show more<//>`}
      `}
    <//>
  </section>`;
}

function Row({ talk }) {
  const [word, tone] = stateOf(talk.state);
  return html`<li class="row">
    <div class="row-main">
      <${Link} to=${`/sessions/${talk.id}`} class="row-link">${titleOf(talk)}<//>
      <p class="row-meaning">${counted(talk.turns, "turn")}${talk.plans.length > 0 && `, ${counted(talk.plans.length, "plan")}`}${talk.by && ` · ${talk.by}`}</p>
    </div>
    <div class="row-facts">
      <span></span>
      <${Badge} tone=${tone}>${word}<//>
      <span class="row-where cut" title=${talk.resource}>${talk.project} / ${talk.resource_name ?? lastPart(talk.resource)}</span>
      <span class="row-when"><${When} time=${talk.updated} /></span>
      <${Id} id=${talk.id} />
    </div>
  </li>`;
}

const lastPart = (path) => path.split("/").filter(Boolean).at(-1) ?? path;
