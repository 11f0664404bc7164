// What the server said against a new plan, by the field that it concerns.

import { wordsOf } from "../validation.js";

const NO_MODEL = "Choose a model: a goal in words needs one, and the server has none as its default.";

/** {field: words}; empty where it concerns none of them. */
export function refusalsOf(problem) {
  const found = {};
  for (const one of problem?.errors ?? []) {
    if (one.where?.[0] === "body" && one.where.length > 1) found[one.where.slice(1).join(".")] = wordsOf(one.problem);
  }
  if (found.model?.startsWith("models.default: names no model")) found.model = NO_MODEL;
  return found;
}
