// Who talks to whom: clients, gateways, routers and brokers, with rates on the arrows.
import { html, useMemo } from "../lib.js";
import { useWatch } from "../api.js";
import { count, rate } from "../format.js";
import { Loaded } from "../parts/state.js";

const WIDTH = 1000,
  ROW = 110,
  BOX = 180,
  HIGH = 64;

export function Network() {
  const routers = useWatch("routers"),
    brokers = useWatch("brokers"),
    connections = useWatch("connections"),
    components = useWatch("components");
  const { columns, arrows, height } = useMemo(
    () => layout(...[routers, brokers, connections, components].map((it) => [...it.items.values()])),
    [routers.version, brokers.version, connections.version, components.version],
  );
  if (routers.ready && !columns.length)
    return html`<h1>Network</h1><p class="empty">No router or broker is reached, or you may not see them.</p>`;
  return html`<h1>Network</h1><${Loaded} of=${routers}>
    <div class="network-box" tabindex="0" role="region" aria-label="Picture of the network"><svg class="network"
      viewBox=${`0 0 ${WIDTH} ${height}`} role="img" aria-label=${arrows.map((it) => it.says).join("; ")}>
      <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path
        d="M0 0 8 4 0 8z" /></marker></defs>
      ${arrows.map(
        (it) => html`<g key=${it.key} class=${it.busy ? "busy" : ""}><path class="arrow" d=${it.path}
        marker-end="url(#head)" /></g>`,
      )}
      ${columns.flat().map(
        (
          it,
        ) => html`<g key=${it.key} class=${`box ${it.good ? "" : "bad"}`}><title>${it.name} ${it.version || ""}</title><rect x=${it.x}
          y=${it.y} width=${BOX} height=${HIGH} rx="8" />
        <text x=${it.x + BOX / 2} y=${it.y + 27} text-anchor="middle" class="name">
        ${it.name.length > 22 ? `${it.name.slice(0, 21)}…` : it.name}</text>
        <text x=${it.x + BOX / 2} y=${it.y + 47} text-anchor="middle" class="small">${it.detail}</text></g>`,
      )}
      ${arrows
        .filter((it) => it.busy || arrows.length < 9)
        .map(
          (it) => html`<text key=${`of ${it.key}`} class="rate"
        x=${it.x} y=${it.y} text-anchor="middle">${it.labels.map(
          (one, at) => html`<tspan x=${it.x} dy=${17 * at}>
          ${one}</tspan>`,
        )}</text>`,
        )}
    </svg></div>
    <p class="soft">Messages a second: → from clients, ← to clients; ↓ ↑ between routers.</p>
    <h2>The same as a list</h2><ul>${arrows.map((it) => html`<li key=${it.key}>${it.says}</li>`)}</ul><//>`;
}

function layout(routers, brokers, connections, components) {
  const clients = new Map(); // protocol and component → sums
  for (const it of connections) {
    const protocol = it.protocol.split(" ")[0].toUpperCase(),
      key = JSON.stringify([protocol, it.component]);
    const sum = clients.get(key) || { protocol, at: it.component, number: 0, in: 0, out: 0 };
    sum.number += 1;
    sum.in += it.rates.in;
    sum.out += it.rates.out;
    clients.set(key, sum);
  }
  // Routers that run, and that the console does not reach, or not yet.
  const others = components.filter(
    (it) => it.kind === "router" && !routers.some((one) => one.name === it.name) && routers.length > 0,
  );
  const names = new Set([...routers, ...brokers].map((it) => it.name)); // clients may be connected to a broker itself
  const idle = components.filter((it) => it.kind.endsWith("_gateway")).map((it) => it.name);
  const gateways = [...new Set([...[...clients.values()].map((it) => it.at).filter((it) => !names.has(it)), ...idle])];
  /** @type {any[]} */
  const groups = [...clients.entries()].map(([key, it]) => ({
    key: `clients ${key}`,
    name: `${it.protocol} clients`,
    detail: `${count(it.number)} connected`,
    good: true,
    sum: it,
  }));
  /** @type {any[][]} */
  const columns = [
    groups,
    gateways.map((name) => ({ key: name, name, detail: "gateway", good: true })),
    routers
      .map((it) => ({
        key: it.name,
        name: it.name,
        version: it.version,
        detail: `router · ${count(it.links)} links`,
        good: it.connected,
      }))
      .concat(others.map((it) => ({ key: it.name, name: it.name, detail: "router · not reached", good: false }))),
    brokers.map((it) => ({
      key: it.name,
      name: it.name,
      detail: `broker · ${count(it.messages)} stored`,
      good: it.connected,
    })),
  ].filter((column) => column.length);
  const first = [
    ...groups,
    ...columns.flat().filter((it) => gateways.includes(it.key) && !groups.some((group) => group.sum.at === it.key)),
  ];
  const height = Math.max(1, first.length, ...columns.map((it) => it.length)) * ROW + 20;
  columns.forEach((column, at) => {
    column.forEach((it, row) => {
      it.x = columns.length === 1 ? (WIDTH - BOX) / 2 : 10 + (at * (WIDTH - BOX - 20)) / (columns.length - 1);
      it.y = ((row + 0.5) * height) / column.length - HIGH / 2;
    });
  });
  first.forEach((it, row) => {
    it.y = ((row + 0.5) * height) / first.length - HIGH / 2;
  }); // no arrow leads through a gateway
  for (const it of columns.flat()) {
    // a gateway is beside its clients
    const own = gateways.includes(it.key) && groups.find((group) => group.sum.at === it.key);
    if (own) it.y = own.y;
  }
  const find = (key) => columns.flat().find((it) => it.key === key);
  const arrows = [];
  const arrow = (from, to, there, back) => {
    if (!from || !to) return;
    const x1 = from.x + BOX,
      y1 = from.y + HIGH / 2,
      x2 = to.x,
      y2 = to.y + HIGH / 2,
      x = (x1 + x2) / 2;
    arrows.push({
      key: `${from.key} ${to.key}`,
      busy: there + back > 0,
      path: `M${x1} ${y1}C${x} ${y1} ${x} ${y2} ${x2} ${y2}`,
      x,
      y: (y1 + y2) / 2 - 7,
      labels: [`→ ${rate(there)}`, `← ${rate(back)}`],
      says: `${from.name} and ${to.name}: ${rate(there)} messages a second there, ${rate(back)} back`,
    });
  };
  const between = (from, to, there, back, cost) => {
    // of one column: along its side, with more room the farther they are
    if (!from || !to) return;
    const [upper, lower] = from.y < to.y ? [from, to] : [to, from],
      x = upper.x + BOX / 2;
    const isNext = lower.y - upper.y < (1.5 * height) / routers.length,
      side = upper.x - (isNext ? 0 : 30);
    const [begin, end] = [upper.y + HIGH / 2, lower.y + HIGH / 2];
    const [down, up] = upper === from ? [there, back] : [back, there];
    arrows.push({
      key: `${from.key} ${to.key}`,
      busy: there + back > 0,
      x: isNext ? x : side,
      y: (upper.y + lower.y + HIGH) / 2 + 5,
      labels: [`↓ ${rate(down)} ↑ ${rate(up)}`],
      path: isNext
        ? `M${x} ${upper.y + HIGH}V${lower.y}`
        : `M${upper.x} ${begin}C${side} ${begin} ${side} ${end} ${lower.x} ${end}`,
      says: `${from.name} and ${to.name}: ${rate(there)} messages a second there, ${rate(back)} back${cost}`,
    });
  };
  for (const it of groups) arrow(it, find(it.sum.at), it.sum.in, it.sum.out);
  for (const gateway of gateways) {
    const own = groups.filter((it) => it.sum.at === gateway);
    const at = routers.filter((it) => it.peers.includes(gateway));
    for (const it of at)
      arrow(
        find(gateway),
        find(it.name),
        own.reduce((sum, one) => sum + one.sum.in, 0),
        own.reduce((sum, one) => sum + one.sum.out, 0),
      );
  }
  for (const router of routers)
    for (const it of router.neighbours) {
      const broker = brokers.find((one) => it.kind === "broker" && one.name === it.name);
      // What a router gets from a broker goes to clients.
      if (broker)
        arrow(
          find(router.name),
          find(broker.name),
          it.rates ? it.rates.out : broker.rates.in,
          it.rates ? it.rates.in : broker.rates.out,
        );
      if (it.kind === "router" && router.name < it.name) {
        const route = router.routes.find((one) => one.name === it.name && one.next === it.name);
        const rates = it.rates || { in: 0, out: 0 };
        between(find(router.name), find(it.name), rates.out, rates.in, route ? `, cost ${route.cost}` : "");
      }
    }
  return { columns, arrows, height };
}
