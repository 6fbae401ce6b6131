// Who talks to whom: clients, gateways, routers and brokers, with rates on the arrows.
import { html, useMemo } from "../lib.js";
import { useWatch } from "../api.js";
import { count, rate } from "../format.js";
import { Loaded } from "../parts/state.js";

const LETTERS = 24, // of a line in a box
  LINE = 17,
  BOX = 210,
  HIGH = 47, // of a box without the lines of its name
  GAP = 150, // between two columns: for the rates beside the lines
  SPACE = 46; // between two boxes

/** A name in lines of a box, whole: cut behind a mark if there is one near. */
function linesOf(name) {
  const lines = [];
  let rest = name;
  while (rest.length > LETTERS) {
    const marks = [...rest.slice(0, LETTERS).matchAll(/[-_./ @:]/g)].map((it) => it.index + 1);
    const cut = marks.filter((it) => it > LETTERS / 3).at(-1) || LETTERS;
    lines.push(rest.slice(0, cut));
    rest = rest.slice(cut);
  }
  return [...lines, rest];
}

export function Network() {
  const routers = useWatch("routers"),
    brokers = useWatch("brokers"),
    connections = useWatch("connections"),
    components = useWatch("components");
  const { columns, arrows, width, height } = useMemo(
    () => layout(...[routers, brokers, connections, components].map((it) => [...it.items.values()])),
    [routers.version, brokers.version, connections.version, components.version],
  );
  if (routers.ready && !columns.length)
    return html`<h1>Network</h1><p class="empty">No router or broker is reached, or you may not see them.</p>`;
  return html`<h1>Network</h1><${Loaded} of=${routers}>
    <div class="network-box" tabindex="0" role="region" aria-label="Picture of the network"><svg class="network"
      viewBox=${`0 0 ${width} ${height}`} style=${{ minWidth: `${0.8 * width}px` }} role="img"
      aria-label=${arrows.map((it) => it.says).join("; ")}>
      <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path
        d="M0 0 8 4 0 8z" /></marker></defs>
      ${arrows.map(
        (it) => html`<g key=${it.key} class=${it.busy ? "busy" : ""}><path class="arrow" d=${it.path}
        marker-end="url(#head)" /></g>`,
      )}
      ${columns.flat().map(
        (it) => html`<g key=${it.key} class=${`box ${it.good ? "" : "bad"}`}><title>${it.name} ${
          it.version || ""
        }</title><rect x=${it.x}
          y=${it.y} width=${BOX} height=${it.high} rx="8" />
        <text y=${it.y + 27} text-anchor="middle" class="name">${it.lines.map(
          (line, at) => html`<tspan x=${it.x + BOX / 2} dy=${at ? LINE : 0}>${line}</tspan>`,
        )}</text>
        <text x=${it.x + BOX / 2} y=${it.y + it.high - 15} text-anchor="middle" class="small">${it.detail}</text></g>`,
      )}
      ${arrows
        .filter((it) => it.busy || arrows.length < 9)
        .map(
          (it) => html`<text key=${`of ${it.key}`} class="rate"
        >${it.labels.map(
          (one) => html`<tspan x=${one.x} y=${one.y} text-anchor=${one.anchor}>${one.text}</tspan>`,
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
  for (const it of columns.flat()) {
    it.lines = linesOf(it.name);
    it.high = HIGH + LINE * it.lines.length;
  }
  const row = Math.max(0, ...columns.flat().map((it) => it.high)) + SPACE;
  const height = Math.max(1, first.length, ...columns.map((it) => it.length)) * row + 20;
  const width = 20 + columns.length * BOX + (columns.length - 1) * GAP;
  columns.forEach((column, at) => {
    column.forEach((it, number) => {
      it.x = 10 + at * (BOX + GAP);
      it.y = ((number + 0.5) * height) / column.length - it.high / 2;
    });
  });
  first.forEach((it, number) => {
    it.y = ((number + 0.5) * height) / first.length - it.high / 2;
  }); // no arrow leads through a gateway
  for (const it of columns.flat()) {
    // a gateway is beside its clients
    const own = gateways.includes(it.key) && groups.find((group) => group.sum.at === it.key);
    if (own) it.y = own.y + (own.high - it.high) / 2;
  }
  const find = (key) => columns.flat().find((it) => it.key === key);
  const arrows = [];
  const arrow = (from, to, there, back) => {
    if (!from || !to) return;
    const x1 = from.x + BOX,
      y1 = from.y + from.high / 2,
      x2 = to.x,
      y2 = to.y + to.high / 2,
      x = (x1 + x2) / 2,
      y = (y1 + y2) / 2;
    // Beside the middle of the line: above and below one that is flat, else on the two sides.
    const flat = Math.abs(y2 - y1) < 24,
      [onRight, onLeft] = y2 > y1 ? [-6, 16] : [16, -6];
    const labels = flat
      ? [
          { text: `→ ${rate(there)}`, x, y: y - 8, anchor: "middle" },
          { text: `← ${rate(back)}`, x, y: y + 18, anchor: "middle" },
        ]
      : [
          { text: `→ ${rate(there)}`, x: x + 12, y: y + onRight, anchor: "start" },
          { text: `← ${rate(back)}`, x: x - 12, y: y + onLeft, anchor: "end" },
        ];
    arrows.push({
      key: `${from.key} ${to.key}`,
      busy: there + back > 0,
      path: `M${x1} ${y1}C${x} ${y1} ${x} ${y2} ${x2} ${y2}`,
      labels,
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
    const [begin, end] = [upper.y + upper.high / 2, lower.y + lower.high / 2],
      middle = (upper.y + upper.high + lower.y) / 2 + 5;
    const [down, up] = upper === from ? [there, back] : [back, there];
    arrows.push({
      key: `${from.key} ${to.key}`,
      busy: there + back > 0,
      labels: [
        { text: `↓ ${rate(down)}`, x: (isNext ? x : side) + 8, y: middle, anchor: "start" },
        { text: `↑ ${rate(up)}`, x: (isNext ? x : side) - 8, y: middle, anchor: "end" },
      ],
      path: isNext
        ? `M${x} ${upper.y + upper.high}V${lower.y}`
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
  return { columns, arrows, width, height };
}
