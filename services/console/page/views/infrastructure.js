// Brokers and routers: what each of them uses, and how busy it is.
import { html, useMemo } from "../lib.js";
import { path, useWatch } from "../api.js";
import { bytes, count, percent, rate, seconds } from "../format.js";
import { ofProcesses, Past } from "../parts/past.js";
import { useQuery } from "../parts/route.js";
import { Loaded, State } from "../parts/state.js";
import { numeric, Table } from "../parts/table.js";

const name = (it) => html`<span title=${it.version ? `version ${it.version}` : ""}>${it.name}</span>
  ${!it.connected && html` <${State} text="not reached" />`}`;
const used = [
  numeric("busy", "Loop busy", (it) => it.busy, percent, { down: true }),
  numeric("memory", "Memory", (it) => it.memory, bytes, { down: true }),
];
const ends = [
  numeric("connections", "Connections", (it) => it.connections, count, { down: true }),
  numeric("in", "In/s", (it) => it.rates.in, rate, { down: true }),
  numeric("out", "Out/s", (it) => it.rates.out, rate, { down: true }),
];
const FEW = 0.8; // of the capacity: from there on it is about to be used up

const size = (it) => {
  if (!it.capacity) return bytes(it.size);
  const part = it.size / it.capacity;
  return html`<span class=${part >= 1 ? "bad" : part >= FEW ? "wait" : ""}
    title=${`${percent(part)} of the capacity`}>${bytes(it.size)} of ${bytes(it.capacity)}</span>`;
};
const BROKERS = [
  { key: "name", title: "Broker", grow: true, stays: true, render: name },
  ...used,
  { key: "size", title: "Size", align: "right", down: true, value: (it) => it.size, render: size },
  numeric("diskFree", "Disk free", (it) => it.diskFree, bytes),
  numeric("diskUsed", "Files", (it) => it.diskUsed, bytes, { down: true }),
  numeric("sync", "Sync", (it) => it.sync, duration, { down: true }),
  numeric("messages", "Stored", (it) => it.messages, count, { down: true }),
  numeric("addresses", "Addresses", (it) => Object.keys(it.addresses).length, count, {
    down: true,
  }),
  ...ends,
];
const ROUTERS = [
  { key: "name", title: "Router", grow: true, stays: true, render: name },
  ...used,
  numeric("links", "Links", (it) => it.links, count, { down: true }),
  numeric("neighbours", "Neighbours", (it) => it.neighbours.length, count, { down: true }),
  ...ends,
];

function duration(value) {
  if (value === null || value === undefined) return "–";
  return value < 1 ? `${(value * 1000).toFixed(1)} ms` : seconds(value);
}

const KINDS = [
  { kind: "brokers", title: "Brokers", columns: BROKERS, empty: "There are no brokers, or you may not see them." },
  { kind: "routers", title: "Routers", columns: ROUTERS, empty: "No router is reached, or you may not see them." },
];

/** The table of a kind, and the charts of the one that is chosen, `KIND/NAME` in the address of the page. */
function Processes({ of: { kind, title, columns, empty }, chosen, choose }) {
  const watched = useWatch(kind);
  const rows = useMemo(() => [...watched.items.values()], [watched.version]);
  const shown = rows.find((it) => `${kind}/${it.name}` === chosen);
  return html`<h2>${title}</h2>
    <${Loaded} of=${watched}><${Table} label=${title} columns=${columns} rows=${rows} keyOf=${(it) => it.name}
      onOpen=${(it) => choose(it === shown ? "" : `${kind}/${it.name}`)} empty=${empty} /><//>
    ${
      shown &&
      html`<section key=${chosen}><h3>${shown.name} over time</h3><${Past} where=${path(kind, shown.name, "stats")}
      stats=${watched.lost || !shown.connected ? null : shown} charts=${ofProcesses(kind === "brokers")} /></section>`
    }`;
}

export function Infrastructure() {
  const [chosen, choose] = useQuery("of");
  return html`<h1>Brokers and routers</h1><div class="infrastructure">${KINDS.map(
    (it) => html`<${Processes} key=${it.kind} of=${it} chosen=${chosen} choose=${choose} />`,
  )}</div>
    <p class="soft">A click on a row shows its charts. Loop busy: the part of the last seconds in which the process had
      work: near 100 % it is the bottleneck. Sync: how long a batch of messages took to be on disk. What an engine does
      not say
      is shown as –.</p>`;
}
