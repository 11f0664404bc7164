// What the server said against a new plan, by the field that it concerns.

import { wordsOf } from "../validation.js";

const FIELDS = { "unknown-model": "model", "unknown-resource": "resource", "unknown-actor": "actor", "unknown-action": "action" };
const NO_MODEL = "Choose a model: a goal in words needs one, and the server has none as its default.";
const ARGUMENT = /^action [^:]+: (\w+) (.+?)(?:; `agents [^`]*`.*)?$/s;

/** {field: words}; empty where it concerns none of them. */
export function refusalsOf(problem) {
  const found = {};
  for (const one of problem?.errors ?? []) {
    if (one.where?.[0] === "body" && one.where.length > 1) found[one.where.slice(1).join(".")] = wordsOf(one.problem);
  }
  const detail = problem?.detail ?? "";
  if (!detail || Object.keys(found).length) return found;
  if (FIELDS[problem.code]) return { [FIELDS[problem.code]]: detail };
  if (detail.startsWith("models.default: names no model")) return { model: NO_MODEL };
  if (/cannot be a branch/.test(detail)) return { to_branch: detail };
  if (/^model /.test(detail)) return { model: detail };
  if (/^profile '/.test(detail)) return { profile: detail };
  const [, name, said] = (problem.code === "invalid-arguments" && ARGUMENT.exec(detail)) || [];
  if (name) return { [`arguments.${name}`]: /is missing$/.test(said) ? "This is needed." : `It ${said}.` };
  return found;
}
