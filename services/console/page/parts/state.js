// Words for states, and what stands in place of a list that has not come or cannot be shown.
import { html } from "../lib.js";

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

/** Terms and values, side by side. Values that are missing are left out. */
export const Facts = ({ of }) =>
  html`<dl class="facts">${Object.entries(of)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([term, value]) => html`<div key=${term}><dt>${term}</dt><dd>${value}</dd></div>`)}</dl>`;
