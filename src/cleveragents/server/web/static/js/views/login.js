// The login form: exchanges a token for a cookie that scripts cannot read.
//
// `agents serve` prints an address that ends in #TOKEN. A browser never sends the part after # to a server. It is
// removed from the address first, so that no history keeps it.

import { html, useEffect, useRef, useState } from "../ui.js";
import { logIn } from "../api.js";
import { Button, TextField } from "../components.js";
import { navigate } from "../router.js";

const ICON = new URL("../../icon.svg", import.meta.url).href;
const TOKEN = /^#[A-Za-z0-9_.~-]{16,}$/;

let byAddress = false; // whether a token from the address was tried

/** Whether the address contains a token. */
export function tokenInAddress() {
  // At /login any hash is a token: a truncated one is tried, and its refusal shown.
  if (location.pathname === "/login") return location.hash.length > 1;
  return location.pathname === "/" && TOKEN.test(location.hash);
}

/** Removes the token from the address and logs in with it. */
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
      ${ended && html`<p role="status">You were logged out: your session expired or was revoked. Your plans are not affected.</p>`}
      <${TextField}
        label="Token"
        type="password"
        autocomplete="current-password"
        value=${token}
        onInput=${setToken}
        error=${problem && inWords(problem)}
        hint="A server in a terminal prints an address with a token at its first start. Otherwise, run agents user token admin on its machine, or ask an admin for a token."
      />
      <${Button} kind="primary" type="submit" busy=${busy}>Log in<//>
    </form>
  </main>`;
}

function inWords(problem) {
  if (problem.status === 401) return "Invalid token: it is unknown, expired or revoked.";
  return problem.detail;
}
