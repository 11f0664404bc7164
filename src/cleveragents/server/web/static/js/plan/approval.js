// The pending approval of a call: approve it once or by a rule for later calls, or deny it with a reason.

import { html, useState } from "../ui.js";
import { Button, Prose, Select, TextField } from "../components.js";
import { Act, useFocus } from "./parts.js";

/** The call with its controls. A rule is shown before it is saved, and exactly the shown rule is sent. */
export function Approval({ plan, asking, waits, may }) {
  const [denying, setDenying] = useState(false);
  const asked = plan.approval?.call;
  // The call that is shown is the call that is sent.
  const call = (plan.calls || []).find((one) => (asked ? one.number === asked : one.state === "asked"));
  const body = call ? { call: call.number } : {};
  return html`<p class="p-said"><${Prose} text=${waits.what} /></p>
    ${call && html`<pre class="p-pre">${call.tool}  ${call.what}</pre>`}
    ${denying
      ? html`<${Denial} asking=${asking} body=${body} goBack=${() => setDenying(false)} />`
      : html`<${Grant} ...${{ approval: plan.approval, asking, body }}
          deny=${may("deny") && html`<${Button} kind="danger" icon="x" onClick=${() => setDenying(true)}>Deny …<//>`} />`}`;
}

function Grant({ approval, asking, body, deny }) {
  const patterns = [...new Set([approval?.pattern, approval?.exact].filter(Boolean))];
  const [chosen, setChosen] = useState(null);
  const pattern = patterns.includes(chosen) ? chosen : patterns[0];
  const may = (scope) => pattern && (approval?.scopes || []).includes(scope);
  const allow = (scope) => asking.ask("approve", { ...body, scope, pattern }, "needs");
  return html`<div class="p-row">
      <${Act} name="approve" kind="primary" icon="check" asking=${asking}
        onClick=${() => asking.ask("approve", body, "needs")}>Approve<//>
      ${may("plan") && html`<${Act} name="approve" asking=${asking} onClick=${() => allow("plan")}>Allow in this plan<//>`}
      ${may("project") && html`<${Act} name="approve" asking=${asking} onClick=${() => allow("project")}>Always allow<//>`}
      ${deny}
    </div>
    ${(may("plan") || may("project")) &&
    html`<div class="p-rule">
      ${patterns.length > 1
        ? html`<${Select} label="Rule" class="mono" value=${pattern} onInput=${setChosen} options=${patterns} />`
        : html`<p>Rule: <code>${pattern}</code></p>`}
      <p class="p-muted">
        Later commands that match the rule run without approval, if they are isolated${may("plan") && `: in ${approval.plan_scope || "this plan"}`}
        ${may("project") && `${may("plan") ? ", or" : ":"} always in ${approval.project_scope}`}.
      </p>
    </div>`}
    ${approval?.problem && html`<p class="p-muted">${sentence(approval.problem)}</p>`}`;
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function Denial({ asking, body, goBack }) {
  const [reason, setReason] = useState("");
  const form = useFocus();
  const deny = (event) => {
    event.preventDefault();
    asking.ask("deny", reason.trim() ? { ...body, reason: reason.trim() } : body, "needs");
  };
  return html`<form class="p-form" ref=${form} onSubmit=${deny}>
    <${TextField} label="Reason" optional hint="The agent reads the reason and looks for another way."
      value=${reason} onInput=${setReason} maxlength="2000" />
    <div class="p-row">
      <${Act} name="deny" type="submit" kind="danger" icon="x" asking=${asking}>Deny<//>
      <${Button} onClick=${goBack}>Go back<//>
    </div>
  </form>`;
}
