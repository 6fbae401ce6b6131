// MQTT sessions, connected or kept while their clients are away.
import { html } from "../lib.js";
import { call, path } from "../api.js";
import { ago, count, counted, FOR_EVER, seconds } from "../format.js";
import { owns } from "../parts/rights.js";
import { State } from "../parts/state.js";
import { List } from "./lists.js";

export const Sessions = ({
  me,
}) => html`<${List} title="MQTT sessions" where="sessions" empty="There are no MQTT sessions."
  texts=${(it) => [it.client, it.user, it.peer]}
  columns=${[
    { key: "client", title: "Client id", grow: true, stays: true },
    {
      key: "connected",
      title: "State",
      render: (it) => html`<${State} text=${it.connected ? "connected" : "away"} />`,
    },
    { key: "user", title: "User", render: (it) => it.user || html`<span class="soft">anonymous</span>` },
    { key: "peer", title: "From" },
    { key: "gateway", title: "Gateway" },
    {
      key: "protocol",
      title: "MQTT",
      render: (it) => ({ 3: "3.1", 4: "3.1.1", 5: "5.0" })[it.protocol] || it.protocol,
    },
    { key: "subscriptions", title: "Subscriptions", align: "right", render: (it) => count(it.subscriptions) },
    {
      key: "inFlight",
      title: "In flight, QoS 2",
      align: "right",
      render: (it) => count(it.inFlight),
    },
    { key: "waiting", title: "Waiting", align: "right", render: (it) => count(it.waiting) },
    {
      key: "expiry",
      title: "Kept for",
      align: "right",
      render: (it) => (it.expiry >= FOR_EVER ? "ever" : seconds(it.expiry)),
    },
    { key: "since", title: "Since", align: "right", render: (it) => ago(it.since) },
  ]}
  actions=${[
    {
      title: "Disconnect",
      may: (it) => it.connected && (me.administrator || owns(me, it.user)),
      done: "The client is disconnected.",
      run: (it) => call("DELETE", path("connections", `${it.gateway}/${it.id}`)),
      text: (it) => `Disconnect ${it.client}? Its session stays; the client may connect again.`,
      many: {
        text: () => "Their sessions stay; the clients may connect again.",
        done: (number) => `Disconnected: ${counted(number, "client")}.`,
        nameOf: (it) => it.client,
      },
    },
    {
      title: "Delete",
      may: (it) => me.administrator || owns(me, it.user),
      done: "The session is deleted.",
      run: (it) => call("DELETE", path("sessions", it.id)),
      text: (it) => `Delete the session of ${it.client}, with its subscriptions and the messages that wait for it?`,
      many: {
        text: () => "Their subscriptions go too, and the messages that wait for them. Clients are disconnected.",
        done: (number) => `Deleted: ${counted(number, "session")}.`,
        nameOf: (it) => it.client,
      },
    },
  ]} />`;
