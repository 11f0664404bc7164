// The reference of the HTTP API, drawn from the server's OpenAPI document.

import { html } from "../ui.js";
import { get } from "../api.js";
import { Code, Loaded, PageHead, Prose } from "../components.js";
import { useLoad } from "../load.js";
import { exampleOf, operationsByTag, resolve, typeOf } from "../openapi.js";

const TONES = { get: "run", post: "good", put: "need", patch: "need", delete: "bad" };

export function ApiReference() {
  const load = useLoad((signal) => get("/openapi.json", {}, { signal }));
  return html`
    <${PageHead} title="API" lead="Everything on this page is also available to programs.">
      <a class="button" href="/api/openapi.json" download>Download OpenAPI</a>
    <//>
    <${Loaded} load=${load} what="Loading the reference">${(document) => html`<${Reference} document=${document} />`}<//>
  `;
}

function Reference({ document: api }) {
  const tags = operationsByTag(api);
  return html`<div class="operations">
    <nav class="operations-nav" aria-label="Resources">
      ${tags.map(([tag]) => html`<a key=${tag} href=${`#${tag}`}>${tag}</a>`)}
    </nav>
    <div class="stack">
      <${Code} label="Example">${`curl -H "Authorization: Bearer $TOKEN" ${location.origin}/api/plans`}<//>
      ${tags.map(
        ([tag, operations]) => html`<section key=${tag} id=${tag} aria-label=${tag}>
          <div class="section-head"><h2>${tag}</h2></div>
          ${operations.map((one) => html`<${Operation} key=${`${one.method} ${one.path}`} api=${api} one=${one} />`)}
        </section>`,
      )}
    </div>
  </div>`;
}

function Operation({ api, one }) {
  const body = one.requestBody?.content?.["application/json"];
  return html`<details class="operation card">
    <summary>
      <span class=${`method tone-${TONES[one.method] ?? "off"}`}>${one.method.toUpperCase()}</span>
      <span class="path">${one.path}</span>
      <span class="small soft">${one.summary ?? ""}</span>
    </summary>
    <div class="operation-body">
      ${one.description && html`<p><${Prose} text=${one.description} /></p>`}
      ${one.parameters?.length > 0 && html`<${Parameters} api=${api} parameters=${one.parameters} />`}
      ${body && html`<div><h3>Body</h3><${Code} label="Example body">${exampleOf(api, body)}<//></div>`}
      ${Object.entries(one.responses ?? {}).map(([status, response]) => html`<${Response} key=${status} api=${api} status=${status} response=${resolve(api, response)} />`)}
    </div>
  </details>`;
}

function Parameters({ api, parameters }) {
  return html`<div>
    <h3>Parameters</h3>
    <dl class="facts">
      ${parameters.map(
        (one) => html`<dt key=${one.name}><code>${one.name}</code></dt>
          <dd>
            <span class="faint">${one.in}, ${typeOf(api, one.schema)}${one.required ? ", required" : ""}</span>
            ${" "}<${Prose} text=${one.description} />
          </dd>`,
      )}
    </dl>
  </div>`;
}

function Response({ api, status, response }) {
  const content = response.content?.["application/json"];
  if (status >= "300") return html`<p class="small"><strong>${status}</strong> <span class="soft">${response.description}</span></p>`;
  return html`<div>
    <h3>${status} <span class="soft">${response.description}</span></h3>
    ${content && html`<${Code} label=${`Example of ${status}`}>${exampleOf(api, content)}<//>`}
  </div>`;
}
