// The first start: a repository, a model and its key, each with its state and its next step.

import { html, useState } from "../ui.js";
import { all, get, post } from "../api.js";
import { Badge, Button, ErrorBox, Link, Loaded, TextField, toast } from "../components.js";
import { useLoad } from "../load.js";
import { useSession } from "../session.js";
import { byField } from "../validation.js";

// {resources, projects, model}; `model` is null without a default model.
function useFirstStart() {
  return useLoad(async (signal) => {
    const reads = [all("/resources", {}, { signal }), all("/projects", {}, { signal }), get("/about", {}, { signal })];
    const [resources, projects, about] = await Promise.all(reads);
    const name = about.default_model;
    const model = name && (await get("/models", { name }, { signal }).catch(() => null))?.items[0];
    return { resources, projects, model: name ? (model ?? { model: name, key: "missing" }) : null };
  });
}

const isFirstStart = (known) => !known.resources.length || !known.model || known.model.key === "missing";

/** The steps before the first plan; with all of them done, nothing unless `always`. `onAdded` is called when a
 * repository was added. */
export function FirstStart({ always = false, onAdded = () => {} }) {
  const load = useFirstStart();
  const added = () => {
    load.reload();
    onAdded();
  };
  const chosen = load.reload;
  return html`<${Loaded} load=${load} what="Loading">
    ${(known) => (always || isFirstStart(known)) && html`<section class="card card-body first-start" aria-labelledby="first-start">
      <h2 id="first-start">Get started</h2>
      <ol>
        <${Step} done=${known.resources.length > 0} title="Add a repository"><${Repository} known=${known} onAdded=${added} /><//>
        <${Step} done=${Boolean(known.model)} title="Choose a model"><${Model} model=${known.model} onChosen=${chosen} /><//>
        <${Step} done=${Boolean(known.model) && known.model.key !== "missing"} title="Provide its key"><${Key} model=${known.model} onChosen=${chosen} /><//>
      </ol>
    </section>`}
  <//>`;
}

function Step({ done, title, children }) {
  return html`<li class="first-step">
    <h3>${title} <${Badge} tone=${done ? "good" : "need"}>${done ? "done" : "to do"}<//></h3>
    ${children}
  </li>`;
}

function Repository({ known, onAdded }) {
  const { may } = useSession();
  const [path, setPath] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  if (known.resources.length) return html`<p class="soft">${known.resources.map((one) => one.name).slice(0, 5).join(", ")}</p>`;
  if (!may("admin")) return html`<p class="soft">Ask an admin of this server to add a repository.</p>`;
  const [wrong, general] = byField(error, ["path", "name"]);
  const add = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const project = known.projects[0]?.name ?? (await post("/projects", { name: "main" })).name;
      const made = await post("/resources", { name: nameOf(path), project, path: path.trim() });
      toast(`Added ${made.name}`);
      onAdded();
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  return html`<form class="form-part" onSubmit=${add}>
    ${general && html`<${ErrorBox} error=${general} />`}
    <${TextField} label="Directory" required class="mono" placeholder="/srv/shop" hint="An existing git repository on the server's machine."
      value=${path} onInput=${setPath} error=${wrong.path ?? wrong.name} />
    <div class="form-actions"><${Button} type="submit" busy=${busy} disabled=${!path.trim()}>Add repository<//></div>
    <p class="soft small">For a git remote, use <${Link} to="/projects">Projects<//>.</p>
  </form>`;
}

/** The name of a repository at a path: its last part, in the characters of names. */
export function nameOf(path) {
  const last = path.trim().split("/").filter(Boolean).at(-1) ?? "";
  return last.toLowerCase().replace(/[^a-z0-9._-]+/g, "-").replace(/^[^a-z0-9]+/, "").slice(0, 64) || "repository";
}

function Model({ model, onChosen }) {
  const { may } = useSession();
  const [changing, setChanging] = useState(false);
  const [name, setName] = useState("");
  const [server, setServer] = useState("");
  const { busy, error, save } = useChoice(onChosen);
  if (model && !changing) {
    return html`<p class="soft"><code>${model.model}</code> is the default of plans.</p>
      ${may("admin") && html`<${Button} small onClick=${() => setChanging(true)}>Change<//>`}`;
  }
  if (!may("admin")) return html`<p class="soft">Ask an admin of this server to choose a model.</p>`;
  const [wrong, general] = byField(error, ["model", "base_url"]);
  const choose = async (event) => {
    event.preventDefault();
    if (await save({ model: name.trim(), base_url: name.trim().startsWith("openai/") ? server.trim() : null })) setChanging(false);
  };
  return html`<form class="form-part" onSubmit=${choose}>
    ${general && html`<${ErrorBox} error=${general} />`}
    <${TextField} label="Model" required class="mono" placeholder="anthropic/claude-sonnet-4-5" hint="The provider, a slash, and the name of the model."
      value=${name} onInput=${setName} error=${wrong.model} />
    <${TextField} label="Server" optional class="mono" hint="Only for a local model, named openai/…: the base URL of Ollama (port 11434), LM Studio or llama.cpp, with /v1 at the end. Empty: OpenAI itself."
      value=${server} onInput=${setServer} error=${wrong.base_url} />
    <div class="form-actions">
      <${Button} type="submit" busy=${busy} disabled=${!name.trim()}>Choose model<//>
      ${model && html`<${Button} onClick=${() => setChanging(false)}>Cancel<//>`}
    </div>
  </form>`;
}

// Saves a default model or its key; `save` returns whether it succeeded.
function useChoice(onChosen) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const save = async (choice) => {
    setBusy(true);
    setError(null);
    try {
      const chosen = await post("/models/default", choice);
      toast(`${chosen.model} is the default model`);
      onChosen();
      return true;
    } catch (problem) {
      setError(problem);
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { busy, error, save };
}

function NewKey({ model, onChosen }) {
  const [key, setKey] = useState("");
  const { busy, error, save } = useChoice(onChosen);
  const [wrong, general] = byField(error, ["key"]);
  const store = async (event) => {
    event.preventDefault();
    if (await save({ model: model.model, key })) setKey("");
  };
  return html`<form class="form-part" onSubmit=${store}>
    ${general && html`<${ErrorBox} error=${general} />`}
    <${TextField} label="API key" type="password" autocomplete="off" required hint="Stored in the keyring of the server's user, and never shown again."
      value=${key} onInput=${setKey} error=${wrong.key} />
    <div class="form-actions"><${Button} type="submit" busy=${busy} disabled=${!key.trim()}>Store key<//></div>
  </form>`;
}

function Key({ model, onChosen }) {
  const { may } = useSession();
  const [state, setState] = useState({ busy: false, said: null, error: null });
  if (!model) return html`<p class="soft">Choose a model first.</p>`;
  if (model.key === "missing") {
    return may("admin") ? html`<${NewKey} ...${{ model, onChosen }} />` : html`<p class="soft">Ask an admin of this server to store the key of <code>${model.model}</code>.</p>`;
  }
  const test = async () => {
    setState({ busy: true, said: null, error: null });
    try {
      setState({ busy: false, said: await post("/models/trial", {}), error: null });
    } catch (error) {
      setState({ busy: false, said: null, error });
    }
  };
  return html`<p class="soft">${model.key === "there" ? "The server has the key." : "This model needs no key."}</p>
    ${may("operator") && html`<${Button} small busy=${state.busy} onClick=${test}>Test the model<//>`}
    ${state.said && html`<p role="status">The model answered in ${state.said.seconds} s: ${state.said.answer}</p>`}
    ${state.error && html`<${ErrorBox} error=${state.error} title="The model did not answer" />`}`;
}
