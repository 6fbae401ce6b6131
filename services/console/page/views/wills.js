// Wills of MQTT clients: what is published if they are lost.
import { html } from "../lib.js";
import { bytes, time } from "../format.js";
import { State } from "../parts/state.js";
import { List } from "./lists.js";

export const Wills = () => html`<${List} title="Wills" where="wills" empty="No client has a will." texts=${(it) => [it.client, it.topic, it.user]}
  columns=${[
    { key: "client", title: "Client id" }, { key: "topic", title: "Topic", grow: true, render: (it) => html`<code>${it.topic}</code>` },
    { key: "state", title: "State", render: (it) => html`<${State} text=${it.state} detail=${it.due ? `published at ${time(it.due)}` : ""} />` },
    { key: "due", title: "Published at", wide: true, render: (it) => time(it.due) },
    { key: "qos", title: "QoS", align: "right", wide: true }, { key: "retain", title: "Retained", wide: true, render: (it) => (it.retain ? "yes" : "no") },
    { key: "size", title: "Size", align: "right", wide: true, render: (it) => bytes(it.size) }, { key: "user", title: "User", wide: true },
  ]} />`;
