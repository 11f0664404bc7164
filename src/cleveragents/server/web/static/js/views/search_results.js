// Plans whose transcript, answer or changes contain the text of the board's filter.

import { html, useEffect, useState } from "../ui.js";
import { get } from "../api.js";
import { Badge, Icon, Link, When } from "../components.js";
import { statusOf } from "../plan/plan_text.js";

const PAUSE_MS = 250;
const SHORTEST = 2;
const PLACES = { goal: "Goal", answer: "Answer", transcript: "Transcript", changes: "Changes" };

/** {found, busy}: the plans that the server found for a text, a moment after the last key. */
export function useSearch(text, project) {
  const wanted = text.trim().slice(0, 200);
  const [state, setState] = useState({ found: [], busy: false });
  useEffect(() => {
    if (wanted.length < SHORTEST) {
      setState({ found: [], busy: false });
      return undefined;
    }
    const stop = new AbortController();
    setState((now) => ({ ...now, busy: true }));
    const timer = setTimeout(async () => {
      // The filter above works without the server; the frame shows that the server is offline.
      const said = await get("/search", { text: wanted, project: project || undefined }, { signal: stop.signal }).catch(() => null);
      if (!stop.signal.aborted) setState({ found: said?.items ?? [], busy: false });
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [wanted, project]);
  return state;
}

/** The found plans with the text around each match. */
export function SearchResults({ found, text }) {
  if (!found.length) return null;
  return html`<section class="group tone-off" aria-labelledby="group-found">
    <h2 id="group-found" class="group-head"><${Icon} name="search" />Found in plans<span class="group-count">${found.length}</span></h2>
    <ul class="group-rows">
      ${found.map(
        ({ plan, matches }) => html`<li key=${plan.id} class="row row-found">
          <div class="row-main">
            <${Link} to=${`/plans/${plan.id}`} class="row-link">${plan.goal}<//>
            ${matches.map(
              (one, at) => html`<p key=${at} class="row-meaning"><span class="found-place">${PLACES[one.place] ?? one.place}</span> ${marked(one.text, text.trim())}</p>`,
            )}
          </div>
          <div class="found-facts"><${Status} plan=${plan} /><${When} time=${plan.updated} /></div>
        </li>`,
      )}
    </ul>
  </section>`;
}

function Status({ plan }) {
  const [word, tone] = statusOf(plan);
  return html`<${Badge} tone=${tone}>${word}<//>`;
}

function marked(text, wanted) {
  const at = text.toLowerCase().indexOf(wanted.toLowerCase());
  if (at < 0) return text;
  return html`${text.slice(0, at)}<mark>${text.slice(at, at + wanted.length)}</mark>${text.slice(at + wanted.length)}`;
}
