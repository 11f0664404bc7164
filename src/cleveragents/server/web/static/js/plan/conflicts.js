// Conflicts of a plan with the repository: both sides of each place beside each other, and the choices.

import { html } from "../ui.js";
import { counted } from "../format.js";
import { Act, Long } from "./parts.js";

const SIDES = [["ours", "Take this plan"], ["theirs", "Take the repository"]];
const CODE = /^ {2}\| ?/;

/** The files and the places of a conflict that the server describes as text. Returns null if the text has another form. */
export function placesOf(details) {
  const files = [];
  let file = null;
  let side = null;
  for (const line of details.split("\n")) {
    const place = /^(lines? [\d-]+.*), current:$/.exec(line);
    if (place && file) {
      file.places.push({ where: place[1], theirs: [], ours: [] });
      side = "theirs";
    } else if (line === "proposed:" && side === "theirs") side = "ours";
    else if (side && line.startsWith("  ")) file.places.at(-1)[side].push(line);
    else if (line.trim()) {
      file = { title: line, places: [] };
      files.push(file);
      side = null;
    }
  }
  return files.some((one) => one.places.length) ? files : null;
}

/** The conflicts that blocked an apply, with a choice for each file; empty if no conflicting files are known. */
export function ConflictList({ plan, asking, may }) {
  const { paths = [], details = "" } = plan.in_the_way || {};
  if (!paths.length) return null;
  const left = new Set(plan.left_out || []);
  const files = placesOf(details) || [];
  const choices = { asking, may, left, seen: { version: plan.version, tree: plan.tree } };
  return html`${may("rebase") &&
    html`<div class="p-row">
      <${Act} name="rebase" kind="primary" icon="branch" asking=${asking} onClick=${() => asking.ask("rebase", {}, "needs")}>Rebase<//>
      <span class="p-muted">Merges the result with the current files in the sandbox. ${plan.request?.model
        ? "The agent resolves the conflicts"
        : "You resolve the conflicts"}, and the checks run again.</span>
    </div>`}
    <ul class="p-plain p-conflicts" aria-label="Conflicting files">
      ${paths.map((path, place) => {
        const found = files.find((one) => one.title.startsWith(`${path}: `));
        return html`<${ConflictFile} key=${path} ...${{ path, found, ...choices }} open=${place === 0} />`;
      })}
    </ul>
    ${details && !files.length &&
    html`<details class="p-sides"><summary>Both sides</summary><${Long} text=${details} label="Both sides" /></details>`}`;
}

function ConflictFile({ path, found, open, asking, may, left, seen }) {
  const places = found?.places || [];
  return html`<li class="p-conflict-file">
    <details open=${open}>
      <summary>
        <code class="p-path">${path}</code>
        <span class="p-muted"> ${left.has(path) ? "left out" : places.length ? counted(places.length, "conflict") : ""}</span>
      </summary>
      ${found && html`<p class="p-muted">${found.title.slice(path.length + 2)}</p>`}
      ${places.map((one) => html`<${SideBySide} key=${one.where} ...${one} path=${path} />`)}
      ${!left.has(path) && html`<${Choices} ...${{ path, asking, may, seen }} />`}
    </details>
  </li>`;
}

function Choices({ path, asking, may, seen }) {
  return html`<div class="p-row" role="group" aria-label=${`Resolve ${path}`}>
    ${may("resolve") &&
    SIDES.map(
      ([take, label]) => html`<${Act} key=${take} small name="resolve" asking=${asking} label=${`${label}: ${path}`}
        onClick=${() => asking.ask("resolve", { path, take, ...seen }, "needs")}>${label}<//>`,
    )}
    ${may("review") &&
    html`<${Act} small kind="quiet" name="review" asking=${asking} label=${`Leave ${path} out`}
      onClick=${() => asking.ask("review", { reject: [path] }, "needs")}>Leave out<//>`}
  </div>`;
}

function SideBySide({ where, ours, theirs, path }) {
  const text = (lines) => lines.map((line) => line.replace(CODE, "")).join("\n");
  const side = (name, lines) => html`<figure>
    <figcaption>${name}</figcaption>
    <pre class="p-pre" tabindex="0" role="group" aria-label=${`${path}, ${where}: ${name}`}>${text(lines)}</pre>
  </figure>`;
  return html`<div class="p-side-by-side">
    <p class="p-muted">${where}</p>
    ${side("This plan", ours)} ${side("The repository", theirs)}
  </div>`;
}
