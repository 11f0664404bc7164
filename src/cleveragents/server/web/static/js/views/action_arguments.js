// The arguments of an action as form fields by type.

import { html } from "../ui.js";
import { get } from "../api.js";
import { Loaded, Select, TextArea, TextField } from "../components.js";
import { useLoad } from "../load.js";
import { CommandLine } from "./command_line.js";

/** `values` by name; `onChange({name: value})` gets the value in the type of the API. */
export function ActionArguments({ action, values, onChange, wrong }) {
  const load = useLoad((signal) => get(`/actions/${action}`, {}, { signal }), [action]);
  return html`<${Loaded} load=${load} what="Loading the action">
    ${(found) => found.arguments.map((one) => html`<${Argument} key=${one.name} about=${one} value=${values[one.name]} onChange=${(value) => onChange({ [one.name]: value })} error=${wrong[`arguments.${one.name}`]} />`)}
  <//>`;
}

function Argument({ about, value, onChange, error }) {
  const shared = { label: labelOf(about.name), hint: about.description, optional: !about.required, error };
  const placeholder = about.default === null || about.default === undefined ? undefined : String(about.default);
  if (about.type === "bool" || about.type === "boolean") {
    const options = [{ value: "", label: placeholder ?? "default" }, { value: "true", label: "yes" }, { value: "false", label: "no" }];
    const said = value === undefined ? "" : String(value);
    return html`<${Select} ...${shared} value=${said} options=${options} onInput=${(text) => onChange(text === "" ? "" : text === "true")} />`;
  }
  if (about.type === "list" && about.name === "argv") {
    return html`<${CommandLine} label="Command" value=${value} onChange=${onChange} error=${error} optional=${shared.optional} />`;
  }
  if (about.type === "list") {
    const text = Array.isArray(value) ? value.join("\n") : "";
    const hint = about.description ? `${about.description}, one per line` : "One per line.";
    const split = (typed) => onChange(typed === "" ? "" : typed.split("\n"));
    return html`<${TextArea} ...${shared} hint=${hint} class="mono" rows="3" value=${text} onInput=${split} />`;
  }
  const numeric = about.type === "number" || about.type === "integer";
  const take = (typed) => onChange(numeric && typed !== "" ? Number(typed) : typed);
  return html`<${TextField}
    ...${shared}
    type=${numeric ? "number" : "text"}
    step=${about.type === "number" ? "any" : undefined}
    placeholder=${placeholder}
    value=${value ?? ""}
    onInput=${take}
  />`;
}

/** An argument's name as a label: `timeout_seconds` is "Timeout seconds". */
function labelOf(name) {
  const words = name.replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}
