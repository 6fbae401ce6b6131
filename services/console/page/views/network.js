// Who talks to whom: clients, gateways, routers and brokers, with rates on the arrows.
import { html, useMemo } from "../lib.js";
import { useWatch } from "../api.js";
import { count, rate } from "../format.js";
import { Loaded } from "../parts/state.js";

const WIDTH = 1000, ROW = 110, BOX = 180, HIGH = 64;

export function Network() {
  const routers = useWatch("routers"), brokers = useWatch("brokers"), connections = useWatch("connections"), components = useWatch("components");
  const { columns, arrows, height } = useMemo(
    () => layout(...[routers, brokers, connections, components].map((it) => [...it.items.values()])),
    [routers.version, brokers.version, connections.version, components.version]);
  if (routers.ready && !columns.length) return html`<h1>Network</h1><p class="empty">No router or broker is reached, or you may not see them.</p>`;
  return html`<h1>Network</h1><${Loaded} of=${routers}>
    <div class="network-box" tabindex="0" role="region" aria-label="Picture of the network"><svg class="network" viewBox=${`0 0 ${WIDTH} ${height}`} role="img" aria-label=${arrows.map((it) => it.says).join("; ")}>
      <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" /></marker></defs>
      ${arrows.map((it) => html`<g key=${it.key} class=${it.busy ? "busy" : ""}><path class="arrow" d=${`M${it.x1} ${it.y1}C${(it.x1 + it.x2) / 2} ${it.y1} ${(it.x1 + it.x2) / 2} ${it.y2} ${it.x2} ${it.y2}`} marker-end="url(#head)" /></g>`)}
      ${columns.flat().map((it) => html`<g key=${it.key} class=${`box ${it.good ? "" : "bad"}`}><title>${it.name}</title><rect x=${it.x} y=${it.y} width=${BOX} height=${HIGH} rx="8" />
        <text x=${it.x + BOX / 2} y=${it.y + 27} text-anchor="middle" class="name">${it.name.length > 22 ? `${it.name.slice(0, 21)}…` : it.name}</text>
        <text x=${it.x + BOX / 2} y=${it.y + 47} text-anchor="middle" class="small">${it.detail}</text></g>`)}
      ${arrows.filter((it) => it.incoming !== null).map((it) => html`<text key=${`of ${it.key}`} class="rate" x=${(it.x1 + it.x2) / 2} y=${(it.y1 + it.y2) / 2 - 7} text-anchor="middle">→ ${rate(it.incoming)}<tspan x=${(it.x1 + it.x2) / 2} dy="17">← ${rate(it.outgoing)}</tspan></text>`)}
    </svg></div>
    <p class="soft">Messages a second: → from clients, ← to clients.</p>
    <h2>The same as a list</h2><ul>${arrows.map((it) => html`<li key=${it.key}>${it.says}</li>`)}</ul><//>`;
}

function layout(routers, brokers, connections, components) {
  const clients = new Map(); // protocol and component → sums
  for (const it of connections) {
    const protocol = it.protocol.split(" ")[0].toUpperCase(), key = JSON.stringify([protocol, it.component]);
    const sum = clients.get(key) || { protocol, at: it.component, number: 0, in: 0, out: 0 };
    sum.number += 1; sum.in += it.rates.in; sum.out += it.rates.out;
    clients.set(key, sum);
  }
  // Further routers of a mesh are managed by the first one; the console follows that, and knows no rates of the others.
  const others = components.filter((it) => it.kind === "router" && !routers.some((one) => one.name === it.name) && routers.length > 0);
  const isMesh = others.length > 0;
  const names = new Set(routers.map((it) => it.name));
  const idle = components.filter((it) => it.kind === "mqtt_gateway").map((it) => it.name);
  const gateways = [...new Set([...[...clients.values()].map((it) => it.at).filter((it) => !names.has(it)), ...idle])];
  const groups = [...clients.entries()].map(([key, it]) => ({ key: `clients ${key}`, name: `${it.protocol} clients`, detail: `${count(it.number)} connected`, good: true, sum: it }));
  const columns = [
    groups,
    gateways.map((name) => ({ key: name, name, detail: "gateway", good: true })),
    routers.map((it) => ({ key: it.name, name: it.name, detail: `router · ${count(it.links)} links`, good: it.connected })).concat(
      others.map((it) => ({ key: it.name, name: it.name, detail: "router of the mesh", good: it.ready }))),
    brokers.map((it) => ({ key: it.name, name: it.name, detail: isMesh ? `→ ${rate(it.rates.in)} ← ${rate(it.rates.out)} · ${count(it.messages)} stored` : `broker · ${count(it.messages)} stored`, good: it.connected })),
  ].filter((column) => column.length);
  const first = [...groups, ...columns.flat().filter((it) => gateways.includes(it.key) && !groups.some((group) => group.sum.at === it.key))];
  const height = Math.max(1, first.length, ...columns.map((it) => it.length)) * ROW + 20;
  columns.forEach((column, at) => column.forEach((it, row) => {
    it.x = columns.length === 1 ? (WIDTH - BOX) / 2 : 10 + (at * (WIDTH - BOX - 20)) / (columns.length - 1);
    it.y = ((row + 0.5) * height) / column.length - HIGH / 2;
  }));
  first.forEach((it, row) => { it.y = ((row + 0.5) * height) / first.length - HIGH / 2; }); // no arrow leads through a gateway
  for (const it of columns.flat()) { // a gateway is beside its clients
    const own = gateways.includes(it.key) && groups.find((group) => group.sum.at === it.key);
    if (own) it.y = own.y;
  }
  const find = (key) => columns.flat().find((it) => it.key === key);
  const arrows = [];
  const arrow = (from, to, incoming, outgoing) => from && to && arrows.push({ key: `${from.key} ${to.key}`, x1: from.x + BOX, y1: from.y + HIGH / 2, x2: to.x, y2: to.y + HIGH / 2,
    busy: incoming + outgoing > 0, incoming, outgoing,
    says: `${from.name} and ${to.name}${incoming === null ? "" : `: ${rate(incoming)} messages a second there, ${rate(outgoing)} back`}` });
  for (const it of groups) arrow(it, find(it.sum.at), it.sum.in, it.sum.out);
  for (const gateway of gateways) {
    const own = groups.filter((it) => it.sum.at === gateway);
    for (const it of routers) arrow(find(gateway), find(it.name), own.reduce((sum, one) => sum + one.sum.in, 0), own.reduce((sum, one) => sum + one.sum.out, 0));
  }
  for (const router of [...routers, ...others]) for (const broker of brokers) {
    arrow(find(router.name), find(broker.name), isMesh ? null : broker.rates.in, isMesh ? null : broker.rates.out);
  }
  return { columns, arrows, height };
}
