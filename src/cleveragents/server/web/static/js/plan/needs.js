// The pending request of a plan, with the controls to respond to it.

import { html, useState } from "../ui.js";
import { get } from "../api.js";
import { Button, Icon, Id, Link, TextArea } from "../components.js";
import { counted } from "../format.js";
import { isParked } from "../groups.js";
import { useLoad } from "../load.js";
import { HINTS, labelOf } from "./actions.js";
import { Approval } from "./approval.js";
import { RaiseForm } from "./budget.js";
import { ConflictRows } from "./family.js";
import { ConflictList } from "./conflicts.js";
import { Act, Trouble } from "./parts.js";
import { placeInWords, remoteOf } from "./place.js";
import { clock, explanationOf, hasPassed, isPossible } from "./plan_text.js";

// Empty if the plan needs no person. `open(name)` opens the dialog of an action. `where` is the address of the plan's own
// page, if this is another page.
export function NeedsYou({ plan, asking, job, open, where = "" }) {
  const shown = bodyOf(plan, asking, job, open, where);
  if (!shown && !asking.said.needs) return null;
  const [title, tone, body] = shown || ["Not done", "bad", null];
  return html`<section class=${`p-needs tone-${tone}`} aria-label="Pending request">
    <h2><${Icon} name=${`tone-${tone}`} />${title}</h2>
    ${body}
    ${plan.elsewhere && html`<p class="p-warn">This server cannot continue the plan: ${plan.elsewhere}.</p>`}
    <${Trouble} problem=${asking.said.needs} onClose=${() => asking.forget("needs")} />
  </section>`;
}

function bodyOf(plan, asking, job, open, where) {
  const may = (name) => isPossible(plan, name);
  const waits = plan.waiting_for || {};
  const all = { plan, asking, job, waits, may, open, where };
  if (may("approve")) return ["Approval needed", "need", html`<${Approval} key=${plan.approval?.call} ...${all} />`];
  if (may("answer")) return ["Question", "need", html`<${Question} key=${waits.question} ...${all} />`];
  if (waits.for === "budget" && plan.state === "waiting") {
    return ["Budget spent", "need", html`<${Spent} ...${all} />`];
  }
  if ((plan.conflicts || []).length && may("resolve")) {
    return ["Conflict", "need", html`<${Conflict} ...${all} />`];
  }
  if ((waits.asks || []).length) return ["A sub-plan needs you", "need", html`<${Below} ...${all} />`];
  if (plan.needs === "error" && may("apply")) {
    const title = plan.state === "processing" ? "Outcome unknown" : "Not applied";
    return [title, "need", html`<${ApplyAgain} ...${all} />`];
  }
  if (plan.status === "paused") return ["Paused", "need", html`<${Resumable} ...${all} />`];
  if (plan.state === "errored") return ["Failed", "bad", html`<${Failed} ...${all} />`];
  if (plan.state === "constrained") return ["Not applied", "need", html`<${Blocked} ...${all} />`];
  if (job?.state === "failed") return [`${FAILED[job.what]} failed`, "bad", html`<${JobFailed} ...${all} />`];
  if (isParked(plan)) return ["Usage limit", "wait", html`<${Parked} ...${all} />`];
  if (may("resume") && plan.state !== "complete") return ["Can be resumed", "need", html`<${Resumable} ...${all} />`];
  if (plan.needs === "review" && may("apply")) return ["Ready for review", "good", html`<${Result} ...${all} />`];
  if (plan.elsewhere) return ["Waiting", "need", html`<p class="p-said">${waits.what || explanationOf(plan)}</p>`];
  return null;
}

// A link to a tab of the plan's own page.
function ToTab({ where, tab, children, ...rest }) {
  if (where) return html`<${Link} to=${`${where}#${tab}`} ...${rest}>${children}<//>`;
  return html`<a href=${`#${tab}`} ...${rest}>${children}</a>`;
}

const FAILED = { apply: "Apply", undo: "Undo" };

function JobFailed({ job, may, open }) {
  const load = useLoad((signal) => get(`/jobs/${encodeURIComponent(job.job)}`, {}, { signal }), [job.job]);
  if (load.loading && !load.data) return null;
  return html`<p class="p-said">${load.data?.problem?.detail ?? job.error ?? "The worker gave no reason."}</p>
    <p>Nothing was changed. Resolve the problem and try again.</p>
    ${may(job.what) && html`<${Button} icon="undo" onClick=${() => open(job.what)}>Try again …<//>`}`;
}

function Resumable({ plan, may, open }) {
  return html`<p class="p-said">${explanationOf(plan)}</p>
    <div class="p-row">
      ${may("resume") && html`<${Button} kind="primary" icon="play" onClick=${() => open("resume")}>Resume …<//>`}
      <${Withdraw} ...${{ may, open }} />
    </div>`;
}

// Empty unless a revision has no good result.
function Withdraw({ may, open }) {
  return may("rollback") && html`<${Button} icon="undo" onClick=${() => open("rollback")}>Withdraw revision …<//>`;
}

function Parked({ plan, waits, may, open }) {
  return html`<p class="p-said">${waits.what}</p>
    <p>The plan continues by itself at ${clock(waits.until)}.</p>
    ${may("resume") && html`<${Button} icon="play" onClick=${() => open("resume")}>Resume now …<//>`}`;
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
      <${TextArea} label=${choices.length ? "Other answer" : "Your answer"} rows="2" value=${text} onInput=${setText} />
      <${Act} name="answer" type="submit" kind="primary" asking=${asking} disabled=${!text.trim()}>Answer<//>
    </form>`;
}

function Spent({ plan, asking, waits, may }) {
  return html`<p class="p-said">${waits.what}</p>
    ${may("budget") && html`<${RaiseForm} plan=${plan} asking=${asking} place="needs" />`}`;
}

function Conflict({ plan, asking, waits }) {
  return html`<p class="p-said">${waits.what || "The sub-plans changed the same lines"}. Choose a side for each file.</p>
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

// With a model a second attempt may succeed. Without one the same request fails in the same way.
function Failed({ plan, may, open, where }) {
  const again = plan.can?.length > 0 && plan.resource_name && !plan.parent;
  const hasModel = Boolean(plan.request?.model);
  const resume = may("resume") && html`<${Button} key="resume" kind=${hasModel || !again ? "primary" : ""} icon="play" onClick=${() => open("resume")}>Resume …<//>`;
  const anew = again && html`<${Link} key="anew" to=${`/new?from=${plan.id}`} class=${hasModel && may("resume") ? "button" : "button button-primary"}>
    Edit and restart
  <//>`;
  const others = ["resume", "rollback", "reject", "cancel", "delete"].filter((name) => may(name));
  return html`<p class="p-said">${plan.error || "The plan gave no reason."}</p>
    <div class="p-row">
      ${hasModel ? [resume, anew] : [anew, resume]}
      <${Withdraw} ...${{ may, open }} />
      <${ToTab} where=${where} tab="timeline" class="button">View timeline<//>
    </div>
    <ul class="p-hints">
      ${again && html`<li><strong>Edit and restart</strong> opens a new plan with the same settings.</li>`}
      ${others.map((name) => html`<li key=${name}><strong>${labelOf(name)}</strong> ${HINTS[name]}.</li>`)}
    </ul>`;
}

function ApplyAgain({ plan, open, where }) {
  return html`<p class="p-said">${plan.error}</p>
    <div class="p-row">
      <${Button} kind="primary" onClick=${() => open("apply")}>Apply again …<//>
      <${ToTab} where=${where} tab="diff" class="button">View diff<//>
    </div>`;
}

function Blocked({ plan, asking, may, open, where }) {
  return html`<p class="p-said">${plan.error}</p>
    <${ConflictList} ...${{ plan, asking, may }} />
    <p>${remoteOf(plan) ? `Nothing was pushed to ${placeInWords(plan)}.` : "No file was changed."} ${plan.in_the_way
      ? "Rebase the result, or choose a side for each file, then apply again."
      : "Resolve the problem, then apply again."}</p>
    <div class="p-row">
      <${ToTab} where=${where} tab="diff" class="button button-primary">View diff<//>
      ${may("apply") && html`<${Button} onClick=${() => open("apply")}>Apply again …<//>`}
      <${Withdraw} ...${{ may, open }} />
    </div>`;
}

function Result({ plan, may, open, where }) {
  const failed = (plan.checks || []).filter((check) => !hasPassed(check));

  const left = (plan.left_out || []).length;
  const checked = (plan.checks || []).length ? "All checks passed." : "No checks were configured.";
  return html`<p class="p-said">
      ${counted(plan.files_changed, "file")} changed${left ? `, ${left} left out` : ""}.${" "}
      ${plan.open_comments > 0 && `${counted(plan.open_comments, "open comment")}. `}
      ${failed.length ? html`<${ToTab} where=${where} tab="checks">${counted(failed.length, "check")} failed or out of date.<//>` : checked}${" "}
      ${remoteOf(plan)
        ? `Nothing is pushed to ${placeInWords(plan)} until you apply.`
        : "Your files stay unchanged until you apply."}
    </p>
    <div class="p-row">
      <${ToTab} where=${where} tab="diff" class="button button-primary">Review diff<//>
      ${may("apply") && html`<${Button} icon="check" onClick=${() => open("apply")}>Apply …<//>`}
      ${may("revise") && html`<${Button} icon="edit" onClick=${() => open("revise")}>Request changes …<//>`}
      <${Withdraw} ...${{ may, open }} />
      ${may("reject") && html`<${Button} icon="x" onClick=${() => open("reject")}>Discard …<//>`}
    </div>`;
}
