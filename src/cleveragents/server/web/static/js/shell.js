// The frame of every view: navigation, connection status, user, theme and shortcuts.

import { html, useEffect, useState } from "./ui.js";
import { get, logOut } from "./api.js";
import { Button, Icon, Link } from "./components.js";
import { Shortcuts, useKeys } from "./keys.js";
import { useNotifications } from "./notifications.js";
import { navigate } from "./router.js";
import { useLoad } from "./load.js";
import { useSession } from "./session.js";
import { forgetDrafts } from "./sessions/composer.js";
import { useConnection, useEvents } from "./stream.js";
import { useTheme } from "./theme.js";

const ICON = new URL("../icon.svg", import.meta.url).href;

const PAGES = [
  { to: "/", label: "Board", icon: "board", key: "g b" },
  { to: "/sessions", label: "Sessions", icon: "talk", key: "g t" },
  { to: "/context", label: "Context", icon: "search", key: "g c", role: "operator" },
  { to: "/costs", label: "Costs", icon: "cost", key: "g s" },
  { to: "/events", label: "Audit log", icon: "log", key: "g e" },
  { to: "/jobs", label: "Jobs & workers", icon: "jobs", key: "g j" },
  { to: "/projects", label: "Projects", icon: "folder", key: "g p" },
  { to: "/users", label: "Users", icon: "users", key: "g u", role: "admin" },
  { to: "/docs", label: "API", icon: "book", key: "g a" },
];

const CONNECTION = {
  connecting: ["wait", "Connecting…", "Opening the event stream."],
  live: ["good", "Live", "This page updates automatically."],
  offline: ["bad", "Offline", "Cannot reach the server. This page may be out of date. Retrying."],
};

export function Shell({ path, onLogOut, children }) {
  const { may } = useSession();
  const [theme, nextTheme] = useTheme();
  const [helping, setHelping] = useState(false);
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [path]);
  const pages = PAGES.filter((page) => !page.role || may(page.role));
  useKeys({
    ...Object.fromEntries(pages.map((page) => [page.key, () => navigate(page.to)])),
    "g n": () => may("operator") && navigate("/new"),
    "?": () => setHelping(true),
    t: nextTheme,
  });
  return html`<div class="shell">
    <header class="side">
      <div class="side-top">
        <${Link} to="/" class="brand"><img src=${ICON} alt="" width="24" height="24" /> CleverAgents<//>
        <button
          type="button"
          class="button button-quiet button-icon side-menu"
          aria-label="Menu"
          aria-expanded=${open ? "true" : "false"}
          aria-controls="side-body"
          onClick=${() => setOpen(!open)}
        >
          <${Icon} name=${open ? "close" : "menu"} />
        </button>
      </div>
      <div id="side-body" class=${open ? "side-body side-open" : "side-body"}>
        ${may("operator") &&
        html`<${Link} to="/new" class="button button-primary side-new" aria-keyshortcuts="g n">
          <${Icon} name="plus" />New plan
        <//>`}
        <nav aria-label="Pages">
          <ul>
            ${pages.map((page) => html`<li key=${page.to}><${Entry} page=${page} path=${path} /></li>`)}
          </ul>
        </nav>
        <${Foot} theme=${theme} nextTheme=${nextTheme} onHelp=${() => setHelping(true)} onLogOut=${onLogOut} />
      </div>
    </header>
    <${Banners} />
    <main id="main" tabindex="-1">${children}</main>
    ${helping && html`<${Shortcuts} onClose=${() => setHelping(false)} />`}
  </div>`;
}

function Entry({ page, path }) {
  const here = page.to === "/" ? path === "/" || path.startsWith("/plans/") : path === page.to || path.startsWith(`${page.to}/`);
  return html`<${Link} to=${page.to} class="side-link" aria-current=${here ? "page" : undefined} aria-keyshortcuts=${page.key}>
    <${Icon} name=${page.icon} />${page.label}
  <//>`;
}

function Foot({ theme, nextTheme, onHelp, onLogOut }) {
  const { user, version } = useSession();
  const [tone, word, meaning] = CONNECTION[useConnection()];
  const [notified, toggleNotifications] = useNotifications();
  const exit = async () => {
    await logOut().catch(() => {});
    forgetDrafts();
    onLogOut();
  };
  return html`<div class="side-foot">
    <p class=${`connection tone-${tone}`} role="status" title=${meaning}>
      <span class="dot" aria-hidden="true"></span>${word}
    </p>
    <div class="side-user">
      <div class="cut">
        <div class="cut">${user.name}</div>
        <div class="small faint">${user.role}</div>
      </div>
      <${Button} kind="quiet" icon="out" label="Log out" onClick=${exit} />
    </div>
    <div class="side-tools">
      <${Button} kind="quiet" icon=${{ auto: "auto", light: "sun", dark: "moon" }[theme]} label=${`Change theme (${theme})`} onClick=${nextTheme} />
      <${Button} kind="quiet" icon="bell" label=${notified ? "Turn notifications off" : "Turn notifications on"}
        class=${notified ? "button-on" : ""} aria-pressed=${notified ? "true" : "false"} onClick=${toggleNotifications} />
      <${Button} kind="quiet" icon="keys" label="Keyboard shortcuts" onClick=${onHelp} />
      <span class="small faint">${version}</span>
    </div>
  </div>`;
}

/** The warnings above every view: no connection, and workers that do not isolate commands. */
function Banners() {
  const offline = useConnection() === "offline";
  const { data, reload } = useLoad((signal) => get("/about", {}, { signal }));
  useEvents((event) => event.type === "reset" || event.type.startsWith("worker."), reload);
  const unisolated = data?.unisolated_workers ?? [];
  if (!offline && !unisolated.length) return null;
  return html`<section class="banners" aria-label="Warnings">
    ${offline &&
    html`<p class="banner" role="alert">
      <${Icon} name="tone-bad" /> Cannot reach the server. This page may be out of date. Reconnecting …
    </p>`}
    ${unisolated.length > 0 &&
    html`<p class="banner" role="note" id="unisolated">
      <${Icon} name="tone-bad" /> Commands are not isolated on ${unisolated.join(", ")}: they run with all rights of the worker's user.
    </p>`}
  </section>`;
}
