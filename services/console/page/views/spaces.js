// Address spaces: what each tenant has of the suite. The operator makes, changes and removes them.
import { html, useState } from "../lib.js";
import { call, path, useFetch, useWatch } from "../api.js";
import { count } from "../format.js";
import { Confirm, Dialog, Failure, notice } from "../parts/dialog.js";
import { Control, useFaults } from "../parts/fields.js";
import { go, Link } from "../parts/route.js";
import { Facts, Loaded, Missing, State, useSeen } from "../parts/state.js";
import { fullest, Usage, Used } from "../parts/usage.js";
import { List } from "./lists.js";

const total = (space) => Object.values(space.phases).reduce((sum, it) => sum + it, 0);
const state = (space) => (space.entry === null ? "terminating" : space.ready ? "ready" : "not ready");
const ready = (space) => (space.entry === null ? "terminating" : `${space.phases.Active} of ${total(space)}`);

/** A link to the page of the space alone. */
const Enter = ({ name, children }) => html`<a href=${`?space=${encodeURIComponent(name)}#/`}>${children}</a>`;

export function Spaces() {
  const [making, setMaking] = useState(false);
  return html`<${List} title="Address spaces" where="spaces" empty="There are no address spaces."
    texts=${(it) => [it.name, it.plan, ...it.hosts]} onOpen=${(it) => go("spaces", it.name)}
    before=${html`<span class="spring"></span><button type="button" class="main"
      onClick=${() => setMaking(true)}>Add space</button>`}
    columns=${[
      {
        key: "name",
        title: "Space",
        grow: true,
        stays: true,
        render: (it) => html`<${Link} to=${["spaces", it.name]} tabindex="-1">${it.name}<//>`,
      },
      { key: "type", title: "Type" },
      { key: "plan", title: "Plan", render: (it) => it.plan || "–" },
      { key: "state", title: "State", value: state, render: (it) => html`<${State} text=${state(it)} />` },
      { key: "ready", title: "Ready", align: "right", value: total, render: ready },
      {
        key: "used",
        title: "Fullest limit",
        down: true,
        value: (it) => {
          const row = fullest(it);
          return row && (row.most ? row.used / row.most : 1);
        },
        render: (it) => {
          const row = fullest(it);
          return row ? html`<${Used} row=${row} />` : html`<span class="soft">no limit</span>`;
        },
      },
      { key: "hosts", title: "Hosts", render: (it) => it.hosts.join(" ") },
    ]} />
    ${making && html`<${Editor} space=${NEW} onClose=${() => setMaking(false)} />`}`;
}

const NEW = { name: "", type: "standard", plan: null, hosts: [], entry: {}, etag: undefined };

export function Space({ name }) {
  const watched = useWatch(`spaces?name=${encodeURIComponent(name)}`);
  const [dialog, setDialog] = useState("");
  const close = () => setDialog("");
  const space = watched.items.get(name);
  const seen = useSeen(space);
  if (watched.ready && !space)
    return html`<${Missing} title=${name} places=${[[["spaces"], "All address spaces"]]}
      text=${seen ? "This address space has been removed." : "There is no such address space."} />`;
  return html`<${Loaded} of=${watched}>${
    space &&
    html`<h1>${name} <${State} text=${state(space)} /></h1>
    ${
      space.entry === null &&
      html`<p class="lost">The space was deleted. ${count(total(space))} of its addresses hold messages, and stay until
        they are empty.</p>`
    }
    <div class="tools"><${Enter} name=${name}>Show this space alone<//><span class="spring"></span>
      ${space.entry && html`<button type="button" onClick=${() => setDialog("edit")}>Edit</button>`}
      <button type="button" class="danger" onClick=${() => setDialog("remove")}>
        ${space.entry ? "Delete" : "Delete messages"}</button></div>
    <${Facts} of=${{
      Type: space.type === "brokered" ? "brokered: one broker has all of its addresses" : space.type,
      Plan: space.plan ? html`<${Link} to=${["plans"]}>${space.plan}<//>` : "none: it may use everything",
      Hosts: [name, ...space.hosts].join(", "),
      "User names": `NAME, at other hosts NAME@${name}`,
      "Addresses ready": ready(space),
    }} />
    <section><h2>Used${space.plan && ` of the plan ${space.plan}`}</h2><${Usage} space=${space} /></section>
    ${dialog === "edit" && html`<${Editor} space=${space} onClose=${close} />`}
    ${dialog === "remove" && html`<${Remove} space=${space} onClose=${close} />`}`
  }<//>`;
}

function Editor({ space, onClose }) {
  const [name, setName] = useState(space.name),
    [plan, setPlan] = useState(space.plan || ""),
    [hosts, setHosts] = useState(space.hosts.join("\n")),
    [type, setType] = useState(space.type),
    [flavor, setFlavor] = useState(space.entry?.flavor || ""),
    [error, setError] = useState(null),
    [busy, setBusy] = useState(false);
  const plans = (useFetch("plans?kind=space&limit=1000").data?.items || []).map((it) => it.name);
  if (plan && !plans.includes(plan)) plans.unshift(plan);
  const listed = hosts.split(/[\s,]+/).filter(Boolean);
  const flavors = (useFetch("flavors?limit=1000").data?.items || []).map((it) => it.name);
  if (flavor && !flavors.includes(flavor)) flavors.unshift(flavor);
  const { type: _, flavor: __, plan: ___, hosts: ____, ...others } = space.entry || {};
  const entry = {
    ...others,
    ...(type === "brokered" ? { type, ...(flavor ? { flavor } : {}) } : {}),
    ...(plan ? { plan } : {}),
    ...(listed.length ? { hosts: listed } : {}),
  };
  const save = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await call("PUT", path("spaces", name), { body: entry, etag: space.etag });
      notice(`${name} is saved.`);
      onClose();
      go("spaces", name);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  const {
    form,
    at,
    others: unshown,
  } = useFaults(error, name, ["", "type", "plan", "hosts", ...(type === "brokered" ? ["flavor"] : [])]);
  return html`<${Dialog} title=${space.name ? `Edit ${space.name}` : "Add space"} onClose=${onClose}><form
    onSubmit=${save} ref=${form}>
    <${Control} name="" label="Name" at=${at}>${(own) => html`<input ...${own} required disabled=${Boolean(space.name)}
      value=${name} autocomplete="off" placeholder="orders-team"
      onInput=${(event) => setName(event.currentTarget.value)} />`}<//>
    <${Control} name="type" label="Type" at=${at}>${(own) => html`<select ...${own} value=${type}
      disabled=${Boolean(space.name)} onChange=${(event) => setType(event.currentTarget.value)}>
      <option value="standard">standard</option>
      <option value="brokered">brokered: one broker has all of its addresses</option></select>`}<//>
    ${
      type === "brokered" &&
      html`<${Control} name="flavor" label="Flavor of its broker" at=${at}>${(own) => html`<select ...${own}
        value=${flavor} onChange=${(event) => setFlavor(event.currentTarget.value)}>
      <option value="">the first that it may use</option>
      ${flavors.map((it) => html`<option key=${it} value=${it}>${it}</option>`)}</select>`}<//>`
    }
    <${Control} name="plan" label="Plan" at=${at}>${(own) => html`<select ...${own} value=${plan}
      onChange=${(event) => setPlan(event.currentTarget.value)}>
      <option value="">none: it may use everything</option>
      ${plans.map((it) => html`<option key=${it} value=${it}>${it}</option>`)}</select>`}<//>
    <${Control} name="hosts" label="Hosts by which clients mean it, beside its name: one a line" at=${at}>${(own) =>
      html`<textarea ...${own} rows="3" spellcheck=${false} placeholder="orders.example.com" value=${hosts}
        onInput=${(event) => setHosts(event.currentTarget.value)}></textarea>`}<//>
    <p class="soft">Entry in spaces.json</p><pre>${`${JSON.stringify(name)}: ${JSON.stringify(entry, null, 2)}`}</pre>
    ${
      !space.name &&
      html`<p class="soft">No client can log in before the space has users. Add them in the page of the space.</p>`
    }
    <${Failure} error=${error} others=${unshown} /><footer><button type="button"
      onClick=${onClose}>Cancel</button><button class="main" disabled=${busy || !name}>
      ${space.name ? "Save" : "Add"}</button></footer></form><//>`;
}

function Remove({ space, onClose }) {
  const removed = space.entry === null;
  const [force, setForce] = useState(removed);
  const messages = useFetch(path("spaces", space.name, "overview")).data?.messages;
  const choice = (value, text) => html`<label class=${force === value ? "chosen" : ""}><input type="radio"
    name="messages" checked=${force === value} onChange=${() => setForce(value)} /> ${text}</label>`;
  return html`<${Confirm} title=${removed ? "Delete messages" : "Delete"} name=${space.name} onClose=${onClose}
    text=${
      removed
        ? `The messages that addresses of ${space.name} still hold are thrown away.`
        : `${space.name} goes with its files: its users, addresses and issuers. Its clients are refused from then on.`
    }
    action=${() =>
      call("DELETE", path("spaces", space.name) + (force ? "?force=true" : ""), { etag: space.etag || undefined })}
    onDone=${() => {
      notice(
        force
          ? `${space.name} is deleted with its messages.`
          : `${space.name} is deleted. Addresses that hold messages stay until they are empty.`,
      );
      onClose();
      if (force) go("spaces");
    }}>
    ${
      !removed &&
      html`<fieldset class="choices"><legend>Stored messages${
        messages === undefined ? "" : `: ${count(messages)} now`
      }</legend>
      ${choice(false, "Keep them: addresses that hold messages stay until they are empty")}
      ${choice(true, "Delete them too")}</fieldset>`
    }<//>`;
}
