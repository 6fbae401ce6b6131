// Wills: what is published for MQTT clients that are lost. Never their bodies.
import { html } from "../lib.js";
import { bytes, time } from "../format.js";
import { State } from "../parts/state.js";
import { List } from "./lists.js";

export const Wills = () => html`<${List} title="Wills" where="wills" empty="No client has a will."
  texts=${(it) => [it.client, it.user, it.topic]}
  columns=${[
    { key: "client", title: "Client", shrink: true, stays: true },
    { key: "topic", title: "Topic", grow: true, render: (it) => html`<code>${it.topic}</code>` },
    { key: "state", title: "State", render: (it) => html`<${State} text=${it.state} />` },
    {
      key: "due",
      title: "Published",
      render: (it) => (it.due ? time(it.due) : it.delay ? `${it.delay} s after the loss` : "at once"),
    },
    { key: "qos", title: "QoS", align: "right" },
    { key: "retain", title: "Retained", render: (it) => (it.retain ? "yes" : "no") },
    { key: "size", title: "Size", align: "right", down: true, render: (it) => bytes(it.size) },
    { key: "user", title: "User" },
  ]} />`;
