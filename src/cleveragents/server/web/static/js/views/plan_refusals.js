// What the server said against a new plan, by the field that it concerns.

import { wordsOf } from "../validation.js";

const NO_MODEL = "Choose a model: a goal in words needs one, and the server has none as its default.";
// Beside these something can be said; what concerns another, such as all limits at once, is said above the form.
const SHOWN = /^(resource|goal|action|actor|model|profile|checks|invariants|to_branch|limits\.\w+|arguments\.\w+)$/;

/** {field: words}; empty where it concerns none of them. */
export function refusalsOf(problem) {
  const found = {};
  for (const one of problem?.errors ?? []) {
    const name = one.where?.[0] === "body" ? one.where.slice(1).join(".").replace(/^(checks|invariants)\.\d+$/, "$1") : "";
    if (SHOWN.test(name)) found[name] = wordsOf(one.problem);
  }
  if (found.model?.startsWith("models.default: no default model")) found.model = NO_MODEL;
  return found;
}
