// Browser notifications of plans that need a person or ended. Off until the user turns them on.
//
// Every tab hears every event. Notifications of one event have the same tag, so that the browser shows one.

import { useState } from "./ui.js";
import { get } from "./api.js";
import { toast } from "./toasts.js";
import { navigate } from "./router.js";
import { useEvents } from "./stream.js";

const KEY = "cleveragents.notifications";
const STATES = ["waiting", "complete", "errored", "constrained", "applied", "cancelled"];
const ENDED = ["unchanged", "applied", "failed", "cancelled"];

/** The text of a notification about a plan; null if the plan neither needs a person nor ended. */
export function notificationOf(plan) {
  const title = (plan.goal ?? "").split("\n")[0].slice(0, 120);
  if (plan.needs && plan.status !== "failed") {
    return { title, body: plan.needs === "review" ? "Ready for review" : `Needs you: ${plan.needs}` };
  }
  return ENDED.includes(plan.status) && !plan.parent ? { title, body: `The plan is ${plan.status}` } : null;
}

/** [on, toggle]: whether this browser shows notifications, and a function that turns them on or off. */
export function useNotifications() {
  const supported = "Notification" in window;
  const [on, setOn] = useState(() => supported && Notification.permission === "granted" && localStorage.getItem(KEY) === "on");
  useEvents(
    (event) => on && event.type === "plan.moved" && STATES.includes(event.facts?.state),
    (event) => tell(event).catch(() => {}), // the plan was deleted, or the server is away
    [on],
  );
  const toggle = async () => {
    const allowed = !on && supported && (await Notification.requestPermission()) === "granted";
    if (!on && !allowed) toast("This browser blocks notifications. Allow them in the settings of this site.");
    localStorage.setItem(KEY, allowed ? "on" : "off");
    setOn(allowed);
    if (allowed) toast("You are notified when a plan needs you or ends");
    else if (on) toast("Notifications are off");
  };
  return [on, toggle];
}

async function tell(event) {
  const path = `/plans/${event.subject}`;
  if (!document.hidden && location.pathname === path) return; // the reader sees it
  const plan = await get(`${path}/summary`);
  // A plan that moved on is reported by its later event.
  const said = plan.phase === event.facts.phase && plan.state === event.facts.state ? notificationOf(plan) : null;
  if (!said) return;
  const shown = new Notification(said.title, { body: said.body, tag: `cleveragents-${event.position}`, icon: "/static/icon.svg" });
  shown.onclick = () => {
    window.focus();
    navigate(path);
    shown.close();
  };
}
