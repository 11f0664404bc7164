// The entry point: logs in, finds the view of the address and draws it in its frame.

import { html, render, useEffect, useErrorBoundary, useState } from "./ui.js";
import { onSignedOut, session } from "./api.js";
import { ErrorBox, Loading, toast, Toasts } from "./components.js";
import { navigate, useLocation } from "./router.js";
import { SessionContext } from "./session.js";
import { wake } from "./stream.js";
import { Shell } from "./shell.js";
import { Board } from "./views/board.js";
import { ContextExplorer } from "./views/context.js";
import { Costs } from "./views/costs.js";
import { ApiReference } from "./views/docs.js";
import { AuditLog } from "./views/events.js";
import { Jobs } from "./views/jobs.js";
import { Login, tokenInAddress, logInFromAddress } from "./views/login.js";
import { NewPlan } from "./views/new_plan.js";
import { NotFound } from "./views/not_found.js";
import { PlanPage } from "./plan/page.js";
import { Projects } from "./views/projects.js";
import { Users } from "./views/users.js";
import { Sessions } from "./sessions/list.js";
import { SessionPage } from "./sessions/page.js";

const VIEWS = [
  [/^\/$/, () => html`<${Board} />`],
  [/^\/plans\/([^/]+)$/, (id) => html`<${PlanPage} key=${id} id=${id} />`],
  [/^\/sessions$/, () => html`<${Sessions} />`],
  [/^\/sessions\/([^/]+)$/, (id) => html`<${SessionPage} key=${id} id=${id} />`],
  [/^\/new$/, () => html`<${NewPlan} />`],
  [/^\/context$/, () => html`<${ContextExplorer} />`],
  [/^\/costs$/, () => html`<${Costs} />`],
  [/^\/events$/, () => html`<${AuditLog} />`],
  [/^\/jobs$/, () => html`<${Jobs} />`],
  [/^\/projects$/, () => html`<${Projects} />`],
  [/^\/users$/, () => html`<${Users} />`],
  [/^\/docs$/, () => html`<${ApiReference} />`],
];

function viewOf(path) {
  for (const [pattern, view] of VIEWS) {
    const found = pattern.exec(path);
    if (found) return view(...found.slice(1).map(decoded));
  }
  return html`<${NotFound} path=${path} />`;
}

/** The decoded part of an address, or the part as it is if it is malformed. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Shows the error of a failed view in its place; the rest of the page keeps working. A new address retries. */
function Guarded({ path, children }) {
  const [error, forget] = useErrorBoundary((thrown) => console.error(thrown));
  useEffect(() => forget(), [path]);
  if (error) return html`<${ErrorBox} error=${error} title="View failed" again=${forget} />`;
  return children;
}

/** The session of the token in the address. An existing login wins: a link must not switch the user. */
async function byAddress() {
  try {
    return await logInFromAddress();
  } catch (error) {
    if (error.code !== "csrf") throw error;
    const found = await session();
    toast(`You are already logged in as ${found.user.name}. Log out to use another token.`);
    return found;
  }
}

function App() {
  const [who, setWho] = useState({ state: "asking" });
  const { path } = useLocation();
  const ask = async () => {
    try {
      const found = tokenInAddress() ? await byAddress() : await session();
      setWho({ state: "in", session: found });
      wake();
    } catch (error) {
      setWho(error.status === 401 || error.status === 403 ? { state: "out", error } : { state: "lost", error });
    }
  };
  useEffect(() => {
    ask();
    return onSignedOut(() => setWho((was) => (was.state === "out" ? was : { state: "out", ended: was.state === "in" })));
  }, []);
  if (who.state === "asking") return html`<${Loading} what="Starting" />`;
  if (who.state === "lost") {
    return html`<main id="main" class="alone"><${ErrorBox} error=${who.error} again=${ask} /></main>`;
  }
  const entered = (found) => {
    setWho({ state: "in", session: found });
    wake();
    if (location.pathname === "/login") navigate("/", { replace: true });
  };
  if (who.state === "out" || path === "/login") return html`<${Login} onEntered=${entered} error=${who.error} ended=${who.ended} />`;
  return html`<${SessionContext.Provider} value=${who.session}>
    <${Shell} path=${path} onLogOut=${() => setWho({ state: "out" })}>
      <${Guarded} path=${path}>${viewOf(path)}<//>
    <//>
    <${Toasts} />
  <//>`;
}

render(html`<${App} />`, document.getElementById("app"));
