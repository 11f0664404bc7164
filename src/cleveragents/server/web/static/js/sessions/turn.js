// A turn of a session: the question, the steps of the assistant and its answer, as it arrives.

import { html, useMemo, useState } from "../ui.js";
import { Badge, Button, Dialog, Icon, TextField } from "../components.js";
import { counted, shortId } from "../format.js";
import { Markdown } from "../plan/markdown.js";
import { clock } from "../plan/plan_text.js";
import { entriesOf, stateOf } from "./load.js";

const LONGEST = 300;
const LIMITS = { usd: "Dollars", tokens: "Tokens", steps: "Model calls", seconds: "Seconds of a turn" };

/** `last`: the last turn, which can be resumed. `choose(plan)` shows a plan beside the conversation. */
export function Turn({ turn, pieces, last, may, acting, chosen, choose }) {
  const entries = useMemo(() => entriesOf(pieces), [pieces.length, pieces.at(-1)?.number]);
  const running = turn.state === "running";
  const plans = [...new Set([...turn.plans, ...entries.filter((one) => one.kind === "plan").map((one) => one.plan)])];
  return html`<li class="s-turn" data-turn=${turn.number} data-state=${turn.state}>
    <article class="p-turn p-turn-goal" aria-label=${`Message ${turn.number}`}>
      <h2>${turn.by || "You"}<time datetime=${turn.created}>${clock(turn.created)}</time></h2>
      <p class="p-said">${turn.question}</p>
      ${turn.attachments.length > 0 && html`<p class="soft">Attached: ${turn.attachments.map((one) => one.name).join(", ")}</p>`}
    </article>
    ${running ? html`<${Live} entries=${entries} />` : html`<${Ended} ...${{ turn, entries }} />`}
    <div class="p-row s-turn-foot">
      ${plans.map(
        (id) => html`<${Button} key=${id} small icon="board" class=${id === chosen ? "button-on" : ""} aria-pressed=${id === chosen ? "true" : "false"}
          title="Show this plan beside the conversation" onClick=${() => choose(id)}>Plan ${shortId(id)}<//>`,
      )}
      ${may && !running && html`<${TurnActions} ...${{ turn, last, acting }} />`}
    </div>
  </li>`;
}

function Live({ entries }) {
  return html`<div class="s-live">
    ${entries.map((entry) =>
      entry.kind === "text"
        ? html`<article key=${entry.key} class="p-turn" aria-label="Assistant"><${Markdown} text=${entry.text.trim()} /></article>`
        : html`<${Step} key=${entry.key} entry=${entry} />`,
    )}
    <p class="p-working" role="status"><span class="spinner" aria-hidden="true"></span>Working …</p>
  </div>`;
}

function Ended({ turn, entries }) {
  const [word, tone] = stateOf(turn.state);
  const answered = turn.state === "answered";
  const final = entries.findLast((one) => one.kind === "text" && one.text.trim() === turn.answer.trim());
  const steps = answered ? entries.filter((one) => one !== final && one.kind !== "plan") : [];
  return html`${!answered && entries.filter((one) => one.kind === "tool").map((entry) => html`<${Step} key=${entry.key} entry=${entry} />`)}
    ${steps.length > 0 &&
    html`<details class="s-steps">
      <summary>${counted(steps.length, "step")}</summary>
      ${steps.map((entry) => html`<${Step} key=${entry.key} entry=${entry} />`)}
    </details>`}
    ${turn.answer &&
    html`<article class="p-turn" aria-label=${`Answer ${turn.number}`}>
      <h3>Assistant${turn.ended && html`<time datetime=${turn.ended}>${clock(turn.ended)}</time>`}</h3>
      <${Markdown} text=${turn.answer} />
    </article>`}
    ${!answered &&
    html`<div class="s-unanswered" role="status">
      <${Badge} tone=${tone}>${word}<//>
      <span>${turn.error || "The turn was not answered."}</span>
    </div>`}`;
}

function Step({ entry }) {
  if (entry.kind === "plan") return null;
  if (entry.kind === "text") return html`<div class="p-did s-thought"><${Markdown} text=${entry.text.trim()} /></div>`;
  const told = entry.result.replace(/^\w+: /, ""); // often the argument again
  return html`<div class="p-did">
    <p class="p-did-line">
      <${Icon} name=${entry.failed ? "tone-bad" : "right"} /><strong>${entry.tool}</strong>
      <code class="p-did-what">${entry.what.slice(0, LONGEST)}</code>
      ${told && !entry.what.includes(told) && html`<span class="p-did-result">${entry.result.slice(0, LONGEST)}</span>`}
      ${entry.failed && html`<span class="p-did-side"><${Badge} tone="bad">failed<//></span>`}
    </p>
  </div>`;
}

/** The limit that a turn needs raised: [name, least value]; undefined if its error is another one. */
function spentLimit(turn) {
  const options = turn.remedies.find((one) => one.action === "session.budget")?.options ?? {};
  return Object.keys(LIMITS)
    .filter((name) => `limits.${name}` in options)
    .map((name) => [name, options[`limits.${name}`]])[0];
}

/** Asks for a higher limit, then continues the turn. */
function RaiseDialog({ name, least, acting, close }) {
  const [value, setValue] = useState(String(least ?? ""));
  const send = async (event) => {
    event.preventDefault();
    await acting.raise({ [name]: Number(value) });
    close();
  };
  return html`<${Dialog} title="Raise the limit" onClose=${close}>
    <form class="form-part" onSubmit=${send}>
      <${TextField} label=${LIMITS[name]} hint="in total" type="number" min="0" step=${name === "usd" ? "0.01" : "1"} inputmode="decimal"
        autofocus required value=${value} onInput=${setValue} />
      <div class="form-actions"><${Button} kind="primary" type="submit" busy=${acting.busy === "budget"}>Raise and resume<//></div>
    </form>
  <//>`;
}

function TurnActions({ turn, last, acting }) {
  const [raising, setRaising] = useState(false);
  const resumable = last && ["stopped", "interrupted", "failed"].includes(turn.state);
  const spent = resumable && spentLimit(turn);
  return html`${spent &&
    html`<${Button} small icon="edit" disabled=${Boolean(acting.busy)} onClick=${() => setRaising(true)}>Raise limit …<//>`}
    ${raising && spent && html`<${RaiseDialog} name=${spent[0]} least=${spent[1]} acting=${acting} close=${() => setRaising(false)} />`}
    ${resumable &&
    html`<${Button} small icon="play" busy=${acting.busy === "resume"} disabled=${Boolean(acting.busy)} onClick=${acting.resume}
      title="Continue the turn; finished calls are not repeated">Resume<//>`}
    <${Button} class="s-fork" small kind="quiet" icon="branch" busy=${acting.busy === `fork ${turn.number}`} disabled=${Boolean(acting.busy)}
      onClick=${() => acting.fork(turn.number)} label=${`Fork the session after turn ${turn.number}`} />`;
}
