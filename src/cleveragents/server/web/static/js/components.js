// Shared components of the views. State is shown by word and shape as well as by colour.

import { html, useEffect, useState } from "./ui.js";
import { ago, counted, jobTone, money, shortId } from "./format.js";
import { Icon } from "./icons.js";
import { navigate } from "./router.js";

export { Icon } from "./icons.js";
export { Dialog, confirm } from "./dialog.js";
export { Toasts, toast, toastProblem } from "./toasts.js";
export { Field, Select, TextArea, TextField, Toggle } from "./fields.js";
export { Table } from "./table.js";

/** A button. `kind`: "primary", "danger", "quiet" or "". `busy` shows a spinner and disables it. */
export function Button({ kind = "", busy = false, icon, children, label, small = false, ...rest }) {
  const classes = ["button", kind && `button-${kind}`, small && "button-small", !children && "button-icon"];
  return html`<button
    type="button"
    ...${rest}
    class=${[...classes, rest.class].filter(Boolean).join(" ")}
    aria-label=${label}
    title=${children ? rest.title : label}
    aria-busy=${busy ? "true" : undefined}
    disabled=${busy || rest.disabled}
  >
    ${busy ? html`<span class="spinner" aria-hidden="true"></span>` : icon && html`<${Icon} name=${icon} />`}
    ${children && html`<span>${children}</span>`}
  </button>`;
}

/** A link to another view of the page. */
export function Link({ to, children, ...rest }) {
  const go = (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    navigate(to);
  };
  return html`<a href=${to} onClick=${go} ...${rest}>${children}</a>`;
}

/** A word with a tone: run, need, good, bad, done, wait or off. */
export function Badge({ tone = "off", children, title }) {
  return html`<span class=${`badge tone-${tone}`} title=${title}>
    <${Icon} name=${`tone-${tone}`} />${children}
  </span>`;
}

/** The state of a job. */
export function JobBadge({ state }) {
  return html`<${Badge} tone=${jobTone(state)}>${state}<//>`;
}

/** A short id with the full id as its tooltip. */
export function Id({ id }) {
  return html`<code class="id" title=${id}>${shortId(id)}</code>`;
}

/** A relative time that keeps itself current, with the exact time as its tooltip. */
export function When({ time }) {
  const [, again] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => again((n) => n + 1), 20000);
    return () => clearInterval(timer);
  }, []);
  if (!time) return html`<span class="faint">never</span>`;
  return html`<time dateTime=${time} title=${new Date(time).toLocaleString()}>${ago(time)}</time>`;
}

export function Money({ usd }) {
  return html`<span class="number">${money(usd)}</span>`;
}

/** Preformatted text. */
export function Code({ children, label }) {
  return html`<pre class="code" tabindex="0" aria-label=${label}><code>${children}</code></pre>`;
}

/** A progress bar with its label: "3 of 5 sub-plans". */
export function Progress({ done, of, what }) {
  const words = `${done} of ${counted(of, what)}`;
  return html`<span class="progress">
    <progress value=${done} max=${of || 1} aria-label=${words}></progress>
    <span class="small">${words}</span>
  </span>`;
}

/** An empty state: a title, and the next step as its children. */
export function Empty({ title, children, icon = "empty" }) {
  return html`<div class="empty">
    <${Icon} name=${icon} size="28" />
    <p class="empty-title">${title}</p>
    <div class="empty-more">${children}</div>
  </div>`;
}

/** A loading indicator. Screen readers announce it only if loading takes a while. */
export function Loading({ what = "Loading" }) {
  return html`<div class="loading" role="status"><span class="spinner" aria-hidden="true"></span>${what}…</div>`;
}

/** The remedies of a problem as text. Actions on a plan have buttons on its page. */
export function Remedies({ of }) {
  const said = (of?.remedies ?? []).map((one) => one.text).filter(Boolean);
  return said.length > 0 && html`<p>${said.join(" · ")}</p>`;
}

/** A problem with its remedies. `again` retries the request. */
export function ErrorBox({ error, again, title }) {
  const offline = error?.isOffline;
  return html`<div class="error-box" role="alert">
    <${Icon} name="tone-bad" />
    <div>
      <p class="error-title">${title ?? (offline ? "Cannot reach the server" : "Request failed")}</p>
      <p><${Prose} text=${error?.detail ?? String(error?.message ?? error)} /></p>
      <${Remedies} of=${error} />
      ${again && html`<${Button} small onClick=${again}>Try again<//>`}
    </div>
  </div>`;
}

/** The loading, failed or loaded state of a view. `load` is the result of `useLoad`. */
export function Loaded({ load, what, children }) {
  if (load.error && load.data === null) return html`<${ErrorBox} error=${load.error} again=${load.reload} />`;
  if (load.data === null) return html`<${Loading} what=${what} />`;
  return html`${load.error && html`<${ErrorBox} error=${load.error} again=${load.reload} />`}${children(load.data)}`;
}

/** Text from the server. Text between backticks becomes code. */
export function Prose({ text }) {
  return (text ?? "").split("`").map((piece, at) => (at % 2 ? html`<code key=${at}>${piece}</code>` : html`${piece}`));
}

/** The heading of a view with its actions. */
export function PageHead({ title, children, lead }) {
  useEffect(() => {
    document.title = `${title} · CleverAgents`;
  }, [title]);
  return html`<header class="page-head">
    <div>
      <h1 tabindex="-1">${title}</h1>
      ${lead && html`<p class="lead">${lead}</p>`}
    </div>
    <div class="page-actions">${children}</div>
  </header>`;
}
