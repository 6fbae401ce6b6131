// Why clients were refused or disconnected, newest first.
import { html } from "../lib.js";
import { time } from "../format.js";
import { Link } from "../parts/route.js";
import { List } from "./lists.js";

export const Events =
  () => html`<${List} title="Events" where="events" empty="No client was refused." sort=${{ key: "time", down: true }}
  texts=${(it) => [it.address, it.user, it.client, it.peer, it.condition, it.description, it.kind]}
  columns=${[
    { key: "time", title: "Time", down: true, render: (it) => html`<time>${time(it.time)}</time>` },
    { key: "condition", title: "Reason", render: (it) => it.condition || it.kind },
    { key: "description", title: "Description", grow: true },
    {
      key: "address",
      title: "Address",
      render: (it) => (it.address ? html`<${Link} to=${["addresses", it.address]}>${it.address}<//>` : "–"),
    },
    {
      key: "user",
      title: "User",
      wide: true,
      render: (it) => it.user || (it.more.proved === false ? "unknown user" : ""),
    },
    { key: "client", title: "Client", wide: true },
    { key: "peer", title: "From", wide: true },
    { key: "count", title: "Times", align: "right", wide: true, down: true },
    { key: "component", title: "At", wide: true },
  ]} />`;
