// API tokens of a user: made, shown once, removed.
import { html, useMemo, useState } from "../lib.js";
import { call, path, useWatch } from "../api.js";
import { ago, time } from "../format.js";
import { Confirm, Dialog, Failure, notice } from "../parts/dialog.js";
import { Control, useFaults } from "../parts/fields.js";
import { Loaded } from "../parts/state.js";
import { Table } from "../parts/table.js";

export function Tokens({ user, me }) {
  const watched = useWatch(`tokens?user=${encodeURIComponent(user)}`);
  const [dialog, setDialog] = useState(null);
  const rows = useMemo(() => [...watched.items.values()].filter((it) => it.user === user), [watched.version, user]);
  const may = me.administrator || me.user === user;
  return html`<section><h2>API tokens</h2>
    <p class="soft">By a token a program uses the API as this user: <code>Authorization: Bearer TOKEN</code>.</p>
    ${
      may &&
      html`<div class="tools"><span class="spring"></span><button type="button"
      onClick=${() => setDialog({ making: true })}>New token</button></div>`
    }
    <${Loaded} of=${watched}><${Table} label="API tokens" rows=${rows} keyOf=${(it) => it.name}
      empty="This user has no API tokens."
      columns=${[
        { key: "name", title: "Name", shrink: true, stays: true },
        { key: "readOnly", title: "May", render: (it) => (it.readOnly ? "read" : "all that the user may") },
        { key: "created", title: "Made", render: (it) => time(it.created) },
        { key: "used", title: "Last used", render: (it) => (it.used ? `${ago(it.used)} ago` : "not known") },
        { key: "expires", title: "Expires", render: (it) => (it.expires ? time(it.expires) : "never") },
        {
          key: "remove",
          title: "",
          acts: true,
          spoken: "action",
          render: (it) =>
            may &&
            html`<button type="button" class="small danger" aria-label=${`Delete the token ${it.name}`}
            onClick=${() => setDialog({ removing: it.name })}>Delete</button>`,
        },
      ]} /><//>
    ${dialog?.making && html`<${Maker} user=${user} onClose=${() => setDialog(null)} />`}
    ${
      dialog?.removing &&
      html`<${Confirm} title="Delete" text=${`Programs with the token ${dialog.removing} are refused from now on.`}
      onClose=${() => setDialog(null)} action=${() => call("DELETE", path("tokens", `${user}/${dialog.removing}`))}
      onDone=${() => {
        notice(`The token ${dialog.removing} is deleted.`);
        setDialog(null);
      }} />`
    }</section>`;
}

function Maker({ user, onClose }) {
  const [name, setName] = useState(""),
    [days, setDays] = useState("90"),
    [readOnly, setReadOnly] = useState(false),
    [made, setMade] = useState(null),
    [error, setError] = useState(null);
  const make = async (event) => {
    event.preventDefault();
    try {
      const body = { user, name, readOnly, ...(days ? { days: Number(days) } : {}) };
      setMade((await call("POST", "tokens", { body })).body);
    } catch (problem) {
      setError(problem);
    }
  };
  const { form, at, others } = useFaults(error, user, ["name"]);
  if (made)
    return html`<${Dialog} key="made" title=${`Token ${made.name}`}
      onClose=${onClose}><p>Copy it now: it is not shown again.</p>
      <p><code class="secret">${made.secret}</code></p><footer><button type="button" class="main"
        onClick=${onClose}>Done</button></footer><//>`;
  return html`<${Dialog} title="New API token" onClose=${onClose}><form onSubmit=${make}
    ref=${form}><${Control} name="name" label="Name" at=${at}>${(own) => html`<input ...${own} required maxlength="64"
      value=${name} autocomplete="off" onInput=${(event) => setName(event.currentTarget.value)} />`}<//>
    <label>Days until it expires (empty: never) <input type="number" min="1" max="3650" value=${days}
      onInput=${(event) => setDays(event.currentTarget.value)} /></label>
    <label class="check"><input type="checkbox" checked=${readOnly}
      onChange=${(event) => setReadOnly(event.currentTarget.checked)} /> it only reads</label>
    <${Failure} error=${error} others=${others} /><footer><button type="button"
      onClick=${onClose}>Cancel</button><button
      class="main">Make</button></footer></form><//>`;
}
