// Make or change an address: four cards say what the types do, and the entry is shown as the file will have it.
import { html, useState } from "../lib.js";
import { call, path, SPACE, useFetch } from "../api.js";
import { Dialog, Failure, notice } from "../parts/dialog.js";
import { traits, TYPES } from "../types.js";

/** `address`: the one to change, null to make one. `known`: Map of the names that exist. */
export function AddressWizard({ address = null, known, me, onClose, onDone }) {
  const before = address ? address.entry || {} : {};
  const [type, setType] = useState(address ? address.type : ""),
    [name, setName] = useState(address ? address.name : "");
  const [flavor, setFlavor] = useState(address ? address.flavor : ""),
    [more, setMore] = useState(address ? text(rest(before)) : ""),
    [picked, setPicked] = useState(address ? before.plan || "" : null);
  const [error, setError] = useState(null),
    [busy, setBusy] = useState(false);
  const flavors = (useFetch("flavors?limit=1000").data?.items || []).filter((it) => it.type === traits(type).flavor);
  const ofSpace = useFetch(SPACE || me.space ? "plans?kind=address&limit=1000" : null);
  const plans = (ofSpace.data?.items || []).filter((it) => it.entry.type === type).map((it) => it.name);
  const plan = plans.includes(picked) || picked === "" ? picked : flavors.length ? "" : plans[0] || "";
  const chosen = traits(type).stored && !plan ? flavor || flavors[0]?.name || "" : "";
  let extra = {},
    wrong = null;
  try {
    extra = more.trim() ? JSON.parse(more) : {};
  } catch (/** @type {any} */ problem) {
    wrong = problem.message;
  }
  const entry = { type, ...(plan ? { plan } : {}), ...(chosen ? { flavor: chosen } : {}), ...extra };
  const go = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await call("PUT", path("addresses", name), { body: entry, etag: address ? address.etag : undefined });
      notice(address ? `${name} is changed.` : `${name} is made.`);
      onDone(name);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${address ? `Edit ${address.name}` : "New address"} onClose=${onClose} wide><form
    onSubmit=${go}>
    <fieldset class="types"><legend>What shall happen to a message?</legend>
      ${Object.entries(TYPES).map(
        ([key, { tag, what, uses }]) => html`<label key=${key} class=${type === key ? "chosen" : ""}>
        <input type="radio" name="type" value=${key} required checked=${type === key} onChange=${() => {
          setType(key);
          setFlavor("");
        }} />
        <strong>${key}</strong><span class="tag">${tag}</span><span>${what}</span><span class="soft">for ${uses}
        </span></label>`,
      )}
    </fieldset>
    <label>Name <input value=${name} required disabled=${Boolean(address)} placeholder="orders" autocomplete="off"
      onInput=${(event) => setName(event.currentTarget.value)} /></label>
    ${!address && known?.has(name) && html`<p class="failure">There is an address of this name.</p>`}
    ${
      plans.length > 0 &&
      html`<label>Plan <select value=${plan} onChange=${(event) => setPicked(event.currentTarget.value)}>
      <option value="">none</option>${plans.map((it) => html`<option key=${it}>${it}</option>`)}</select></label>`
    }
    ${
      traits(type).stored &&
      !plan &&
      html`<label>Flavor: what carries it
      <select value=${chosen} onChange=${(event) => setFlavor(event.currentTarget.value)}>
      ${flavors.map(
        (it) => html`<option key=${it.name} value=${it.name}>
      ${it.name} (${it.entry.templateName})</option>`,
      )}</select></label>`
    }
    <label>Further properties, as JSON (<code>{"maxSize": "10Mi"}</code>)
      <textarea rows="3" spellcheck=${false} value=${more} onInput=${(event) => setMore(event.currentTarget.value)}>
      </textarea></label>
    ${wrong && html`<p class="failure" role="alert">Not JSON: ${wrong}</p>`}
    ${
      type &&
      name &&
      html`<p class="soft">Entry in addresses.json</p><pre>
    ${`${JSON.stringify(name)}: ${JSON.stringify(entry, null, 2)}`}</pre>`
    }
    <${Failure} error=${error} />
    <footer><button type="button" onClick=${onClose}>Cancel</button><button class="main"
      disabled=${busy || !type || !name || Boolean(wrong)}>${address ? "Save" : "Make it"}</button></footer>
  </form><//>`;
}

const rest = ({ type, flavor, plan, store_and_forward, multicast, ...other }) => other; // what the fields above do not show
const text = (value) => (Object.keys(value).length ? JSON.stringify(value, null, 2) : "");
