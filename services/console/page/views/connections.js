// Who is connected, with which links; closing a connection.
import { html, useMemo, useState } from "../lib.js";
import { call, path, useFetch, useWatch } from "../api.js";
import { ago, bytes, count, counted, FOR_EVER, matcher, rate, seconds } from "../format.js";
import { Confirm, notice } from "../parts/dialog.js";
import { Chosen, ForMany, useSelection } from "../parts/many.js";
import { owns } from "../parts/rights.js";
import { go, Link, useQuery } from "../parts/route.js";
import { Facts, Loaded, Missing, useSeen } from "../parts/state.js";
import { numeric, Table } from "../parts/table.js";

const CLOSES_PROCESS =
  "A process of the suite is disconnected. It connects again; meanwhile its clients may have to wait.";
const CLOSES_CLIENT = "The client is disconnected. It may connect again.";

const COLUMNS = [
  {
    key: "container",
    title: "Client",
    grow: true,
    stays: true,
    render: (it) => html`<${Link} to=${["connections", it.id]} tabindex="-1">${it.container || it.id}<//>`,
  },
  { key: "user", title: "User", render: (it) => it.user || html`<span class="soft">anonymous</span>` },
  { key: "protocol", title: "Protocol" },
  { key: "peer", title: "From" },
  { key: "tls", title: "TLS", render: (it) => it.tls || html`<span class="soft">no</span>` },
  { key: "component", title: "At" },
  { key: "links", title: "Links", align: "right" },
  numeric("in", "In/s", (it) => it.rates.in, rate, { down: true }),
  numeric("out", "Out/s", (it) => it.rates.out, rate, { down: true }),
  { key: "since", title: "Since", align: "right", render: (it) => ago(it.since) },
];

const idOf = (it) => it.id;
const mayClose = (me, it) => me.administrator || (!it.inside && owns(me, it.user));
const actions = (me) => [
  {
    title: "Close",
    may: (it) => mayClose(me, it),
    text: (rows) => (rows.some((it) => it.inside) ? CLOSES_PROCESS : CLOSES_CLIENT),
    run: (it) => call("DELETE", path("connections", it.id)),
    done: (number) => `Closed: ${counted(number, "connection")}.`,
    nameOf: (it) => [it.container || it.id, it.user, it.peer].filter(Boolean).join(" · "),
  },
];

const PROTOCOLS = ["AMQP", "MQTT", "HTTP", "STOMP", "CoAP"];

export function Connections({ me }) {
  const [text, setText] = useQuery("name"),
    [protocol, setProtocol] = useQuery("protocol"),
    [of, setOf] = useQuery("of");
  const watched = useWatch(`connections?inside=${of === "suite"}`);
  const rows = useMemo(() => {
    const matches = matcher(text);
    return [...watched.items.values()].filter(
      (it) =>
        (matches(it.container) || matches(it.user || "") || matches(it.peer)) &&
        (!protocol || it.protocol.toLowerCase().startsWith(protocol)),
    );
  }, [watched.version, text, protocol]);
  const selection = useSelection(rows, idOf),
    [many, setMany] = useState(null);
  return html`<h1>Connections</h1><div class="tools">
      <label>Client, user or host <input type="search" value=${text}
        onInput=${(event) => setText(event.currentTarget.value)} /></label>
      <label>Protocol <select value=${protocol} onChange=${(event) => setProtocol(event.currentTarget.value)}><option
        value="">all</option>${PROTOCOLS.map(
          (it) => html`<option key=${it} value=${it.toLowerCase()}>${it}</option>`,
        )}</select></label>
      <label>Show <select value=${of} onChange=${(event) => setOf(event.currentTarget.value)}><option
        value="">clients</option><option value="suite">the suite's processes</option></select></label></div>
    <${Chosen} selection=${selection} actions=${actions(me)} onAsk=${setMany} />
    ${many && html`<${ForMany} ...${many} keyOf=${idOf} onClose=${() => setMany(null)} />`}
    <${Loaded} of=${watched}><${Table} label="Connections" columns=${COLUMNS} rows=${rows} keyOf=${idOf}
      selected=${selection.selected} onSelect=${rows.some((it) => mayClose(me, it)) ? selection.set : null}
      onOpen=${(it) => go("connections", it.id)}
        empty=${of === "suite" ? "No process is connected." : "No client is connected."} /><//>`;
}

export function Connection({ name, me }) {
  const clients = useWatch("connections"),
    isClient = !clients.ready || clients.items.has(name);
  const processes = useWatch(isClient ? null : "connections?inside=true"),
    watched = isClient ? clients : processes;
  const [closing, setClosing] = useState(false);
  const it = watched.items.get(name);
  const sessions = useFetch(it?.mqtt ? `sessions?gateway=${encodeURIComponent(it.component)}&limit=1000` : null);
  const session = sessions.data?.items.find((each) => it?.id === `${each.gateway}/${each.id}`);
  const seen = useSeen(it);
  if (watched.ready && !it)
    return html`<${Missing} title="Connection" places=${[[["connections"], "All connections"]]} text=${
      seen ? "This connection is closed." : `There is no connection ${name}: it is closed, or you may not see it.`
    } />`;
  return html`<${Loaded} of=${watched}>${
    it &&
    html`<h1>${it.container || it.id}</h1>
    ${
      mayClose(me, it) &&
      html`<div class="tools"><span class="spring"></span>
    <button type="button" class="danger" onClick=${() => setClosing(true)}>Close connection</button></div>`
    }
    <${Facts} of=${{
      User: it.user || "anonymous",
      Protocol: it.protocol,
      From: it.peer,
      TLS: it.tls || "no",
      At: it.component,
      Connected: ago(it.since),
      ...(it.mqtt && ofMqtt(it.mqtt)),
      ...(session && { "Stored for it": counted(session.waiting, "message") }),
      In: `${rate(it.rates.in)}/s, ${count(it.totals.in)} in all`,
      Out: `${rate(it.rates.out)}/s, ${count(it.totals.out)} in all`,
      Bytes: `${bytes(it.totals.bytesIn)} in, ${bytes(it.totals.bytesOut)} out`,
    }} />
    <section><h2>${it.mqtt ? "Subscriptions and addresses" : "Links"}</h2>
      <${Links} where=${path("connections", name, "links")} /></section>
    ${
      closing &&
      html`<${Confirm} title="Close"
        text=${it.inside ? CLOSES_PROCESS : CLOSES_CLIENT} onClose=${() => setClosing(false)}
      action=${() => call("DELETE", path("connections", name))} onDone=${() => {
        notice("The connection is closed.");
        go("connections");
      }} />`
    }`
  }<//>`;
}

/** What a page about an MQTT client shows of it. */
const ofMqtt = (it) => ({
  MQTT: it.version,
  "Keep alive": it.keepAlive ? seconds(it.keepAlive) : "off",
  "Session kept for": it.expiry >= FOR_EVER ? "ever" : seconds(it.expiry),
  Will: it.will ? "yes" : "no",
  Subscriptions: count(it.subscriptions),
  "In flight": `${count(it.inFlightIn)} from it, ${count(it.inFlightOut)} to it`,
  "Waiting in the gateway": bytes(it.waitingBytes),
});

/** Links at an endpoint of the API; with `address` only those of it. */
export function Links({ where, address = null }) {
  const links = useFetch(address === null ? where : `links?address=${encodeURIComponent(address)}`);
  const items = links.data?.items || [];
  return html`<${Loaded} of=${links}>${
    items.length === 0
      ? html`<p class="soft">No links.</p>`
      : html`<div class="table-box short" tabindex="0" role="region" aria-label="Links"><table><caption
        class="hidden">Links</caption>
    <thead><tr><th scope="col">Direction</th><th scope="col">${address ? "Connection" : "Address"}</th><th scope="col"
     >Name</th><th scope="col" class="right">Credit</th><th scope="col" class="right">Unsettled</th><th
        scope="col" class="right">Rate</th></tr></thead>
    <tbody>${items.map(
      (it) => html`<tr key=${it.id}><td>${it.direction === "in" ? "sends" : "receives"}</td>
      <td>${
        address
          ? html`<${Link} to=${["connections", it.connection]}>${it.connection}
      <//>`
          : it.address
            ? html`<${Link} to=${["addresses", it.address]}>${it.address}<//>`
            : "–"
      }</td>
      <td>${it.name}${it.qos === null || it.qos === undefined ? "" : `, QoS ${it.qos}`}</td>
      <td class="right">${count(it.credit)}</td><td class="right">${count(it.unsettled)}</td><td
      class="right">${rate(it.rates.in + it.rates.out)}/s</td></tr>`,
    )}</tbody></table></div>`
  }
    <button type="button" onClick=${links.again}>Refresh</button><//>`;
}
