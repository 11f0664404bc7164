// What a plan needs from a person, with the very thing to do about it.

import { html, useState } from "../ui.js";
import { get } from "../api.js";
import { Button, Icon, Id, Link, TextArea } from "../components.js";
import { counted } from "../format.js";
import { useLoad } from "../load.js";
import { HINTS } from "./actions.js";
import { RaiseForm } from "./budget.js";
import { ConflictRows } from "./family.js";
import { ConflictList } from "./conflicts.js";
import { Act, Trouble } from "./parts.js";
import { placeInWords, remoteOf } from "./place.js";
import { hasPassed } from "./plan_text.js";

// Nothing where nobody is needed. `open(name)` opens the dialog of an action.
export function NeedsYou({ plan, asking, deed, open }) {
  const shown = bodyOf(plan, asking, deed, open);
  if (!shown && !asking.said.needs) return null;
  const [title, tone, body] = shown || ["Not done", "bad", null];
  return html`<section class=${`p-needs tone-${tone}`} aria-label="What this plan needs from you">
    <h2><${Icon} name=${`tone-${tone}`} />${title}</h2>
    ${body}
    <${Trouble} problem=${asking.said.needs} onClose=${() => asking.forget("needs")} />
  </section>`;
}

function bodyOf(plan, asking, deed, open) {
  const may = (name) => (plan.can || []).includes(name);
  const waits = plan.waiting_for || {};
  const all = { plan, asking, deed, waits, may, open };
  if (may("approve")) return ["It needs your approval", "need", html`<${Leave} ...${all} />`];
  if (may("answer")) return ["It asks you", "need", html`<${Question} key=${waits.question} ...${all} />`];
  if (waits.for === "budget" && plan.state === "waiting") {
    return ["It may not spend more", "need", html`<${Spent} ...${all} />`];
  }
  if ((plan.conflicts || []).length && may("resolve")) {
    return ["Its sub-plans disagree", "need", html`<${Disagree} ...${all} />`];
  }
  if ((waits.asks || []).length) return ["A sub-plan needs you", "need", html`<${Below} ...${all} />`];
  if (plan.needs === "error" && may("apply")) {
    const title = plan.state === "processing" ? "It may be applied or not" : "It was not applied";
    return [title, "need", html`<${ApplyAgain} ...${all} />`];
  }
  if (plan.state === "errored") return ["It failed", "bad", html`<${Failed} ...${all} />`];
  if (plan.state === "constrained") return ["It was not applied", "need", html`<${Constrained} ...${all} />`];
  if (deed?.state === "failed") return [`It could not be ${DONE[deed.what]}`, "bad", html`<${Undone} ...${all} />`];
  if (may("resume") && plan.state !== "complete") return ["It can go on", "need", html`<${GoesOn} ...${all} />`];
  if (plan.needs === "review" && may("apply")) return ["Its result is ready", "good", html`<${Result} ...${all} />`];
  return null;
}

const DONE = { apply: "applied", undo: "undone" };

function Undone({ deed, may, open }) {
  const job = useLoad((signal) => get(`/jobs/${encodeURIComponent(deed.job)}`, {}, { signal }), [deed.job]);
  if (job.loading && !job.data) return null;
  return html`<p class="p-said">${job.data?.problem?.detail ?? deed.error ?? "Its worker says no more."}</p>
    <p>Nothing was changed. Settle what stands in the way, and try again.</p>
    ${may(deed.what) && html`<${Button} icon="undo" onClick=${() => open(deed.what)}>Try again …<//>`}`;
}

function GoesOn({ plan, open }) {
  const meaning = plan.meaning || "";
  return html`<p class="p-said">${meaning.slice(meaning.indexOf(": ") + 2)}</p>
    <${Button} kind="primary" icon="play" onClick=${() => open("resume")}>Resume …<//>`;
}

function Leave({ plan, asking, waits, may }) {
  const call = (plan.calls || []).find((one) => one.state === "asked");
  const body = call ? { call: call.number } : {};
  return html`<p class="p-said">${waits.what}</p>
    ${call && html`<pre class="p-pre">${call.tool}  ${call.what}</pre>`}
    <div class="p-row">
      <${Act} name="approve" kind="primary" icon="check" asking=${asking}
        onClick=${() => asking.ask("approve", body, "needs")}>Approve<//>
      ${may("deny") &&
      html`<${Act} name="deny" kind="danger" icon="x" asking=${asking}
        onClick=${() => asking.ask("deny", body, "needs")}>Deny<//>`}
      <span class="p-muted">An actor that is refused is told, and tries something else.</span>
    </div>`;
}

function Question({ asking, waits }) {
  const [text, setText] = useState("");
  const choices = waits.choices || [];
  const send = (answer) => answer.trim() && asking.ask("answer", { text: answer, question: waits.question }, "needs");
  const submit = (event) => {
    event.preventDefault();
    send(text);
  };
  return html`<p class="p-said">${waits.what}</p>
    ${choices.length > 0 &&
    html`<div class="p-row" role="group" aria-label="Choices">
      ${choices.map(
        (choice) => html`<${Act} key=${choice} name="answer" asking=${asking} onClick=${() => send(choice)}>${choice}<//>`,
      )}
    </div>`}
    <form class="p-form" onSubmit=${submit}>
      <${TextArea} label=${choices.length ? "Or in your own words" : "Your answer"} rows="2" value=${text} onInput=${setText} />
      <${Act} name="answer" type="submit" kind="primary" asking=${asking} disabled=${!text.trim()}>Answer<//>
    </form>`;
}

function Spent({ plan, asking, waits, may }) {
  return html`<p class="p-said">${waits.what}</p>
    ${may("budget") && html`<${RaiseForm} plan=${plan} asking=${asking} place="needs" />`}`;
}

function Disagree({ plan, asking, waits }) {
  return html`<p class="p-said">${waits.what || "They changed the same places"}. Say for each file which side is right.</p>
    <${ConflictRows} plan=${plan} asking=${asking} place="needs" />`;
}

function Below({ waits }) {
  return html`<ul class="p-plain">
    ${waits.asks.map((ask, place) => {
      const id = ask.plan || ask.id;
      return html`<li key=${place}>
        ${id ? html`<${Link} to=${`/plans/${id}`}>${ask.who || html`<${Id} id=${id} />`}<//>` : ask.who}: ${ask.what}
      </li>`;
    })}
  </ul>`;
}

// With a model a second try may well get further; without one the same request fails in the same way.
function Failed({ plan, may, open }) {
  const again = plan.can?.length > 0 && plan.resource_name && !plan.parent;
  const thinks = Boolean(plan.request?.model);
  const resume = may("resume") && html`<${Button} key="resume" kind=${thinks || !again ? "primary" : ""} icon="play" onClick=${() => open("resume")}>Resume …<//>`;
  const anew = again && html`<${Link} key="anew" to=${`/new?from=${plan.id}`} class=${thinks && may("resume") ? "button" : "button button-primary"}>
    Start again with changes
  <//>`;
  const others = ["resume", "reject", "cancel", "delete"].filter((name) => may(name));
  return html`<p class="p-said">${plan.error || "It says no more."}</p>
    <div class="p-row">
      ${thinks ? [resume, anew] : [anew, resume]}
      <a class="button" href="#timeline">See what it did</a>
    </div>
    <ul class="p-hints">
      ${again && html`<li><strong>Start again with changes</strong> opens a new plan, filled in as this one was.</li>`}
      ${others.map((name) => html`<li key=${name}><strong>${name[0].toUpperCase() + name.slice(1)}</strong> ${HINTS[name]}.</li>`)}
    </ul>`;
}

function ApplyAgain({ plan, open }) {
  return html`<p class="p-said">${plan.error}</p>
    <div class="p-row">
      <${Button} kind="primary" onClick=${() => open("apply")}>Apply again …<//>
      <a class="button" href="#diff">Look at the diff</a>
    </div>`;
}

function Constrained({ plan, asking, may, open }) {
  return html`<p class="p-said">${plan.error}</p>
    <${ConflictList} ...${{ plan, asking, may }} />
    <p>${remoteOf(plan) ? `Nothing was pushed to ${placeInWords(plan)}.` : "Your files are as they were."} ${plan.in_the_way
      ? "Leave out the files that stand in the way, or settle it there, and apply it again."
      : "Settle what stands in the way, and apply it again."}</p>
    <div class="p-row">
      <a class="button button-primary" href="#diff">Look at the diff</a>
      ${may("apply") && html`<${Button} onClick=${() => open("apply")}>Apply again …<//>`}
    </div>`;
}

function Result({ plan, may, open }) {
  const failed = (plan.checks || []).filter((check) => !hasPassed(check));
  const stale = failed.some((check) => check.stale) ? " on the files as they are now" : "";
  const left = (plan.left_out || []).length;
  const checked = (plan.checks || []).length ? "All checks passed." : "No check was asked for.";
  return html`<p class="p-said">
      ${counted(plan.files_changed, "file")} changed${left ? `, ${left} left out` : ""}.${" "}
      ${failed.length ? html`<a href="#checks">${counted(failed.length, "check")} did not pass${stale}.</a>` : checked}${" "}
      ${remoteOf(plan)
        ? `Nothing is pushed to ${placeInWords(plan)} before you apply it.`
        : "Nothing is written to your files before you apply it."}
    </p>
    <div class="p-row">
      <a class="button button-primary" href="#diff">Review the diff</a>
      ${may("apply") && html`<${Button} icon="check" onClick=${() => open("apply")}>Apply …<//>`}
      ${may("reject") && html`<${Button} icon="x" onClick=${() => open("reject")}>Reject …<//>`}
    </div>`;
}
