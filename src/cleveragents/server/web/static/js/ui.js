// Preact and htm under one name: every module of ours imports them from here, and only this one names the vendor.
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

/** htm's `html`, in which no text turns the reading direction of what is beside it: what a person reads before they
 * say yes is what there is. Values of attributes stay as they are, such as what somebody types. */
export function html(strings, ...values) {
  const safe = values.map((value, place) =>
    typeof value === "string" && !strings[place].endsWith("=") ? escapeInvisible(value) : value,
  );
  return drawn(strings, ...safe);
}
