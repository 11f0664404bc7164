// The form of a new plan: a goal or an action, the repository, checks, actor, model and budget.

import { html, useRef, useState } from "../ui.js";
import { all, get, newKey, post } from "../api.js";
import { Button, Empty, ErrorBox, Loaded, PageHead, Select, TextArea, TextField, Toggle, toast } from "../components.js";
import { useLoad } from "../load.js";
import { navigate, useLocation } from "../router.js";
import { useSession } from "../session.js";
import { ActionArguments } from "./action_arguments.js";
import { FirstStart } from "./first_start.js";
import { bodyOf, draftOf, EMPTY, problemsOf } from "./plan_draft.js";
import { profileInWords } from "./profile_text.js";

const GOAL = "";
const APPLYING = [
  { value: "", label: "By profile" },
  { value: "review", label: "Review first" },
  { value: "auto", label: "Apply" },
];

export function NewPlan() {
  const { may } = useSession();
  if (may("operator")) return html`<${NewPlanForOperators} />`;
  return html`
    <${PageHead} title="New plan" />
    <${Empty} title="Operators only" icon="play">
      <p>You need the operator role in a project. Ask an admin of the project.</p>
    <//>
  `;
}

function NewPlanForOperators() {
  const { mayIn } = useSession();
  const { query } = useLocation();
  const from = query.get("from");
  const load = useLoad(async (signal) => {
    const lists = ["/resources", "/actions", "/models", "/profiles"];
    const reads = lists.map((path) => all(path, {}, { signal }));
    const [resources, actions, models, profiles] = await Promise.all(reads);
    const before = from ? draftOf(await get(`/plans/${encodeURIComponent(from)}`, {}, { signal })) : null;
    return { resources: resources.filter((one) => mayIn(one.project, "operator")), actions, models, profiles, before };
  }, [from]);
  return html`
    <${PageHead}
      title="New plan"
      lead=${from
        ? "A new plan with the settings of an earlier one. The earlier plan stays."
        : "The plan runs in a sandbox. The repository stays unchanged until the result is applied."}
    />
    <${Loaded} load=${load} what="Loading the form">
      ${(known) => (known.resources.length ? html`<${PlanForm} key=${from ?? ""} ...${known} />` : html`<${FirstStart} always onAdded=${load.reload} />`)}
    <//>
  `;
}

function PlanForm({ resources, actions, models, profiles, before }) {
  const { query } = useLocation();
  const first = query.get("resource") ?? (resources.length === 1 ? resources[0].name : "");
  const [draft, setDraft] = useState(before ?? { ...EMPTY, resource: first, goal: query.get("goal") ?? "" });
  const [refused, setRefused] = useState(null);
  const [busy, setBusy] = useState(false);
  const key = useRef(newKey());
  const set = (entry) => {
    setDraft((before) => ({ ...before, ...entry }));
    key.current = newKey(); // a changed form is another request
  };
  const wrong = problemsOf(draft, refused);
  const send = async (event) => {
    event.preventDefault();
    if (busy) return;
    const form = event.currentTarget;
    const missing = problemsOf(draft, null, true);
    if (Object.keys(missing).length) {
      setRefused({ fields: missing });
      form.querySelector("[data-first]")?.focus();
      return;
    }
    setBusy(true);
    setRefused(null);
    try {
      const made = await post("/plans", bodyOf(draft), { key: key.current });
      toast("Plan started");
      navigate(`/plans/${made.id ?? made.plan?.id}`);
    } catch (problem) {
      setRefused(problem);
      setBusy(false);
      requestAnimationFrame(() => requestAnimationFrame(() => form.querySelector("[aria-invalid]")?.focus()));
    }
  };
  const general = refused?.detail && !Object.keys(wrong).length;
  return html`<form class="form" onSubmit=${send} noValidate>
    <div class="form-part card card-body">
      ${general && html`<${ErrorBox} error=${refused} title="Plan refused" />`}
      <${What} draft=${draft} set=${set} wrong=${wrong} actions=${actions} />
      <${Select}
        label="Repository"
        value=${draft.resource}
        onInput=${(resource) => set({ resource, branch: "" })}
        error=${wrong.resource}
        options=${[
          { value: "", label: "Choose…", disabled: true },
          ...resources.map((one) => ({ value: one.name, label: `${one.project} / ${one.name}` })),
        ]}
      />
      <${TextArea}
        label="Checks"
        optional
        rows="2"
        class="mono"
        placeholder="pytest -q"
        hint="Commands that must pass in the sandbox, one per line."
        value=${draft.checks}
        onInput=${(checks) => set({ checks })}
        error=${wrong.checks}
      />
      <${TextArea}
        label="Invariants"
        optional
        rows="2"
        placeholder="Change nothing under migrations/"
        hint="Rules that the result must not break, one per line."
        value=${draft.invariants}
        onInput=${(invariants) => set({ invariants })}
        error=${wrong.invariants}
      />
      <div class="form-actions">
        <${Button} kind="primary" type="submit" busy=${busy} icon="play">Start plan<//>
        <span class="small faint">You can cancel it at any time.</span>
      </div>
    </div>
    <${Bounds}
      ...${{ draft, set, wrong, models, profiles }}
      remote=${resources.find((one) => one.name === draft.resource && one.kind === "remote")}
    />
  </form>`;
}

function What({ draft, set, wrong, actions }) {
  const usable = actions.filter((one) => !one.problem && one.name !== "builtin/goal" && one.name !== "builtin/goals");
  const choices = [{ value: GOAL, label: "Goal" }, ...usable.map((one) => ({ value: one.name, label: one.name }))];
  const described = usable.find((one) => one.name === draft.action)?.description;
  return html`
    <${Select}
      label="Action"
      value=${draft.action}
      onInput=${(action) => set({ action, arguments: {} })}
      options=${choices}
      hint=${described}
      error=${wrong.action}
    />
    ${draft.action === GOAL
      ? html`<${TextArea}
          label="Goal"
          rows="5"
          autofocus
          data-first
          placeholder="Add a --json flag to the export command, with tests"
          hint="Describe the change and how to verify it."
          value=${draft.goal}
          onInput=${(goal) => set({ goal })}
          error=${wrong.goal}
        />`
      : html`<${ActionArguments}
          key=${draft.action}
          action=${draft.action}
          values=${draft.arguments}
          onChange=${(entry) => set({ arguments: { ...draft.arguments, ...entry } })}
          wrong=${wrong}
        />`}
  `;
}

function Bounds({ draft, set, wrong, models, profiles, remote }) {
  const actors = useLoad(
    async (signal) => (draft.resource ? all("/actors", { resource: draft.resource }, { signal }) : []),
    [draft.resource],
  );
  const nameOf = (one) => one.name ?? one;
  const usually = profiles.find((one) => one.default);
  const chosen = profiles.find((one) => one.name === draft.profile) ?? usually;
  const usual = (label) => ({ value: "", label });
  const number = (name, label, extra = {}) => html`<${TextField}
    label=${label}
    type="number"
    min="0"
    inputmode="decimal"
    placeholder="default"
    value=${draft[name]}
    onInput=${(value) => set({ [name]: value })}
    error=${wrong[`limits.${name}`]}
    ...${extra}
  />`;
  return html`<div class="form-part card card-body">
    <h2>Options</h2>
    <${Select}
      label="Executor"
      value=${draft.actor}
      onInput=${(actor) => set({ actor })}
      error=${wrong.actor}
      options=${[usual("Default"), ...(actors.data ?? []).filter((one) => !one.problem).map(nameOf)]}
    />
    <${TextField}
      label="Model"
      optional
      list="models"
      placeholder="Default"
      value=${draft.model}
      onInput=${(model) => set({ model })}
      error=${wrong.model}
    />
    <datalist id="models">
      ${models.filter((one) => one.key !== "missing").map((one) => html`<option key=${one.model} value=${one.model}></option>`)}
    </datalist>
    <${Select}
      label="Profile"
      value=${draft.profile}
      onInput=${(profile) => set({ profile })}
      error=${wrong.profile}
      hint=${chosen ? profileInWords(chosen) : "Actions allowed without approval."}
      options=${[usual(usually ? `Default (${usually.name})` : "Default"), ...profiles.map(nameOf)]}
    />
    <${Toggle}
      label="Result"
      value=${draft.apply}
      onInput=${(apply) => set({ apply })}
      options=${APPLYING}
    />
    ${remote &&
    html`<${TextField}
      label="New branch"
      optional
      class="mono"
      placeholder="agents/{plan}"
      hint=${`Branch to push the result to. Empty: push to ${remote.branch}.`}
      value=${draft.branch}
      onInput=${(branch) => set({ branch })}
      error=${wrong.to_branch}
    />`}
    <h2>Budget</h2>
    <p class="hint">The plan pauses and asks before it exceeds a limit.</p>
    <div class="form-row">
      ${number("usd", "Dollars", { step: "0.01" })} ${number("tokens", "Tokens", { step: "1000" })}
      ${number("steps", "Steps")} ${number("seconds", "Seconds")}
    </div>
  </div>`;
}
