// Rows that are selected in a table, and what is done to all of them.
import { html, useEffect, useRef, useState } from "../lib.js";
import { count } from "../format.js";
import { Dialog, notice } from "./dialog.js";

const AT_ONCE = 4; // requests; the API answers so many of a caller at a time
const NAMED = 10; // rows and refusals that are named

/** The selection of a table, without the rows that a filter hides or that have gone: {selected, set, chosen}. */
export function useSelection(rows, keyOf) {
  const [selected, set] = useState(() => new Set());
  return { selected, set, chosen: selected.size ? rows.filter((row) => selected.has(keyOf(row))) : [] };
}

/**
 * The bar with what can be done to the rows that are chosen. `actions`: {title, may(row), …}, the others of ForMany.
 */
export function Chosen({ selection, actions, onAsk }) {
  const { chosen, set } = selection;
  if (!chosen.length) return null;
  return html`<div class="tools chosen" role="status"><strong>${count(chosen.length)} selected</strong>
    ${actions.map((action) => {
      const fit = chosen.filter(action.may);
      return (
        fit.length > 0 &&
        html`<button type="button" key=${action.title} class="danger" onClick=${() => onAsk({ action, rows: fit })}>
        ${action.title} ${count(fit.length)}</button>`
      );
    })}
    <button type="button" onClick=${() => set(new Set())}>Select none</button></div>`;
}

/**
 * Ask, and do it to each row; what is refused stays in the dialog. `action`: {title, text(rows), run(row, option),
 * done(number), option: {text, may(rows)} or none, typed: whether the number has to be typed}.
 */
export function ForMany({ action, rows, keyOf, onClose }) {
  const nameOf = action.nameOf || keyOf;
  const [done, setDone] = useState(/** @type {number | null} */ (null)),
    [failed, setFailed] = useState(/** @type {[string, string][]} */ ([])),
    [option, setOption] = useState(false),
    [typed, setTyped] = useState("");
  const stopped = useRef(false);
  useEffect(
    () => () => {
      stopped.current = true;
    },
    [],
  );
  const go = async (event) => {
    event.preventDefault();
    const left = [...rows],
      bad = [];
    let well = 0;
    setDone(0);
    const work = async () => {
      for (let row = left.shift(); row !== undefined && !stopped.current; row = left.shift()) {
        try {
          await action.run(row, option);
          well += 1;
        } catch (/** @type {any} */ error) {
          bad.push([nameOf(row), error.message]);
        }
        setDone(well + bad.length);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    if (well) notice(action.done(well));
    if (!bad.length || stopped.current) onClose();
    else setFailed(bad);
  };
  const names = rows.slice(0, NAMED).map(nameOf);
  if (failed.length)
    return html`<${Dialog} key="failed" title=${action.title} onClose=${onClose}><p class="failure" role="alert">
      ${count(failed.length)} of ${count(rows.length)} failed:</p><ul class="lines">${failed
        .slice(0, NAMED)
        .map(([name, reason]) => html`<li key=${name}><strong>${name}</strong>: ${reason}</li>`)}
      ${failed.length > NAMED && html`<li class="soft">and ${count(failed.length - NAMED)} more</li>`}</ul>
      <footer><button type="button" class="main" onClick=${onClose}>Close</button></footer><//>`;
  return html`<${Dialog} title=${`${action.title} ${count(rows.length)}`} about="dialog-text" onClose=${onClose}><form
    onSubmit=${go}><p id="dialog-text">${action.text(rows)}</p>
    <ul class="lines">${names.map((name) => html`<li key=${name}>${name}</li>`)}
      ${rows.length > NAMED && html`<li class="soft">and ${count(rows.length - NAMED)} more</li>`}</ul>
    ${
      action.option?.may(rows) &&
      html`<label class="check"><input type="checkbox" checked=${option}
      onChange=${(event) => setOption(event.currentTarget.checked)} /> ${action.option.text}</label>`
    }
    ${
      action.typed &&
      html`<label>Type <code>${rows.length}</code> to confirm <input value=${typed} autocomplete="off"
      onInput=${(event) => setTyped(event.currentTarget.value)} /></label>`
    }
    ${
      done !== null &&
      html`<div class="progress" role="status"><progress max=${rows.length} value=${done}
      aria-label=${action.title}></progress> ${count(done)} of ${count(rows.length)}</div>`
    }
    <footer><button type="button" onClick=${onClose}>${done === null ? "Cancel" : "Stop"}</button>
      <button class="danger" disabled=${done !== null || (action.typed && typed !== String(rows.length))}>
      ${action.title}</button></footer></form><//>`;
}
