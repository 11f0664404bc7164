// The server's errors for a new plan, by form field.

import { wordsOf } from "../validation.js";

const NO_MODEL = "Choose a model: a goal needs one, and the server has no default model.";
// Fields that can show an error. Other errors, such as one about all limits, are shown above the form.
const SHOWN = /^(resource|goal|action|actor|model|profile|checks|invariants|to_branch|limits\.\w+|arguments\.\w+)$/;

/** {field: text}; empty if no field is concerned. */
export function refusalsOf(problem) {
  const found = {};
  for (const one of problem?.errors ?? []) {
    const name = one.where?.[0] === "body" ? one.where.slice(1).join(".").replace(/^(checks|invariants)\.\d+$/, "$1") : "";
    if (SHOWN.test(name)) found[name] = wordsOf(one.problem);
  }
  if (found.model?.startsWith("models.default: no default model")) found.model = NO_MODEL;
  return found;
}
