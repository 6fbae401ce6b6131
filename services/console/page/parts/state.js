// Words for states, and what stands in place of a list that has not come or cannot be shown.
import { html, useRef } from "../lib.js";
import { Link } from "./route.js";

const GOOD = new Set(["Active", "ready", "connected", "active", "open"]);
const BAD = new Set(["Failed", "not ready"]);

export const State = ({ text, detail = "" }) =>
  html`<span class=${`state ${GOOD.has(text) ? "good" : BAD.has(text) ? "bad" : "wait"}`} title=${detail}>${text}
    </span>`;

/** Show `children` once a watched or fetched list is there; before and otherwise the reason. */
export function Loaded({ of, children }) {
  if (of.error)
    return html`<p class="failure" role="alert">
      ${of.error.status === 404 ? "This does not exist, or you may not see it." : of.error.message}</p>`;
  if (!(of.ready ?? of.data !== null)) return html`<p class="empty" role="status">Loading …</p>`;
  return html`${
    of.lost &&
    html`<p class="lost"
    role="status">The connection to the console is lost; trying again. Numbers are those of before.</p>`
  }${children}`;
}

/** Whether something has been there since its page was opened. */
export function useSeen(it) {
  const seen = useRef(false);
  if (it) seen.current = true;
  return seen.current;
}

/** A page of something that is not there, with where to go from it. `places`: [parts of the place, title] of each. */
export const Missing = ({ title, text, places }) =>
  html`<h1>${title}</h1><p class="failure" role="alert">${text}</p>
    <ul>${places.map(([to, name]) => html`<li key=${name}><${Link} to=${to}>${name}<//></li>`)}</ul>`;

/** Terms and values, side by side. Values that are missing are left out. */
export const Facts = ({ of }) =>
  html`<dl class="facts">${Object.entries(of)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([term, value]) => html`<div key=${term}><dt>${term}</dt><dd>${value}</dd></div>`)}</dl>`;
