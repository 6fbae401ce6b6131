// Make or change an address: four cards say what the types do, fields have the properties, and a second tab the entry
// as JSON.
import { html, useEffect, useRef, useState } from "../lib.js";
import { call, path, SPACE, useFetch } from "../api.js";
import { Dialog, Failure, notice } from "../parts/dialog.js";
import { faultsOf, Field, JsonEntry, Labelled, Tabs, told, valueAt, withValue } from "../parts/fields.js";
import { traits, TYPES } from "../types.js";

/** `address`: the one to change, null to make one. `known`: Map of the names that exist. */
export function AddressWizard({ address = null, known, me, onClose, onDone }) {
  const [entry, setEntry] = useState(() => plain(address?.entry || {})),
    [name, setName] = useState(address ? address.name : ""),
    [tab, setTab] = useState("form"),
    [wrong, setWrong] = useState(""); // with the text of the second tab
  const [error, setError] = useState(null),
    [busy, setBusy] = useState(false);
  const form = useRef(null);
  const { type = "" } = entry;
  const flavors = (useFetch("flavors?limit=1000").data?.items || []).filter((it) => it.type === traits(type).flavor);
  const ofSpace = useFetch(SPACE || me.space ? "plans?kind=address&limit=1000" : null);
  const plans = (ofSpace.data?.items || []).filter((it) => it.entry.type === type).map((it) => it.name);
  const fields = (useFetch("fields").data?.addresses || []).filter((it) => it.types.includes(type));
  const queues = (useFetch("addresses?type=queue&limit=1000").data?.items || [])
    .map((it) => it.name)
    .filter((it) => it !== name);
  useEffect(() => {
    // what a new address has unless something else is chosen
    if (address || !type || tab !== "form") return;
    const plan = plans.includes(entry.plan) || flavors.length ? entry.plan : plans[0];
    const flavor = traits(type).stored && !plan ? entry.flavor || flavors[0]?.name : undefined;
    if (plan !== entry.plan || flavor !== entry.flavor)
      setEntry(withValue(withValue(entry, "plan", plan), "flavor", flavor));
  }, [type, entry.plan, flavors.length, plans.length]);
  useEffect(() => form.current?.querySelector("[aria-invalid=true]")?.focus(), [error]);
  const set = (key, value) => setEntry((before) => withValue(before, key, value));
  const choose = (key) => setEntry((before) => ({ type: key, ...keptBy(fields, key, before) }));
  const { at, others } = faultsOf(
    error,
    name,
    tab === "form" ? ["", "flavor", "plan", ...fields.map((it) => it.name)] : [""],
  );
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
    onSubmit=${go} ref=${form}>
    <${Labelled} label="Name" id="field-" fault=${at[""]}><input ...${told("", at[""], "")} value=${name} required
      disabled=${Boolean(address)} placeholder="orders" autocomplete="off"
      onInput=${(event) => setName(event.currentTarget.value)} /><//>
    ${!address && known?.has(name) && html`<p class="failure">There is an address of this name.</p>`}
    <${Tabs} of=${tab} onChange=${setTab} stuck=${wrong} />
    ${
      tab === "json"
        ? html`<${JsonEntry} entry=${entry} label="Entry in addresses.json" onChange=${(next, fault) => {
            setWrong(fault);
            if (next) setEntry(next);
          }} />`
        : html`<fieldset class="types"><legend>What shall happen to a message?</legend>
      ${Object.entries(TYPES).map(
        ([key, { tag, what, uses }]) => html`<label key=${key} class=${type === key ? "chosen" : ""}>
        <input type="radio" name="type" value=${key} required checked=${type === key} onChange=${() => choose(key)} />
        <strong>${key}</strong><span class="tag">${tag}</span><span>${what}</span><span class="soft">for ${uses}
        </span></label>`,
      )}
    </fieldset>
    ${
      plans.length > 0 &&
      html`<${Labelled} label="Plan" id="field-plan" fault=${at.plan}><select ...${told("plan", at.plan, "")}
      value=${entry.plan || ""} onChange=${(event) => set("plan", event.currentTarget.value || undefined)}>
      <option value="">none</option>${plans.map((it) => html`<option key=${it}>${it}</option>`)}</select><//>`
    }
    ${
      traits(type).stored &&
      !entry.plan &&
      html`<${Labelled} label="Flavor: what carries it" id="field-flavor" fault=${at.flavor}>
      <select ...${told("flavor", at.flavor, "")} value=${entry.flavor || ""}
        onChange=${(event) => set("flavor", event.currentTarget.value)}>
      ${flavors.map(
        (it) => html`<option key=${it.name} value=${it.name}>
      ${it.name} (${it.entry.templateName})</option>`,
      )}</select><//>`
    }
    ${groups(fields).map(
      ([group, members]) => html`<details key=${`${type} ${group}`} class="group"
      open=${members.some((it) => valueAt(entry, it.name) !== undefined || at[it.name])}><summary>${group}</summary>
      <div class="fields">${members.map(
        (it) => html`<${Field} key=${it.name} field=${it} value=${valueAt(entry, it.name)} fault=${at[it.name]}
        queues=${queues} onChange=${(value) => set(it.name, value)} />`,
      )}</div></details>`,
    )}`
    }
    <${Failure} error=${error} others=${others} />
    <footer><button type="button" onClick=${onClose}>Cancel</button><button class="main"
      disabled=${busy || !type || !name || Boolean(wrong)}>${address ? "Save" : "Make it"}</button></footer>
  </form><//>`;
}

/** The entry with `type` alone, where it has that in two notations. */
const plain = ({ store_and_forward, multicast, ...entry }) => entry;

/** What of an entry applies to another type as well. */
const keptBy = (fields, type, entry) =>
  fields
    .filter((it) => it.types.includes(type) && valueAt(entry, it.name) !== undefined)
    .reduce((kept, it) => withValue(kept, it.name, valueAt(entry, it.name)), {});

/** Fields by their group, in the order in which they come. */
function groups(fields) {
  const found = new Map();
  for (const it of fields) found.set(it.group, [...(found.get(it.group) || []), it]);
  return [...found];
}
