// Flavors: the kinds of infrastructure that addresses may ask for.
import { html, useState } from "../lib.js";
import { call, path, useWatch } from "../api.js";
import { count } from "../format.js";
import { Confirm, Dialog, Failure, notice } from "../parts/dialog.js";
import { Loaded } from "../parts/state.js";

const NEW = { name: "", entry: { type: "queue", templateName: "", templateParameters: {} } };

export function Flavors({ me }) {
  const watched = useWatch("flavors");
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
      <span class="soft">${it.entry.templateName} · ${count(it.addresses)} addresses</span>
      <span>${Object.entries(it.entry.templateParameters || {})
        .map(([key, value]) => `${key} ${value}`)
        .join(" · ")}</span>
      ${
        me.administrator &&
        html`<span class="row"><button type="button" class="small"
        onClick=${() => setEdited(it)}>Edit</button> <button type="button" class="small" disabled=${it.addresses > 0}
          onClick=${() => setDeleting(it)}>Delete</button></span>`
      }</li>`,
    )}</ul><//>
    ${edited && html`<${Editor} flavor=${edited} onClose=${() => setEdited(null)} />`}
    ${
      deleting &&
      html`<${Confirm} title="Delete" text=${`Delete the flavor ${deleting.name}?`} onClose=${() => setDeleting(null)}
      action=${() => call("DELETE", path("flavors", deleting.name), { etag: deleting.etag })} onDone=${() => {
        setDeleting(null);
        notice("The flavor is deleted.");
      }} />`
    }`;
}

function Editor({ flavor, onClose }) {
  const [name, setName] = useState(flavor.name),
    [text, setText] = useState(JSON.stringify(flavor.entry, null, 2)),
    [error, setError] = useState(null);
  const go = async (event) => {
    event.preventDefault();
    try {
      await call("PUT", path("flavors", name), { body: JSON.parse(text), etag: flavor.etag });
      notice(`${name} is saved.`);
      onClose();
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<${Dialog} title=${flavor.name ? `Edit ${flavor.name}` : "New flavor"} onClose=${onClose}><form
    onSubmit=${go}>
    <label>Name <input required value=${name} disabled=${Boolean(flavor.name)}
      onInput=${(event) => setName(event.currentTarget.value)} /></label>
    <label>Entry in flavors.json <textarea rows="10" spellcheck=${false} value=${text}
      onInput=${(event) => setText(event.currentTarget.value)}></textarea></label>
    <${Failure} error=${error} /><footer><button type="button" onClick=${onClose}>Cancel</button><button
      class="main">Save</button></footer></form><//>`;
}
