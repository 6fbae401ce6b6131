// Why clients were refused or disconnected, newest first.
import { html, useState } from "../lib.js";
import { count, time } from "../format.js";
import { Dialog } from "../parts/dialog.js";
import { Link } from "../parts/route.js";
import { Facts } from "../parts/state.js";
import { List } from "./lists.js";

const userOf = (it) => it.user || (it.more.proved === false ? "unknown user" : "");
const linkTo = (address) => address && html`<${Link} to=${["addresses", address]}>${address}<//>`;

export function Events() {
  const [shown, show] = useState(/** @type {any} */ (null));
  return html`<${List} title="Events" where="events" empty="No client was refused." sort=${{ key: "time", down: true }}
    onOpen=${show}
    texts=${(it) => [it.address, userOf(it), it.client, it.peer, it.condition, it.description, it.kind]}
    columns=${[
      { key: "time", title: "Time", down: true, render: (it) => html`<time>${time(it.time)}</time>` },
      { key: "description", title: "Description", grow: true },
      { key: "condition", title: "Reason", shrink: true, render: (it) => it.condition || it.kind },
      { key: "address", title: "Address", shrink: true, render: (it) => linkTo(it.address) || "–" },
      { key: "user", title: "User", shrink: true, value: userOf, render: userOf },
      { key: "client", title: "Client", shrink: true },
      { key: "peer", title: "From" },
      { key: "count", title: "Times", align: "right", down: true },
    ]} />
    ${shown && html`<${Event} event=${shown} onClose=${() => show(null)} />`}`;
}

function Event({ event, onClose }) {
  return html`<${Dialog} title=${event.condition || event.kind} onClose=${onClose} wide>
    <p>${event.description}</p>
    <${Facts} of=${{
      Time: time(event.time),
      Kind: event.kind,
      Refused: event.more.what,
      Address: linkTo(event.address),
      User: userOf(event),
      Client: event.client,
      From: event.peer,
      At: event.component,
      Times: count(event.count),
    }} /><//>`;
}
