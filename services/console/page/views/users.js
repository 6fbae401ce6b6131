// Users and groups, what each may do, and why.
import { html, useMemo, useState } from "../lib.js";
import { call, get, path, useWatch } from "../api.js";
import { matcher } from "../format.js";
import { Confirm, Dialog, Failure, notice } from "../parts/dialog.js";
import { Control, useFaults } from "../parts/fields.js";
import { go, Link, useQuery } from "../parts/route.js";
import { Loaded, Missing, useSeen } from "../parts/state.js";
import { Table } from "../parts/table.js";
import { Tokens } from "./tokens.js";

const NEW = { effect: "allow", operations: ["send", "recv"], addresses: "" };

export function Users({ me }) {
  const watched = useWatch("users");
  const [filter, setFilter] = useQuery("name"),
    [making, setMaking] = useState(false);
  const rows = useMemo(() => {
    const matches = matcher(filter);
    return [...watched.items.values()].filter((it) => matches(it.name) || it.groups.some(matches));
  }, [watched.version, filter]);
  return html`<h1>Users</h1><div class="tools"><label>Name or group <input type="search" value=${filter}
    onInput=${(event) => setFilter(event.currentTarget.value)} /></label><span class="spring"></span>
      ${
        me.administrator &&
        html`<button type="button" class="main"
        onClick=${() => setMaking(true)}>New user</button>`
      }</div>
    <${Loaded} of=${watched}><${Table} label="Users" rows=${rows} keyOf=${(it) => it.name}
      onOpen=${(it) => go("users", it.name)} empty="There are no users: clients of this machine may do everything."
      columns=${[
        {
          key: "name",
          title: "Name",
          shrink: true,
          stays: true,
          render: (it) => html`<${Link} to=${["users", it.name]} tabindex="-1">${it.name}<//>`,
        },
        { key: "groups", title: "Groups", value: (it) => it.groups.join(), render: (it) => it.groups.join(", ") },
        {
          key: "permissions",
          title: "May",
          grow: true,
          value: (it) => it.effective.length,
          render: (it) => it.effective.map(short).join("; "),
        },
        { key: "password", title: "Password", render: (it) => (it.password ? "yes" : "no") },
      ]} /><//>
    ${
      making &&
      html`<${Editor} user=${{ name: "", groups: [], permissions: [] }} operations=${me.operations}
      onClose=${() => setMaking(false)} />`
    }`;
}

const short = (it) => `${it.effect === "deny" ? "not " : ""}${it.operations.join(", ")} ${it.addresses.join(", ")}`;

export function User({ name, me }) {
  const watched = useWatch("users");
  const [dialog, setDialog] = useState(null);
  const user = watched.items.get(name);
  const seen = useSeen(user);
  if (watched.ready && !user)
    return html`<${Missing} title=${name} places=${[[["users"], "All users"]]} text=${
      seen
        ? "This user has been removed, or you may no longer see it."
        : "This user does not exist, or you may not see it."
    } />`;
  return html`<${Loaded} of=${watched}>${
    user &&
    html`<h1>${user.name}</h1>
    ${
      me.administrator &&
      html`<div class="tools"><span class="spring"></span><button type="button"
      onClick=${() => setDialog("edit")}>Edit</button><button type="button" class="danger"
        onClick=${() => setDialog("delete")}>Delete</button></div>`
    }
    <section><h2>May do</h2><div class="table-box short" tabindex="0" role="region" aria-label="Permissions"><table>
    <caption class="hidden">Permissions of ${user.name} and its groups</caption><thead><tr><th scope="col">Effect</th>
    <th scope="col">Operations</th><th scope="col" class="grow">Addresses</th><th scope="col">From</th></tr></thead>
      <tbody>${user.effective.map(
        (it) => html`<tr key=${it.source}><td>${it.effect}</td><td>
      ${it.operations.join(", ")}</td><td><code>${it.addresses.join(" ")}</code></td><td>${it.source}</td></tr>`,
      )}
      </tbody></table></div>
      <p class="soft">A denial wins. What no permission allows is refused.</p></section>
    <section><h2>May this user … ?</h2><${May} name=${user.name} operations=${me.operations} /></section>
    ${!user.name.startsWith("@") && user.name !== "anonymous" && html`<${Tokens} user=${user.name} me=${me} />`}
    ${
      dialog === "edit" &&
      html`<${Editor} user=${user} operations=${me.operations}
      onClose=${() => setDialog(null)} />`
    }
    ${
      dialog === "delete" &&
      html`<${Confirm} title="Delete" name=${user.name}
        text="Its connections are closed, its sessions and subscriptions end." onClose=${() => setDialog(null)}
      action=${() => call("DELETE", path("users", user.name), { etag: user.etag })} onDone=${() => {
        notice(`${user.name} is deleted.`);
        go("users");
      }} />`
    }`
  }<//>`;
}

function May({ name, operations }) {
  const [operation, setOperation] = useState(operations[0]),
    [address, setAddress] = useState(""),
    [answer, setAnswer] = useState(null),
    [error, setError] = useState(null);
  const ask = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      setAnswer(
        await get(`${path("users", name, "may")}?operation=${operation}&address=${encodeURIComponent(address)}`),
      );
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<form class="row" onSubmit=${ask}>
    <label>Operation <select value=${operation} onChange=${(event) => setOperation(event.currentTarget.value)}>
    ${operations.map((it) => html`<option key=${it}>${it}</option>`)}</select></label>
    <label>Address <input required value=${address} onInput=${(event) => setAddress(event.currentTarget.value)} />
    </label><button>Ask</button>
    <p role="status">${
      answer &&
      (answer.allowed ? "Yes" : "No") +
        (
          answer.permission
            ? `: ${answer.permission.source} (${short(answer.permission)})`
            : answer.allowed
              ? ": everything is allowed"
              : ": no permission covers it"
        )
    }</p><${Failure} error=${error} /></form>`;
}

function Editor({ user, operations, onClose }) {
  const [name, setName] = useState(user.name),
    [password, setPassword] = useState(""),
    [groups, setGroups] = useState(user.groups.join(" "));
  const [permissions, setPermissions] = useState(
    user.permissions.map(({ effect, operations, addresses }) => ({
      effect,
      operations,
      addresses: addresses.join(" "),
    })),
  );
  const [error, setError] = useState(null);
  const change = (index, fields) =>
    setPermissions(permissions.map((it, at) => (at === index ? { ...it, ...fields } : it)));
  const save = async (event) => {
    event.preventDefault();
    const body = {
      groups: words(groups),
      permissions: permissions.map((it) => ({ [it.effect]: it.operations, addresses: words(it.addresses) })),
      ...(password ? { password } : {}),
    };
    try {
      const saved = (await call("PUT", path("users", name), { body, etag: user.etag })).body;
      notice([`${name} is saved.`, ...(saved?.warnings ?? [])].join(" "));
      onClose();
    } catch (problem) {
      setError(problem);
    }
  };
  const { form, at, others } = useFaults(error, name, ["", "password", "groups", ...permissions.map(addressesOf)]);
  return html`<${Dialog} title=${user.name ? `Edit ${user.name}` : "New user"} onClose=${onClose} wide><form
    onSubmit=${save} ref=${form}>
    <${Control} name="" label="Name" at=${at}>${(own) => html`<input ...${own} required disabled=${Boolean(user.name)}
      value=${name} autocomplete="off" onInput=${(event) => setName(event.currentTarget.value)} />`}<//>
    <${Control} name="password" label=${`Password${user.password ? " (empty: unchanged)" : ""}`} at=${at}>${(own) =>
      html`<input ...${own} type="password" autocomplete="new-password" value=${password}
        onInput=${(event) => setPassword(event.currentTarget.value)} />`}<//>
    <${Control} name="groups" label="Groups" at=${at}>${(own) => html`<input ...${own} value=${groups}
      placeholder="operators devices" onInput=${(event) => setGroups(event.currentTarget.value)} />`}<//>
    <fieldset><legend>Permissions</legend>${permissions.map(
      (it, index) => html`<div class="row" key=${index}>
      <select aria-label="effect" value=${it.effect}
        onChange=${(event) => change(index, { effect: event.currentTarget.value })}><option>allow</option>
          <option>deny</option></select>
      ${operations.map(
        (operation) => html`<label class="check" key=${operation}><input type="checkbox"
          checked=${it.operations.includes(operation)}
        onChange=${(event) =>
          change(index, {
            operations: event.currentTarget.checked
              ? [...it.operations, operation]
              : it.operations.filter((other) => other !== operation),
          })} /> ${operation}</label>`,
      )}
      <${Control} name=${addressesOf(it, index)} label="on" at=${at}>${(own) => html`<input ...${own} required
        value=${it.addresses} placeholder="orders orders/#"
        onInput=${(event) => change(index, { addresses: event.currentTarget.value })} />`}<//>
      <button type="button" class="small" aria-label="remove this permission"
        onClick=${() => setPermissions(permissions.filter((_, at) => at !== index))}>✕</button></div>`,
    )}
      <button type="button"
        onClick=${() => setPermissions([...permissions, NEW])}>Add a permission</button></fieldset>
    <${Failure} error=${error} others=${others} /><footer><button type="button"
      onClick=${onClose}>Cancel</button><button class="main">Save</button></footer></form><//>`;
}

/** The field of the entry with the addresses of a permission. */
const addressesOf = (_, index) => `permissions.${index}.addresses`;
const words = (text) => text.split(/[\s,]+/).filter(Boolean);
