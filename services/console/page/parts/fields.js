// Fields of an entry in a form, as the API lists them at `fields`: amounts with units, choices with what they mean, and
// what the API finds wrong, each at its field.
import { html, useEffect, useRef, useState } from "../lib.js";
import { written } from "./usage.js";

const SIZES = { B: "", KiB: "Ki", MiB: "Mi", GiB: "Gi", TiB: "Ti", kB: "k", MB: "M", GB: "G", TB: "T" };
const TIMES = { ms: 1, s: 1000, min: 60_000, h: 3_600_000, d: 86_400_000 };
const DIGITS = /^\s*\d+\s*$/;

/** The value at a path such as "messageTtl.maximum". */
export const valueAt = (entry, name) => name.split(".").reduce((at, key) => at?.[key], entry);

/** The entry with another value at a path; undefined takes it away, and what is empty then. */
export function withValue(entry, name, value) {
  const [key, ...below] = name.split(".");
  const { [key]: before, ...others } = entry;
  const next = below.length
    ? withValue(typeof before === "object" && before !== null ? before : {}, below.join("."), value)
    : value;
  const empty = next === undefined || (below.length > 0 && Object.keys(next).length === 0);
  if (empty) return others;
  return key in entry ? { ...entry, [key]: next } : { ...others, [key]: next };
}

/**
 * What the API finds wrong with `entry`: field → reason, "" for its name; what belongs to no shown field is in
 * `others`.
 */
export function faultsOf(error, entry, fields) {
  /** @type {Record<string, string>} */
  const at = {};
  const others = [];
  for (const it of error?.problem?.errors || []) {
    const name = it.field || "";
    const field =
      fields.find((known) => known === name) ?? fields.find((known) => name && known.startsWith(`${name}.`));
    if (it.entry === entry && field !== undefined) at[field] = at[field] ? `${at[field]}; ${it.reason}` : it.reason;
    else others.push(it);
  }
  return { at, others };
}

/**
 * What is wrong with `entry`, by the fields that its form shows, and `form`, the ref of that form, whose first wrong
 * field gets the focus.
 */
export function useFaults(error, entry, fields) {
  const form = useRef(null);
  useEffect(() => form.current?.querySelector("[aria-invalid=true]")?.focus(), [error]);
  return { form, ...faultsOf(error, entry, fields) };
}

/** The label, the control and below it what is wrong, or else what the field means. */
export function Labelled({ label, text = "", fault = "", id, children }) {
  return html`<div class="field"><label for=${id}>${label}</label>${children}
    ${
      fault
        ? html`<span class="failure" id=${`${id}-fault`} role="alert">${fault}</span>`
        : text && html`<span class="soft" id=${`${id}-text`}>${text}</span>`
    }</div>`;
}

const idOf = (name) => `field-${name.replace(/\W/g, "-")}`;
/** What tells a control's label, text and fault to readers of the screen. */
export const told = (name, fault, text) => ({
  id: idOf(name),
  "aria-invalid": fault ? "true" : undefined,
  "aria-describedby": fault ? `${idOf(name)}-fault` : text ? `${idOf(name)}-text` : undefined,
});

/** A control with its label. `name`: of its field in the entry; `at`: what is wrong, by field; `children(own)`: it. */
export const Control = ({ name, label, at, text = "", children }) => html`<${Labelled} label=${label} text=${text}
  fault=${at[name]} id=${idOf(name)}>${children(told(name, at[name], text))}<//>`;

/**
 * A field. `field`: as the API lists it; `value`: in the entry, undefined for none; `queues`: what a field that names a
 * queue proposes.
 */
export function Field({ field, value, onChange, fault = "", queues = [] }) {
  const { name, kind, label, text, choices } = field;
  const own = told(name, fault, text);
  const say = (given) => onChange(given === "" ? undefined : given);
  let control;
  if (kind === "size")
    control = html`<${Amount} own=${own} label=${label} value=${value} onChange=${onChange}
      units=${SIZES} read=${readSize}
    write=${(amount, unit) => (unit === "" ? Number(amount) : amount + unit)} />`;
  else if (kind === "milliseconds")
    control = html`<${Amount} own=${own} label=${label} value=${value} onChange=${onChange} units=${TIMES}
    read=${readTime} write=${(amount, unit) => Number(amount) * unit} />`;
  else if (kind === "boolean")
    control = html`<select ...${own} value=${value === undefined ? "" : String(value)}
    onChange=${(event) => onChange({ true: true, false: false }[event.currentTarget.value])}>
    <option value="">no</option><option value="true">yes</option>${
      value === false && html`<option value="false">no, stated</option>`
    }</select>`;
  else if (kind === "choice")
    control = html`<select ...${own} value=${value ?? ""}
    onChange=${(event) => say(event.currentTarget.value)}><option value="">not stated</option>
    ${Object.entries(choices).map(
      ([key, means]) => html`<option key=${key} value=${key}>${key}: ${means}</option>`,
    )}</select>`;
  else if (kind === "queue")
    control = html`<input ...${own} list=${`${own.id}-known`} value=${value ?? ""} autocomplete="off"
    placeholder="none" onInput=${(event) => say(event.currentTarget.value)} /><datalist id=${`${own.id}-known`}>
    ${queues.map((it) => html`<option key=${it} value=${it} />`)}</datalist>`;
  else
    control = html`<input ...${own} value=${value ?? ""} inputmode=${kind === "text" ? "text" : "decimal"}
      autocomplete="off"
    onInput=${(event) => say(kind === "text" ? event.currentTarget.value : plain(event.currentTarget.value))} />`;
  return html`<${Labelled} label=${label} text=${text} fault=${fault} id=${own.id}>${control}<//>`;
}

/** A number where the text is one; the API says what is wrong with another text. */
const plain = (text) => (/^\s*-?\d+(\.\d+)?\s*$/.test(text) ? Number(text) : text.trim());

/** Amount and unit of a size in an entry. */
function readSize(value) {
  if (value === undefined || value === null) return ["", "Mi"];
  const found = /^(\d+)(\D*)$/.exec(typeof value === "number" ? written(value) : String(value));
  return found && Object.values(SIZES).includes(found[2]) ? [found[1], found[2]] : [String(value), ""];
}

function readTime(value) {
  if (value === undefined || value === null) return ["", 1000];
  if (typeof value !== "number") return [String(value), 1];
  const unit = Object.values(TIMES)
    .reverse()
    .find((it) => value && value % it === 0);
  return [String(value / (unit || 1)), unit || 1];
}

/** An amount and its unit. What is no number is kept as it is: the API says what is wrong with it. */
function Amount({ own, label, value, onChange, units, read, write }) {
  const [[amount, unit], set] = useState(() => read(value));
  const change = (next, of) => {
    set([next, of]);
    onChange(next.trim() === "" ? undefined : DIGITS.test(next) ? write(next.trim(), of) : next.trim());
  };
  return html`<span class="amount-of"><input ...${own} inputmode="decimal" value=${amount} autocomplete="off"
    onInput=${(event) => change(event.currentTarget.value, unit)} /><select aria-label=${`unit of ${label}`}
      value=${String(unit)}
    onChange=${(event) =>
      change(
        amount,
        Object.values(units).find((it) => String(it) === event.currentTarget.value),
      )}>
    ${Object.entries(units).map(
      ([title, it]) => html`<option key=${title} value=${String(it)}>${title}</option>`,
    )}</select></span>`;
}

/** Two tabs of one entry: its form, and the entry as JSON. `of`: "form" or "json". */
export function Tabs({ of, onChange, stuck = "" }) {
  const tab = (key, title) => html`<button type="button" role="tab" id=${`tab-${key}`} aria-selected=${of === key}
    disabled=${of !== key && Boolean(stuck)} title=${of !== key ? stuck : ""}
    onClick=${() => onChange(key)}>${title}</button>`;
  return html`<div class="tabs" role="tablist" aria-label="How the entry is edited">${tab("form", "Form")}${tab(
    "json",
    "JSON",
  )}</div>`;
}

/** The entry as JSON. `onChange(entry, wrong)`: the entry, null if the text is none, and what is wrong with it. */
export function JsonEntry({ entry, label, onChange }) {
  const [text, setText] = useState(() => JSON.stringify(entry, null, 2));
  const [wrong, setWrong] = useState("");
  const change = (event) => {
    const next = event.currentTarget.value;
    let found = null,
      fault = "";
    try {
      found = JSON.parse(next);
      if (typeof found !== "object" || found === null || Array.isArray(found)) fault = "It must be an object: {…}.";
    } catch (/** @type {any} */ problem) {
      fault = `Not JSON: ${problem.message}`;
    }
    setText(next);
    setWrong(fault);
    onChange(fault ? null : found, fault);
  };
  return html`<label>${label} <textarea rows="12" spellcheck=${false} value=${text}
    aria-invalid=${wrong ? "true" : undefined}
    onInput=${change}></textarea></label>${wrong && html`<p class="failure" role="alert">${wrong}</p>`}`;
}
