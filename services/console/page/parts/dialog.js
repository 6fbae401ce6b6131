// Dialogs, and short messages at the bottom of the page.
import { html, useLayoutEffect, useRef, useState } from "../lib.js";

/** What gets the focus: the first field, of radio buttons the one that is on; else the button that changes nothing. */
const FIELDS = "input:enabled:not([type=radio]), input[type=radio]:checked, select:enabled, textarea:enabled";
const first = (dialog) => dialog.querySelector(FIELDS) || dialog.querySelector("footer button");

/** A modal dialog; Escape and the button "Cancel" close it. What opened it has the focus again then. */
export function Dialog({ title, about = undefined, onClose, children, wide = false }) {
  const dialog = useRef(null),
    isShown = useRef(false);
  useLayoutEffect(() => {
    const own = dialog.current;
    own.showModal();
    first(own)?.focus();
    isShown.current = true;
    return () => {
      isShown.current = false;
      own.close();
    };
  }, []);
  return html`<dialog ref=${dialog} class=${wide ? "broad" : ""} aria-labelledby="dialog-title"
      aria-describedby=${about} onClose=${() => isShown.current && onClose()}
      onCancel=${(event) => {
        event.preventDefault();
        onClose();
      }}>
    <header><h2 id="dialog-title">${title}</h2><button type="button" class="plain" aria-label="close"
      onClick=${onClose}>✕</button></header>
    ${children}</dialog>`;
}

/** Ask before something that cannot be undone. `name`: text that has to be typed, if given. */
export function Confirm({ title, text, name = null, action, onDone, onClose, children = null }) {
  const [typed, setTyped] = useState(""),
    [busy, setBusy] = useState(false),
    [error, setError] = useState(null);
  const go = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      onDone(await onConfirm(action));
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} about="dialog-text" onClose=${onClose}><form onSubmit=${go}>
    <p id="dialog-text">${text}</p>${children}
    ${
      name !== null &&
      html`<label>Type <code>${name}</code> to confirm
      <input value=${typed} onInput=${(event) => setTyped(event.currentTarget.value)} autocomplete="off" />
      </label>`
    }
    <${Failure} error=${error} />
    <footer><button type="button" onClick=${onClose}>Cancel</button>
      <button class="danger" disabled=${busy || (name !== null && typed !== name)}>${title}</button></footer></form>
      <//>`;
}
const onConfirm = (action) => action();

/** The reason of a refusal, with each wrong field; with `others` only with those that are not shown at their fields. */
export function Failure({ error, others = null }) {
  if (!error) return null;
  const errors = others ?? error.problem?.errors ?? [];
  const atFields = others !== null && others.length === 0 && error.problem?.errors?.length > 0;
  return html`<div class="failure" role="alert"><p>${
    atFields ? "Nothing was changed: see the fields that are marked." : error.message
  }</p>
    ${
      errors.length > 0 &&
      html`<ul>${errors.map(
        (it) => html`<li>
    ${[it.file, it.entry, it.field].filter(Boolean).join(": ")}: ${it.reason}</li>`,
      )}</ul>`
    }</div>`;
}

/** @type {(entry: {text: string, bad: boolean, at: number}) => void} */
let show = () => {};
/** Show a sentence for some seconds. */
export const notice = (text, bad = false) => show({ text, bad, at: Date.now() });

export function Notices() {
  const [shown, set] = useState([]);
  show = (entry) => {
    set((before) => [...before.slice(-3), entry]);
    setTimeout(() => set((before) => before.filter((it) => it !== entry)), 6000);
  };
  return html`<div class="notices" role="status" aria-live="polite">${shown.map(
    (it) => html`<p key=${it.at}
    class=${it.bad ? "bad" : ""}>${it.text}</p>`,
  )}</div>`;
}
