// Preact and htm. All modules import them from here; only this module imports the vendored file.
import { html as drawn } from "../vendor/htm-preact-standalone.module.js";
import { escapeInvisible } from "./visible_text.js";

export {
  Component,
  createContext,
  h,
  render,
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "../vendor/htm-preact-standalone.module.js";

/** htm's `html` with invisible and direction-changing characters spelt out, so that a person approves exactly the text
 * they see. Values of attributes, such as typed text, are unchanged. */
export function html(strings, ...values) {
  const safe = values.map((value, place) =>
    typeof value === "string" && !strings[place].endsWith("=") ? escapeInvisible(value) : value,
  );
  return drawn(strings, ...safe);
}
