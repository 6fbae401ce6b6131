// Flavors: the kinds of infrastructure that addresses may ask for.
import { html, useState } from "../lib.js";
import { call, path, useFetch, useWatch } from "../api.js";
import { bytes, count } from "../format.js";
import { Confirm, notice } from "../parts/dialog.js";
import { EntryForm, useEntry } from "../parts/entry_form.js";
import { Field, Labelled, told, valueAt, withValue } from "../parts/fields.js";
import { Facts, Loaded } from "../parts/state.js";

const NEW = { name: "", entry: { type: "queue", templateName: "queue-persisted" } };

export function Flavors({ me }) {
  const watched = useWatch("flavors");
  const templates = useFetch("fields").data?.templates || [];
  const [edited, setEdited] = useState(null),
    [deleting, setDeleting] = useState(null);
  const rows = [...watched.items.values()].sort((one, other) => one.name.localeCompare(other.name));
  return html`<h1>Flavors</h1><div class="tools"><span class="spring"></span>${
    me.administrator &&
    html`<button
    type="button" class="main"
      onClick=${() => setEdited(NEW)}>New flavor</button>`
  }</div>
    <${Loaded} of=${watched}><ul class="cards">${rows.map(
      (it) => html`<li key=${it.name}><strong>${it.name}</strong> <span class="tag">${it.type}</span>
      <span class="soft">${templates.find((known) => known.name === it.entry.templateName)?.text}</span>
      <${Facts} of=${facts(it, templates)} />
      ${
        me.administrator &&
        html`<span class="row"><button type="button" class="small" aria-label=${`Edit ${it.name}`}
        onClick=${() => setEdited(it)}>Edit</button> <button type="button" class="small" disabled=${it.addresses > 0}
          title=${it.addresses > 0 ? "addresses have it" : ""} aria-label=${`Delete ${it.name}`}
          onClick=${() => setDeleting(it)}>Delete</button></span>`
      }</li>`,
    )}</ul><//>
    ${edited && html`<${Editor} flavor=${edited} templates=${templates} onClose=${() => setEdited(null)} />`}
    ${
      deleting &&
      html`<${Confirm} title="Delete" text=${`Delete the flavor ${deleting.name}?`} onClose=${() => setDeleting(null)}
      action=${() => call("DELETE", path("flavors", deleting.name), { etag: deleting.etag })} onDone=${() => {
        setDeleting(null);
        notice("The flavor is deleted.");
      }} />`
    }`;
}

/** What a card shows of a flavor: what it states, sizes with their units. */
function facts({ entry, addresses }, templates) {
  const fields = templates.find((it) => it.name === entry.templateName)?.fields || [];
  const stated = fields
    .map((it) => [it.label, valueAt(entry, it.name), it.kind])
    .filter(([, value]) => value !== undefined)
    .map(([label, value, kind]) => [
      label,
      typeof value === "boolean"
        ? value
          ? "yes"
          : "no"
        : kind === "size" && typeof value === "number"
          ? bytes(value)
          : String(value),
    ]);
  return Object.fromEntries([
    ["Template", entry.templateName],
    ["Addresses", addresses === null ? null : count(addresses)],
    ...stated,
  ]);
}

function Editor({ flavor, templates, onClose }) {
  const form = useEntry(flavor.name, flavor.entry);
  const { entry } = form;
  const template = templates.find((it) => it.name === entry.templateName);
  const fields = template?.fields || [];
  const choose = (event) => {
    const next = templates.find((it) => it.name === event.currentTarget.value);
    const kept = fields.filter((it) => next.fields.some((other) => other.name === it.name));
    form.edit((before) =>
      kept.reduce((made, it) => withValue(made, it.name, valueAt(before, it.name)), {
        type: next.type,
        templateName: next.name,
      }),
    );
  };
  const note =
    flavor.addresses > 0 &&
    html`<p class="lost">A change restarts its brokers, one after the other. No message is lost.</p>`;
  return html`<${EntryForm} of=${form} kind="flavors" etag=${flavor.etag} placeholder="large-queue" save="Save"
    title=${flavor.name ? `Edit ${flavor.name}` : "New flavor"} note=${note} onDone=${onClose} onClose=${onClose}
    fields=${["templateName", ...fields.map((it) => it.name)]}>${(at) => html`
    <${Labelled} label="Template" id="field-templateName" fault=${at.templateName} text=${template?.text}>
    <select ...${told("templateName", at.templateName, template?.text)} value=${entry.templateName} onChange=${choose}>
    ${templates.map((it) => html`<option key=${it.name} value=${it.name}>${it.name}</option>`)}</select><//>
    <div class="fields">${fields.map(
      (it) => html`<${Field} key=${`${entry.templateName} ${it.name}`} field=${it} fault=${at[it.name]}
      value=${valueAt(entry, it.name)} onChange=${(value) => form.put(it.name, value)} />`,
    )}</div>`}<//>`;
}
