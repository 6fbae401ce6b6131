// Plans of address spaces, and of their addresses. The operator changes them; a space shows those that it may use.
import { html, useState } from "../lib.js";
import { call, path, useFetch, useWatch } from "../api.js";
import { Confirm, Dialog, Failure, notice } from "../parts/dialog.js";
import { Control, useFaults } from "../parts/fields.js";
import { Link } from "../parts/route.js";
import { Facts, Loaded } from "../parts/state.js";
import { amount, LIMITS, written } from "../parts/usage.js";
import { traits, TYPES } from "../types.js";

const KINDS = {
  space: "What an address space may use: its limits, and the plans and flavors of its addresses.",
  address: "Type, flavor and bounds of an address.",
};
const NEW = { name: "", kind: "space", entry: {}, etag: undefined };
/** Credits of plans of each kind. */
const CREDITS = { space: ["router", "broker", "aggregate"], address: ["router", "broker"] };
const PLAIN_LIMITS = Object.keys(LIMITS).filter((limit) => limit !== "addressesByType");

/** The fields that the form of a plan of this kind shows, with this type of addresses. */
const shown = (kind, type) =>
  kind === "space"
    ? [
        ...PLAIN_LIMITS.map((it) => `limits.${it}`),
        ...Object.keys(TYPES).map((it) => `limits.addressesByType.${it}`),
        ...CREDITS.space.map((it) => `creditLimits.${it}`),
      ]
    : [
        "type",
        ...(traits(type).stored ? ["flavor", "maxSize"] : []),
        ...["minimum", "maximum"].map((it) => `messageTtl.${it}`),
        ...CREDITS.address.map((it) => `credits.${it}`),
      ];

export function Plans({ operator }) {
  const watched = useWatch("plans");
  const [edited, setEdited] = useState(null),
    [removing, setRemoving] = useState(null);
  const rows = [...watched.items.values()].sort((one, other) => one.name.localeCompare(other.name));
  const cards = (kind) =>
    html`<ul class="cards broad">${rows
      .filter((it) => it.kind === kind)
      .map(
        (it) => html`<li key=${it.name}><div class="row"><strong>${it.name}</strong><span class="spring"></span>${
          operator &&
          html`<button type="button" class="small" aria-label=${`Edit ${it.name}`} onClick=${() => setEdited(it)}>
          Edit</button>
        <button type="button" class="small" aria-label=${`Delete ${it.name}`} disabled=${it.spaces.length > 0}
          title=${it.spaces.length ? "address spaces have it" : ""} onClick=${() => setRemoving(it)}>Delete</button>`
        }</div><${Facts} of=${kind === "space" ? ofSpace(it.entry) : ofAddress(it.entry)} />
      ${
        operator &&
        it.spaces.length > 0 &&
        html`<p class="soft">Spaces: ${it.spaces.map(
          (name) => html`<${Link} key=${name} to=${["spaces", name]}>${name}<//> `,
        )}</p>`
      }</li>`,
      )}</ul>`;
  return html`<h1>Plans</h1>${
    operator &&
    html`<div class="tools"><span class="spring"></span><button type="button" class="main"
      onClick=${() => setEdited(NEW)}>Add plan</button></div>`
  }<${Loaded} of=${watched}>
    ${rows.length === 0 && html`<p class="empty">There are no plans: address spaces may use everything.</p>`}
    ${Object.keys(KINDS).map(
      (kind) =>
        rows.some((it) => it.kind === kind) &&
        html`<section key=${kind}><h2>${kind === "space" ? "Of address spaces" : "Of addresses"}</h2>${cards(kind)}
          </section>`,
    )}<//>
    ${edited && html`<${Editor} plan=${edited} others=${rows} onClose=${() => setEdited(null)} />`}
    ${
      removing &&
      html`<${Confirm} title="Delete" text=${`Delete the plan ${removing.name}? No address space has it.`}
      onClose=${() => setRemoving(null)}
      action=${() => call("DELETE", path("plans", removing.name), { etag: removing.etag })} onDone=${() => {
        setRemoving(null);
        notice("The plan is deleted.");
      }} />`
    }`;
}

const listed = (names) => (names.length ? names.join(", ") : "none");
const parts = (values, unit = "") =>
  Object.entries(values || {})
    .map(([key, value]) => `${key} ${value}${unit}`)
    .join(", ");

/** @param {any} entry */
function ofSpace({ addressPlans = [], flavors, limits = {}, creditLimits }) {
  const { addressesByType, ...plain } = limits;
  return {
    addressPlans: listed(addressPlans),
    flavors: flavors === undefined || flavors === null ? "each" : listed(flavors),
    ...Object.fromEntries(Object.entries(plain).map(([limit, most]) => [limit, amount(limit, most)])),
    addressesByType: parts(addressesByType),
    creditLimits: parts(creditLimits),
  };
}

function ofAddress({ type, flavor, maxSize, messageTtl, credits }) {
  return {
    type,
    flavor,
    maxSize: maxSize === undefined ? null : amount("storage", maxSize),
    messageTtl: parts(messageTtl, " ms"),
    credits: parts(credits),
  };
}

/** A number where the text is one; "10Mi" stays a text. */
const value = (text) => (/^\d+(\.\d+)?$/.test(text.trim()) ? Number(text) : text.trim());

const isSize = (key) => key === "maxSize" || LIMITS[key.replace("limits.", "")]?.size;

/** The fields of an entry as texts, `limits.addressesByType.queue` → "5"; `entryOf` makes an entry of them. */
const textsOf = (entry, before = "") =>
  Object.fromEntries(
    Object.entries(entry).flatMap(([name, it]) => {
      const key = before + name;
      if (key === "kind" || it === null) return [];
      if (typeof it === "object" && !Array.isArray(it)) return Object.entries(textsOf(it, `${key}.`));
      return [[key, isSize(key) ? written(it) : it]];
    }),
  );

function entryOf(texts) {
  const entry = {};
  for (const [key, text] of Object.entries(texts)) {
    if (text === "" || text === undefined || text === null) continue;
    const names = key.split("."),
      last = names.pop();
    let at = entry;
    for (const name of names) {
      at[name] ??= {};
      at = at[name];
    }
    at[/** @type {string} */ (last)] = typeof text === "string" && (names.length || isSize(key)) ? value(text) : text;
  }
  return entry;
}

function Editor({ plan, others, onClose }) {
  const [name, setName] = useState(plan.name),
    [kind, setKind] = useState(plan.kind),
    [texts, setTexts] = useState(() => textsOf(plan.entry)),
    [error, setError] = useState(null),
    [busy, setBusy] = useState(false);
  const flavors = useFetch("flavors?limit=1000").data?.items || [];
  const set = (key, text) => setTexts((before) => ({ ...before, [key]: text }));
  const entry = { kind, ...entryOf(texts) };
  const save = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await call("PUT", path("plans", name), { body: entry, etag: plan.etag });
      notice(`${name} is saved.`);
      onClose();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  const { form, at, others: unshown } = useFaults(error, name, ["", ...shown(kind, texts.type)]);
  const field = (key, title, placeholder = "no limit") => html`<${Control} key=${key} name=${key} label=${title}
    at=${at}>${(own) => html`<input ...${own} value=${texts[key] ?? ""} placeholder=${placeholder} autocomplete="off"
    onInput=${(event) => set(key, event.currentTarget.value)} />`}<//>`;
  const chosen = (key) => texts[key] || [];
  const choices = (key, names) =>
    html`${names.map(
      (it) => html`<label class="check" key=${it}><input type="checkbox" checked=${chosen(key).includes(it)}
      onChange=${(event) =>
        set(key, event.currentTarget.checked ? [...chosen(key), it] : chosen(key).filter((one) => one !== it))} />
      ${it}</label>`,
    )}${names.length === 0 && html`<span class="soft">There are none.</span>`}`;
  const restart = (next) => {
    setKind(next);
    setTexts({});
  };
  const ofAddresses = others.filter((it) => it.kind === "address").map((it) => it.name);
  return html`<${Dialog} title=${plan.name ? `Edit ${plan.name}` : "Add plan"} onClose=${onClose} wide><form
    onSubmit=${save} ref=${form}>
    ${
      !plan.name &&
      html`<fieldset class="types"><legend>A plan of what?</legend>${Object.entries(KINDS).map(
        ([key, text]) => html`<label key=${key} class=${kind === key ? "chosen" : ""}><input type="radio" name="kind"
          checked=${kind === key} onChange=${() => restart(key)} /><strong>${key}</strong><span>${text}</span></label>`,
      )}</fieldset>`
    }
    <${Control} name="" label="Name" at=${at}>${(own) => html`<input ...${own} required disabled=${Boolean(plan.name)}
      value=${name} autocomplete="off" placeholder="small"
      onInput=${(event) => setName(event.currentTarget.value)} />`}<//>
    ${
      kind === "address"
        ? html`<div class="fields">
      <${Control} name="type" label="type" at=${at}>${(own) => html`<select ...${own} required value=${texts.type ?? ""}
        onChange=${(event) => {
          set("type", event.currentTarget.value);
          set("flavor", "");
        }}><option value=""></option>
        ${Object.keys(TYPES).map((it) => html`<option key=${it}>${it}</option>`)}</select>`}<//>
      ${
        traits(texts.type).stored &&
        html`<${Control} name="flavor" label="flavor" at=${at}>${(own) => html`<select ...${own} required
          value=${texts.flavor ?? ""} onChange=${(event) => set("flavor", event.currentTarget.value)}>
          <option value=""></option>
          ${flavors
            .filter((it) => it.type === traits(texts.type).flavor)
            .map((it) => html`<option key=${it.name}>${it.name}</option>`)}</select>`}<//>
          ${field("maxSize", "maxSize", "10Mi")}`
      }
      ${["minimum", "maximum"].map((it) => field(`messageTtl.${it}`, `messageTtl.${it}, ms`, "any"))}
      ${CREDITS.address.map((it) => field(`credits.${it}`, `credits.${it}`, "0"))}</div>`
        : html`<fieldset><legend>addressPlans: plans that its addresses may have</legend>
        ${choices("addressPlans", ofAddresses)}</fieldset>
      <fieldset><legend>flavors: what addresses without a plan may have</legend>
        <label class="check"><input type="checkbox" checked=${!texts.flavors}
          onChange=${(event) => set("flavors", event.currentTarget.checked ? undefined : [])} /> each flavor</label>
        ${
          texts.flavors &&
          choices(
            "flavors",
            flavors.map((it) => it.name),
          )
        }</fieldset>
      <fieldset><legend>limits</legend><div class="fields">
        ${PLAIN_LIMITS.map((it) => field(`limits.${it}`, it, LIMITS[it].size ? "no limit; 10Mi" : "no limit"))}
</div></fieldset>
      <fieldset><legend>limits.addressesByType</legend><div class="fields">
        ${Object.keys(TYPES).map((it) => field(`limits.addressesByType.${it}`, it))}</div></fieldset>
      <fieldset><legend>creditLimits: of the credits of its addresses' plans</legend><div class="fields">
        ${CREDITS.space.map((it) => field(`creditLimits.${it}`, it))}</div></fieldset>`
    }
    <p class="soft">Entry in plans.json</p><pre>${`${JSON.stringify(name)}: ${JSON.stringify(entry, null, 2)}`}</pre>
    <${Failure} error=${error} others=${unshown} /><footer><button type="button"
      onClick=${onClose}>Cancel</button><button class="main" disabled=${busy || !name}>
      ${plan.name ? "Save" : "Add"}</button></footer></form><//>`;
}
