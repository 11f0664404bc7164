// Logging in: a token is exchanged once for a cookie that scripts cannot read.
//
// `agents serve` prints an address that ends in #TOKEN. What follows # is never sent to a server, and is taken out of
// the address before anything else, so that it stays in no history.

import { html, useEffect, useRef, useState } from "../ui.js";
import { logIn } from "../api.js";
import { Button, TextField } from "../components.js";
import { navigate } from "../router.js";

const ICON = new URL("../../icon.svg", import.meta.url).href;
const TOKEN = /^#[A-Za-z0-9_.~-]{16,}$/;

let byAddress = false; // whether a token was tried that nobody typed

/** Whether the address brings a token along. */
export function tokenInAddress() {
  // At /login nothing else is meant by it: one that is cut short is tried, and its refusal said.
  if (location.pathname === "/login") return location.hash.length > 1;
  return location.pathname === "/" && TOKEN.test(location.hash);
}

/** Takes the token out of the address and logs in with it. */
export function logInFromAddress() {
  const token = location.hash.slice(1);
  byAddress = true;
  navigate(location.pathname === "/login" ? "/" : location.pathname + location.search, { replace: true });
  return logIn(token);
}

export function Login({ onEntered, error, ended }) {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(error && (byAddress || error.code !== "not-authenticated") ? error : null);
  const form = useRef(null);
  useEffect(() => {
    document.title = "Log in · CleverAgents";
    form.current?.querySelector("input")?.focus();
  }, []);
  const enter = async (event) => {
    event.preventDefault();
    if (busy || !token.trim()) return;
    setBusy(true);
    setProblem(null);
    try {
      onEntered(await logIn(token.trim(), { over: true }));
    } catch (refused) {
      setProblem(refused);
      setBusy(false);
    }
  };
  return html`<main id="main" class="login">
    <form ref=${form} class="card login-card" onSubmit=${enter}>
      <img src=${ICON} alt="" width="40" height="40" />
      <h1>Log in to CleverAgents</h1>
      ${ended && html`<p role="status">You were logged out: your login has ended, or was revoked. Nothing is lost.</p>`}
      <${TextField}
        label="Token"
        type="password"
        autocomplete="current-password"
        value=${token}
        onInput=${setToken}
        error=${problem && inWords(problem)}
        hint="The server printed an address with a token in it when it started. An admin can give you one of your own."
      />
      <${Button} kind="primary" type="submit" busy=${busy}>Log in<//>
    </form>
  </main>`;
}

function inWords(problem) {
  if (problem.status === 401) return "That token is not known here. It may have been revoked or have expired.";
  return problem.detail;
}
