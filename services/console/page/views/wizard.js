// Make or change an address: four cards say what the types do, fields have the properties, and a second tab the entry
// as JSON.
import { html, useEffect } from "../lib.js";
import { SPACE, useFetch } from "../api.js";
import { EntryForm, useEntry } from "../parts/entry_form.js";
import { Field, Labelled, told, valueAt, withValue } from "../parts/fields.js";
import { traits, TYPES } from "../types.js";

/** The flavor that most addresses have; where none has any, the first small one: a large one needs a larger disk. */
const usual = (flavors) =>
  [...flavors].sort((one, other) => (other.addresses || 0) - (one.addresses || 0) || isSmall(other) - isSmall(one))[0];
const isSmall = (flavor) => flavor.name.startsWith("small");

/** `address`: the one to change, null to make one. `known`: Map of the names that exist. */
export function AddressWizard({ address = null, known, me, onClose, onDone }) {
  const form = useEntry(address?.name || "", plain(address?.entry || {}));
  const { name, entry, put } = form;
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
    if (address || !type || form.tab !== "form") return;
    const plan = plans.includes(entry.plan) || flavors.length ? entry.plan : plans[0];
    const flavor = traits(type).stored && !plan ? entry.flavor || usual(flavors)?.name : undefined;
    if (plan !== entry.plan || flavor !== entry.flavor)
      form.edit(() => withValue(withValue(entry, "plan", plan), "flavor", flavor));
  }, [type, entry.plan, flavors.length, plans.length]);
  const choose = (key) => form.edit((before) => ({ type: key, ...keptBy(fields, key, before) }));
  return html`<${EntryForm} of=${form} kind="addresses" etag=${address?.etag} placeholder="orders"
    title=${address ? `Edit ${address.name}` : "New address"} save=${address ? "Save" : "Make it"}
    ready=${Boolean(type)}
    fields=${["flavor", "plan", ...fields.map((it) => it.name)]} onDone=${onDone} onClose=${onClose}
    note=${!address && known?.has(name) && html`<p class="failure">There is an address of this name.</p>`}>${(
      at,
    ) => html`
    <fieldset class="types"><legend>What shall happen to a message?</legend>
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
      value=${entry.plan || ""} onChange=${(event) => put("plan", event.currentTarget.value || undefined)}>
      <option value="">none</option>${plans.map((it) => html`<option key=${it}>${it}</option>`)}</select><//>`
    }
    ${
      traits(type).stored &&
      !entry.plan &&
      html`<${Labelled} label="Flavor: what carries it" id="field-flavor" fault=${at.flavor}>
      <select ...${told("flavor", at.flavor, "")} value=${entry.flavor || ""}
        onChange=${(event) => put("flavor", event.currentTarget.value)}>
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
        queues=${queues} onChange=${(value) => put(it.name, value)} />`,
      )}</div></details>`,
    )}`}<//>`;
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
