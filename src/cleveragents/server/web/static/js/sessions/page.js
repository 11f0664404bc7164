// The page of a session: the conversation, the message field, and beside them the plan that a turn is about.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../ui.js";
import { del, newKey, patch, post } from "../api.js";
import { Badge, Button, Dialog, Empty, ErrorBox, Id, Link, Loading, Money, PageHead, TextField, When, confirm, toast, toastProblem } from "../components.js";
import { count, counted } from "../format.js";
import { navigate, setQuery, useLocation } from "../router.js";
import { useSession } from "../session.js";
import { ReferenceContext } from "../plan/markdown.js";
import { shortModel } from "../plan/plan_text.js";
import { Composer, keepDraft } from "./composer.js";
import { FileLines } from "./file_lines.js";
import { entriesOf, piecesByTurn, stateOf, titleOf, usePieces, useTalk } from "./load.js";
import { PlanBeside } from "./plan_beside.js";
import { Turn } from "./turn.js";

const NEAR_PX = 120;
const MOST = 100; // turns shown before "Show earlier turns"

/** The page of the session with this id. */
export function SessionPage({ id }) {
  const load = useTalk(id);
  const gone = [404, 422].includes(load.error?.status); // 422: not a valid id
  if (gone) {
    return html`<${PageHead} title="Not found" />
      <${Empty} title="Session not found" icon="search">
        The session was deleted, or the address is wrong. <${Link} to="/sessions">All sessions<//>
      <//>`;
  }
  if (load.data) return html`<${Known} ...${load.data} error=${load.error} reload=${load.reload} />`;
  if (load.error) return html`<${PageHead} title="Session" /><${ErrorBox} error=${load.error} again=${load.reload} />`;
  return html`<${Loading} what="Loading the session" />`;
}

function Known({ talk, turns, error, reload }) {
  const { mayIn } = useSession();
  const { query } = useLocation();
  const may = mayIn(talk.project, "operator");
  const pieces = usePieces(talk.id);
  const acting = useActing(talk, reload);
  const [whole, setWhole] = useState(false);
  const [reference, setReference] = useState(null);
  const byTurn = useMemo(() => piecesByTurn(turns, pieces), [turns, pieces]);
  const plans = plansOf(turns, byTurn);
  const chosen = plans.includes(query.get("plan")) ? query.get("plan") : plans.at(-1);
  const running = talk.state === "running";
  const from = whole ? 0 : Math.max(0, turns.length - MOST);
  useEffect(() => {
    document.title = `${titleOf(talk)} · CleverAgents`;
  }, [talk.title]);
  useEnd(turns.length, `${pieces.length} ${talk.state} ${chosen}`);
  return html`<div class="plan session" data-session=${talk.id} data-state=${talk.state ?? "new"}>
    <${Head} ...${{ talk, may, acting, running }} />
    ${error && html`<${ErrorBox} error=${error} title="Cannot load the session" again=${reload} />`}
    <div class=${chosen ? "s-columns" : "s-columns s-alone"}>
      <section class="s-talk" aria-label="Conversation">
        ${from > 0 && html`<${Button} small onClick=${() => setWhole(true)}>Show ${from} earlier turns<//>`}
        <${ReferenceContext.Provider} value=${may ? setReference : null}><ol class="p-turns">
          ${turns.slice(from).map(
            (turn, at) => html`<${Turn} key=${turn.number} ...${{ turn, may, acting, chosen }} pieces=${byTurn[from + at]}
              last=${turn === turns.at(-1)} choose=${(plan) => setQuery({ plan })} />`,
          )}
        </ol><//>
        ${!turns.length &&
        html`<${Empty} title="No messages yet" icon="talk">
          Ask a question about ${talk.resource_name ?? talk.resource}, or say what to change. A change becomes a plan, which you review
          before it is applied.
        <//>`}
      </section>
      ${chosen && html`<${PlanBeside} key=${chosen} id=${chosen} />`}
      ${may
        ? html`<${Composer} id=${talk.id} callsTools=${talk.calls_tools} running=${running} stop=${acting.stop} stopping=${acting.busy === "stop"} sent=${reload} />`
        : html`<p class="soft s-composer">You need the operator role in ${talk.project} to send messages.</p>`}
    </div>
    ${reference && html`<${FileLines} talk=${talk} reference=${reference} onClose=${() => setReference(null)} />`}
  </div>`;
}

/** The plans of the turns, in order, with those of the running turn. */
function plansOf(turns, byTurn) {
  const found = [];
  turns.forEach((turn, at) => {
    found.push(...turn.plans);
    if (turn.state === "running") found.push(...entriesOf(byTurn[at]).filter((one) => one.kind === "plan").map((one) => one.plan));
  });
  return [...new Set(found.reverse())].reverse(); // the plan of the latest turn comes last
}

/** Shows the end of a conversation when it is opened and after a new turn, and follows it until the reader scrolls up. */
function useEnd(turns, changed) {
  const before = useRef(0);
  const atEnd = useRef(true);
  useEffect(() => {
    const look = () => {
      const { scrollHeight, clientHeight, scrollTop } = document.documentElement;
      atEnd.current = scrollHeight - clientHeight - scrollTop < NEAR_PX;
    };
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, []);
  useLayoutEffect(() => {
    if (turns > before.current || atEnd.current) scrollTo({ top: document.documentElement.scrollHeight });
    before.current = turns;
  }, [turns, changed]);
}

/** Sends actions on the session, one at a time. `busy` names the running action. */
function useActing(talk, reload) {
  const [busy, setBusy] = useState(null);
  const under = useRef(false);
  const path = `/conversations/${talk.id}`;
  const during = async (name, doIt) => {
    if (under.current) return;
    under.current = true;
    setBusy(name);
    try {
      await doIt();
    } catch (error) {
      toastProblem(error);
    }
    under.current = false;
    setBusy(null);
    reload();
  };
  const fork = (turn) =>
    during(turn ? `fork ${turn}` : "fork", async () => {
      const made = await post(`${path}/fork`, { turn: turn ?? null }, { key: newKey() });
      toast("Forked: this is the copy");
      navigate(`/sessions/${made.id}`);
    });
  const remove = async () => {
    const text = "Removes the session with its turns for good. Its plans stay.";
    if (!(await confirm({ title: "Delete this session?", text, yes: "Delete", danger: true }))) return;
    await during("delete", async () => {
      await del(path);
      keepDraft(talk.id, "");
      toast("Session deleted");
      navigate("/sessions");
    });
  };
  return {
    busy,
    fork,
    remove,
    resume: () => during("resume", () => post(`${path}/resume`)),
    stop: () => during("stop", () => post(`${path}/stop`)),
    raise: (limits) =>
      during("budget", async () => {
        await post(`${path}/budget`, limits);
        await post(`${path}/resume`);
      }),
    rename: (title) => during("rename", () => patch(path, { title })),
    compact: () =>
      during("compact", async () => {
        const now = await post(`${path}/compact`);
        toast(now.compacted > talk.compacted ? `Summarised the turns up to ${now.compacted}` : "No old turns to summarise");
      }),
  };
}

/** Asks for a title. An empty title is not sent. */
function RenameDialog({ talk, acting, close }) {
  const [title, setTitle] = useState(talk.title);
  const send = async (event) => {
    event.preventDefault();
    await acting.rename(title.trim());
    close();
  };
  return html`<${Dialog} title="Rename the session" onClose=${close}>
    <form class="form-part" onSubmit=${send}>
      <${TextField} label="Title" autofocus required maxlength="1000" pattern=".*\\S.*" value=${title} onInput=${setTitle} />
      <div class="form-actions"><${Button} kind="primary" type="submit" busy=${acting.busy === "rename"}>Rename<//></div>
    </form>
  <//>`;
}

function Head({ talk, may, acting, running }) {
  const [renaming, setRenaming] = useState(false);
  const [word, tone] = stateOf(talk.state);
  const off = Boolean(acting.busy);
  return html`<header class="p-head">
    <nav class="p-crumbs" aria-label="Breadcrumb">
      <${Link} to="/sessions">Sessions<//>
      ${talk.forked_from && html`<${Link} to=${`/sessions/${talk.forked_from}`}>fork of <${Id} id=${talk.forked_from} /><//>`}
      <span aria-current="page"><${Id} id=${talk.id} /></span>
      <span class="p-crumb-more">${talk.project} · ${talk.resource_name ?? talk.resource}</span>
    </nav>
    <div class="p-title">
      <div class="p-goal"><h1 tabindex="-1">${titleOf(talk)}</h1></div>
      ${may &&
      html`<div class="p-actions" role="group" aria-label="Actions">
        ${talk.turns > 0 &&
        html`<${Button} icon="branch" busy=${acting.busy === "fork"} disabled=${off} onClick=${() => acting.fork()}
          title="Continue in a copy; this session stays as it is">Fork<//>`}
        ${talk.turns > 4 &&
        html`<${Button} icon="log" busy=${acting.busy === "compact"} disabled=${off || running} onClick=${acting.compact}
          title="Summarise old turns for later prompts; they stay readable">Compact<//>`}
        <${Button} icon="edit" disabled=${off} onClick=${() => setRenaming(true)}>Rename …<//>
        <${Button} kind="quiet" icon="trash" busy=${acting.busy === "delete"} disabled=${off || running} onClick=${acting.remove}>Delete …<//>
      </div>`}
    </div>
    <div class="p-under">
      <span role="status" class="p-state"><${Badge} tone=${tone}>${word}<//></span>
      <span class="p-muted">${counted(talk.turns, "turn")}, ${count(talk.tokens)} tokens${talk.usd !== null && html`, <${Money} usd=${talk.usd} />`}</span>
      <span class="p-muted">started <${When} time=${talk.created} />${talk.by ? ` by ${talk.by}` : ""}</span>
      ${talk.model && html`<span class="p-muted">${shortModel(talk.model)}</span>`}
      ${talk.profile && html`<span class="p-muted">profile ${talk.profile}</span>`}
    </div>
    ${renaming && html`<${RenameDialog} ...${{ talk, acting }} close=${() => setRenaming(false)} />`}
  </header>`;
}
