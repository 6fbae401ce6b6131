// The form for an entry of the configuration: its name, its fields, and a second tab with it as JSON.
import { html, useState } from "../lib.js";
import { call, path } from "../api.js";
import { Dialog, Failure, notice } from "./dialog.js";
import { Control, JsonEntry, Tabs, useFaults, withValue } from "./fields.js";

/** State of a form. `name` empty: of a new entry. */
export function useEntry(name, entry) {
  const [state, change] = useState({ name, entry, tab: "form", wrong: "", error: null, busy: false });
  const set = (more) => change((before) => ({ ...before, ...more }));
  const edit = (by) => change((before) => ({ ...before, entry: by(before.entry) }));
  return { ...state, isNew: !name, set, edit, put: (key, value) => edit((it) => withValue(it, key, value)) };
}

/**
 * The form. `of`: its state; `kind`: of the entry, as the API has it; `fields`: names of those that `children(at)`
 * shows, `at` being what is wrong with each; `ready`: whether it can be saved; `note`: below the name; `onDone(name)`:
 * it is.
 */
export function EntryForm({
  of,
  kind,
  etag,
  title,
  placeholder,
  fields,
  note,
  save,
  ready = true,
  onDone,
  onClose,
  children,
}) {
  const { name, entry, tab, wrong, error, busy, set } = of;
  const { form, at, others } = useFaults(error, name, tab === "form" ? ["", ...fields] : [""]);
  const go = async (event) => {
    event.preventDefault();
    set({ busy: true });
    try {
      await call("PUT", path(kind, name), { body: entry, etag });
      notice(`${name} is saved.`);
      onDone(name);
    } catch (problem) {
      set({ error: problem, busy: false });
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose} wide><form onSubmit=${go} ref=${form}>
    <${Control} name="" label="Name" at=${at}>${(own) => html`<input ...${own} value=${name} required
      disabled=${!of.isNew} placeholder=${placeholder} autocomplete="off"
      onInput=${(event) => set({ name: event.currentTarget.value })} />`}<//>
    ${note}
    <${Tabs} of=${tab} onChange=${(it) => set({ tab: it })} stuck=${wrong} />
    ${
      tab === "json"
        ? html`<${JsonEntry} entry=${entry} label=${`Entry in ${kind}.json`} onChange=${(next, fault) =>
            set(next ? { wrong: fault, entry: next } : { wrong: fault })} />`
        : children(at)
    }
    <${Failure} error=${error} others=${others} />
    <footer><button type="button" onClick=${onClose}>Cancel</button><button class="main"
      disabled=${busy || !name || !ready || Boolean(wrong)}>${save}</button></footer></form><//>`;
}
