// The client of /api: JSON bodies, the CSRF token of the session on every change, problem details as errors.
//
// A GET that fails is retried, because it changes nothing. A POST is not; with the same idempotency key its caller can
// retry without doing it twice.

const RETRIES = 2;
const PAUSE_MS = 400;

let csrf = null;
let name = null; // of the logged-in user, as far as this tab knows
const signedOut = new Set();

/** A failed request: `status` (0: server unreachable), `code`, `detail`, `errors` by field, `remedies`. */
export class Problem extends Error {
  constructor(status, code, detail, errors = [], remedies = []) {
    super(detail);
    this.status = status;
    this.code = code;
    this.detail = detail;
    this.errors = errors;
    this.remedies = remedies;
  }

  get isOffline() {
    return this.status === 0;
  }

  /** The problem of one field of the request body, or null. */
  of(field) {
    const found = this.errors.find((one) => one.where?.[0] === "body" && one.where.slice(1).join(".") === field);
    return found ? found.problem : null;
  }
}

/** A new idempotency key: two requests with the same key count as one. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** `path` with `query`, without null, undefined and "" values. An array repeats its parameter. */
export function withQuery(path, query = {}) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") params.append(name, String(one));
    }
  }
  const text = params.toString();
  return text ? `${path}?${text}` : path;
}

/** GET /api + path. `signal` cancels the request. `as: "text"` returns the body as text. */
export async function get(path, query = {}, { signal, as = "json" } = {}) {
  const address = withQuery(`/api${path}`, query);
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await exchange(address, { signal }, as);
    } catch (error) {
      const passing = error instanceof Problem && (error.isOffline || error.status === 503 || error.status === 429);
      if (!passing || attempt >= RETRIES || signal?.aborted) throw error;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * (attempt + 1)));
    }
  }
}

/** POST /api + path. Pass the same `key` to retry a request; without one each call is a new request. */
export function post(path, body = {}, { key = newKey(), signal } = {}) {
  return change("POST", path, body, { "Idempotency-Key": key }, signal);
}

export function patch(path, body) {
  return change("PATCH", path, body, {});
}

export function put(path, body) {
  return change("PUT", path, body, {});
}

export function del(path) {
  return change("DELETE", path, undefined, {});
}

/** All items of a list, read page by page, up to `most`. */
export async function all(path, query = {}, { most = 2000, signal } = {}) {
  const items = [];
  let after = null;
  do {
    const page = await get(path, { limit: 200, ...query, ...(after === null ? {} : { after }) }, { signal });
    items.push(...page.items);
    after = page.next;
  } while (after !== null && after !== undefined && items.length < most);
  return items;
}

/** The session: {user: {name, role, projects}, csrf, version}. Throws a Problem with status 401 without one. */
export async function session() {
  const found = await get("/session");
  csrf = found.csrf ?? null;
  name = found.user.name;
  return found;
}

/** Exchanges a token for a session cookie. If the browser has a session that this tab does not know, throws a Problem
 * with code `csrf`; with `over` the new session replaces it. */
export async function logIn(token, { over = false } = {}) {
  try {
    await changed("POST", "/session", { token }, {});
  } catch (error) {
    if (error.code !== "csrf" || !over) throw error;
    await session();
    await changed("POST", "/session", { token }, {});
  }
  return session();
}

export async function logOut() {
  await del("/session");
  csrf = null;
  name = null;
}

/** Calls `listener` when the session has ended. Returns a function that removes the listener. */
export function onSignedOut(listener) {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

/** Reports the end of the session, found by a request or by the stream. */
export function reportSignedOut() {
  for (const listener of signedOut) listener();
}

async function change(method, path, body, headers, signal) {
  try {
    return await changed(method, path, body, headers, signal);
  } catch (error) {
    if (error.code !== "csrf" || name === null) throw error;
    // Another tab has logged in since: the cookie and its CSRF token are new.
    const found = await get("/session");
    if (found.user.name !== name) {
      // Keep the old CSRF token: requests of the earlier user must stay refused.
      throw new Problem(403, "another-user", `${found.user.name} is now logged in on this browser. Reload this page.`);
    }
    csrf = found.csrf ?? null;
    return changed(method, path, body, headers, signal);
  }
}

async function changed(method, path, body, headers, signal) {
  const options = { method, headers: { ...headers }, signal };
  if (csrf !== null) options.headers["X-CSRF-Token"] = csrf;
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  return exchange(`/api${path}`, options, "json");
}

async function exchange(address, options, as) {
  let response;
  try {
    response = await fetch(address, { credentials: "same-origin", cache: "no-store", ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem(0, "unreachable", "Check that `agents serve` is running.");
  }
  if (!response.ok) throw await problemOf(response, address);
  if (response.status === 204) return null;
  return as === "text" ? response.text() : response.json();
}

async function problemOf(response, address) {
  let said = {};
  try {
    said = await response.json();
  } catch {
    // Not JSON, such as the error page of a proxy: only the status is known.
  }
  if (response.status === 401 && !address.startsWith("/api/session")) reportSignedOut();
  const detail = said.detail ?? `The server answered ${response.status} ${response.statusText}`.trim();
  return new Problem(response.status, said.code ?? "error", detail, said.errors ?? [], said.remedies ?? []);
}
