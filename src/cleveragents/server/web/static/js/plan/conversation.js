// The conversation of a plan: the goal, what the agent said and did, the checks, the pending request and the answer.
//
// Entries have stable keys and are only appended, so that open entries, focus and scroll position stay. A page that is
// scrolled to its end follows new entries.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../ui.js";
import { Badge, Button, Icon } from "../components.js";
import { shortId } from "../format.js";
import { CallDetails } from "./call.js";
import { CallDiff } from "./call_diff.js";
import { stripped } from "./ansi.js";
import { PlanComments } from "./comments.js";
import { Markdown } from "./markdown.js";
import { Long } from "./parts.js";
import { clock, isRunning } from "./plan_text.js";
import { conversationOf, parsed } from "./transcript.js";

const MOST = 300;
const NEAR_PX = 120;
const ACTORS = { strategist: "Strategist", executor: "Agent", reviewer: "Reviewer" };
const TONES = { passed: "good", running: "run", "not run": "off" };

export function Conversation({ plan, events, rev, asking, lines, rollBack, may, children }) {
  const [whole, setWhole] = useState(false);
  const entries = useMemo(() => conversationOf(lines.transcript, plan, events), [lines.transcript, lines.heard, plan, events]);
  const shown = whole ? entries : entries.slice(-MOST);
  useFollow(`${entries.length} ${lines.heard}`, isRunning(plan));
  return html`<div class="p-talk">
    <article class="p-turn p-turn-goal" aria-label="Goal">
      <h2>${plan.request?.by || "You"}<time datetime=${plan.created}>${clock(plan.created)}</time></h2>
      <p class="p-said">${plan.goal}</p>
    </article>
    ${shown.length < entries.length &&
    html`<${Button} small onClick=${() => setWhole(true)}>Show ${entries.length - shown.length} earlier entries<//>`}
    <ol class="p-turns" aria-label="Conversation">
      ${shown.map((entry) => html`<li key=${entry.key}><${Entry} ...${{ entry, plan, rollBack }} /></li>`)}
    </ol>
    ${isRunning(plan) && html`<p class="p-working" role="status"><span class="spinner" aria-hidden="true"></span>${plan.state === "queued" ? "Waiting for a worker …" : "Working …"}</p>`}
    ${plan.answer &&
    html`<article class="p-turn p-answer" aria-label="Answer"><h2>Answer</h2><${Markdown} text=${plan.answer} /></article>`}
    <${PlanComments} ...${{ plan, rev, asking, may }} />
    ${children}
  </div>`;
}

// Keeps the end in view for a reader who is at the end of a running plan.
function useFollow(changed, running) {
  const atEnd = useRef(false);
  useEffect(() => {
    const look = () => {
      const { scrollHeight, clientHeight, scrollTop } = document.documentElement;
      atEnd.current = scrollTop > 0 && scrollHeight - clientHeight - scrollTop < NEAR_PX;
    };
    look();
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, []);
  useLayoutEffect(() => {
    if (running && atEnd.current) scrollTo({ top: document.documentElement.scrollHeight });
  }, [changed]);
}

function Entry({ entry, plan, rollBack }) {
  if (entry.kind === "message") return html`<${Message} entry=${entry} />`;
  if (entry.kind === "call") return html`<${Call} ...${{ entry, plan, rollBack }} />`;
  if (entry.kind === "check") return html`<${Check} entry=${entry} />`;
  if (entry.kind === "step") return html`<h3 class="p-step">${`Step ${entry.text}`}</h3>`;
  return html`<div class=${`p-act tone-${entry.tone}`}>
    <p><${Icon} name=${`tone-${entry.tone}`} />${entry.text}<time datetime=${entry.time}>${clock(entry.time)}</time></p>
    ${entry.guidance && html`<blockquote>${entry.guidance}</blockquote>`}
  </div>`;
}

const nameOf = (actor) => ACTORS[actor.split("/").at(-1)] ?? (actor || "Agent");

function Message({ entry }) {
  const name = nameOf(entry.actor);
  const data = useMemo(() => parsed(entry.text), [entry.text]);
  if (!entry.text.trim()) return null;
  return html`<article class="p-turn" aria-label=${name}>
    <h3>${name}<time datetime=${entry.time}>${clock(entry.time)}</time></h3>
    ${data ? html`<${Structured} data=${data} text=${entry.text} />` : html`<${Markdown} text=${entry.text.trim()} />`}
  </article>`;
}

// The answers of strategists and reviewers are JSON: a summary with decisions and steps, or a verdict with findings.
function Structured({ data, text }) {
  const words = (one) => (typeof one === "string" ? one : [one?.title ?? one?.question ?? one?.message ?? one?.text, one?.choice].filter(Boolean).join(" → "));
  const list = (name, items) => {
    const said = (Array.isArray(items) ? items : []).map(words).filter(Boolean);
    return said.length > 0 && html`<h4>${name}</h4><ul class="p-said-list">${said.map((one, at) => html`<li key=${at}>${one}</li>`)}</ul>`;
  };
  const verdict = typeof data.verdict === "string" && html`<${Badge} tone=${data.verdict === "accept" ? "good" : "need"}>${data.verdict === "accept" ? "accepted" : data.verdict}<//>`;
  return html`${verdict}${typeof data.summary === "string" && html`<${Markdown} text=${data.summary} />`}
    ${list("Decisions", data.decisions)}${list("Steps", data.steps)}${list("Findings", data.findings)}
    <details class="p-raw"><summary>Original</summary><${Long} text=${text.trim()} label="Original" /></details>`;
}

function Call({ entry, plan, rollBack }) {
  const { call, result } = entry;
  const [open, setOpen] = useState(false);
  const id = `talk-call-${call.number}`;
  const running = ["started", "ending"].includes(call.state);
  const shown = call.changed > 0 ? call.what.replace(/, (old|content|edits)=[\s\S]*$/, "") : call.what;
  const outcome = call.error || (result && !shown.includes(result.replace(/^\w+: /, "")) ? result : "");
  return html`<div class=${call.state === "reverted" ? "p-did p-gone" : "p-did"}>
    <button type="button" class="p-did-line" aria-expanded=${open ? "true" : "false"} aria-controls=${id} onClick=${() => setOpen(!open)}>
      <${Icon} name=${open ? "down" : "right"} />
      <strong>${call.tool}</strong>
      <code class="p-did-what">${shown.replace(/\s*\n\s*/g, " ⏎ ").slice(0, 200)}</code>
      ${outcome && html`<span class="p-did-result">${stripped(outcome).split("\n")[0].slice(0, 120)}</span>`}
      <span class="p-did-side">
        ${call.state === "asked" && html`<${Badge} tone="need">needs approval<//>`}
        ${(call.approval || call.rule) && html`<${Badge} tone=${call.approval === "denied" ? "bad" : "good"}>${approvalOf(call)}<//>`}
        ${call.error && call.approval !== "denied" && html`<${Badge} tone="bad">failed<//>`}
        ${call.state === "reverted" && html`<${Badge} tone="off">reverted<//>`}
        ${running && html`<${Badge} tone="run">running<//>`}
      </span>
    </button>
    ${call.reason && html`<p class="p-reason">Reason: ${call.reason}</p>`}
    ${call.changed > 0 && !open && html`<${CallDiff} plan=${plan} call=${call} />`}
    ${open && html`<div id=${id} class="p-entry-details"><${CallDetails} ...${{ plan, call, rollBack }} /></div>`}
  </div>`;
}

function approvalOf(call) {
  if (call.approval === "denied") return "denied";
  return call.rule ? `approved by rule ${shortId(call.rule)}` : "approved";
}

function Check({ entry }) {
  const details = stripped(entry.details || "").trim();
  const good = entry.verdict === "passed";
  return html`<div class="p-did">
    <p class="p-did-line">
      <${Icon} name="shield" /><strong>check</strong><code class="p-did-what">${entry.name}</code>
      <span class="p-did-side"><${Badge} tone=${TONES[entry.verdict] ?? (entry.verdict.includes("out of date") ? "need" : "bad")}>${entry.verdict}<//></span>
    </p>
    ${details && !good && html`<${Long} text=${details} label=${`Output of ${entry.name}`} />`}
  </div>`;
}
