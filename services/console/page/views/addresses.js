// All addresses: live, filtered and sorted in the page.
import { html, useMemo, useState } from "../lib.js";
import { call, path, useWatch } from "../api.js";
import { bytes, count, counted, matcher, rate, seconds } from "../format.js";
import { Sparkline } from "../parts/chart.js";
import { Chosen, ForMany, useSelection } from "../parts/many.js";
import { manages, may } from "../parts/rights.js";
import { go, Link, useQuery } from "../parts/route.js";
import { Loaded, State } from "../parts/state.js";
import { numeric, Table } from "../parts/table.js";
import { traits, TYPES } from "../types.js";
import { AddressWizard } from "./wizard.js";

const COLUMNS = (history) => [
  {
    key: "name",
    title: "Name",
    grow: true,
    stays: true,
    render: (it) => html`<${Link} to=${["addresses", it.name]} tabindex="-1">${it.name}<//>`,
  },
  { key: "type", title: "Type" },
  { key: "phase", title: "State", render: (it) => html`<${State} text=${it.phase} detail=${it.message} />` },
  numeric("messages", "Messages", (it) => it.stats.messages, count, { down: true }),
  numeric("in", "In/s", (it) => it.stats.rates.in, rate, { down: true }),
  numeric("out", "Out/s", (it) => it.stats.rates.out, rate, { down: true }),
  {
    key: "line",
    title: "",
    spoken: "rate",
    extra: true,
    render: (it) =>
      html`<${Sparkline} values=${history.get(it.name)}
        label=${`messages in, last minute: now ${rate(it.stats.rates.in)} a second`} />`,
  },
  numeric("consumers", "Consumers", (it) => it.stats.consumers, count),
  numeric("producers", "Producers", (it) => it.stats.producers, count),
  numeric("oldest", "Oldest", (it) => it.stats.oldest, seconds, { down: true }),
  numeric("size", "Size", (it) => it.stats.size, bytes, { down: true }),
  { key: "flavor", title: "Flavor", shrink: true },
];

const nameOf = (it) => it.name;
const messagesOf = (rows) => rows.reduce((sum, it) => sum + (it.stats.messages || 0), 0);

/** What can be done to the addresses that are selected. */
const actions = (me) => [
  {
    title: "Purge",
    may: (it) => traits(it.type).browse && it.entry && may(me, "manage", it.name),
    typed: true,
    text: (rows) => `What these queues hold is removed, and lost: ${counted(messagesOf(rows), "message")}.`,
    run: (it) => call("POST", path("addresses", it.name, "purge"), { body: {} }),
    done: (number) => `Being purged: ${counted(number, "queue")}.`,
  },
  {
    title: "Delete",
    may: (it) => may(me, "manage", it.name),
    typed: true,
    text: (rows) =>
      messagesOf(rows)
        ? `What they hold: ${counted(messagesOf(rows), "message")}.`
        : "Clients that use them are refused from then on.",
    option: {
      text: "Delete their messages too. Otherwise an address goes when they have been received.",
      may: (rows) => messagesOf(rows) > 0,
    },
    run: (it, force) =>
      it.entry || force
        ? call("DELETE", path("addresses", it.name) + (force ? "?force=true" : ""), { etag: it.etag || undefined })
        : null,
    done: (number) => `Deleted: ${counted(number, "address", "addresses")}.`,
  },
];

export function Addresses({ me }) {
  const watched = useWatch("addresses", { history: 60, sample: (it) => it.stats.rates.in });
  const [name, setName] = useQuery("name"),
    [type, setType] = useQuery("type"),
    [state, setState] = useQuery("state");
  const [making, setMaking] = useState(false),
    [many, setMany] = useState(null);
  const columns = useMemo(() => COLUMNS(watched.history), [watched]);
  const rows = useMemo(() => {
    const matches = matcher(name);
    return [...watched.items.values()].filter(
      (it) =>
        matches(it.name) &&
        (!type || it.type === type) &&
        (!state ||
          (state === "not-ready"
            ? !it.ready && it.phase !== "Terminating"
            : state === "terminating"
              ? it.phase === "Terminating"
              : state === "stored"
                ? it.stats.messages > 0
                : it.stats.rates.in + it.stats.rates.out > 0)),
    );
  }, [watched.version, name, type, state]);
  const selection = useSelection(rows, nameOf);
  return html`<h1>Addresses</h1>
    <div class="tools">
      <label>Name <input type="search" value=${name} placeholder="orders/*"
        onInput=${(event) => setName(event.currentTarget.value)} /></label>
      <label>Type <select value=${type} onChange=${(event) => setType(event.currentTarget.value)}><option
        value="">all</option>
        ${Object.keys(TYPES)
          .sort()
          .map((it) => html`<option key=${it}>${it}</option>`)}</select>
        </label>
      <label>Show <select value=${state} onChange=${(event) => setState(event.currentTarget.value)}><option
        value="">all</option>
        <option value="not-ready">not ready</option><option value="terminating">being removed</option><option
        value="stored">with messages</option><option
          value="busy">with traffic</option></select></label>
      <span class="spring"></span>${
        manages(me) &&
        html`<button type="button" class="main"
        onClick=${() => setMaking(true)}>New address</button>`
      }
    </div>
    <${Chosen} selection=${selection} actions=${actions(me)} onAsk=${setMany} />
    <${Loaded} of=${watched}><${Table} label="Addresses" columns=${columns} rows=${rows} keyOf=${nameOf}
      selected=${selection.selected} onSelect=${manages(me) ? selection.set : null}
      onOpen=${(it) => go("addresses", it.name)}
        empty=${watched.items.size ? "No address matches." : "There are no addresses yet."} /><//>
    ${many && html`<${ForMany} ...${many} keyOf=${nameOf} onClose=${() => setMany(null)} />`}
    ${
      making &&
      html`<${AddressWizard} me=${me} known=${watched.items} onClose=${() => setMaking(false)} onDone=${(made) => {
        setMaking(false);
        go("addresses", made);
      }} />`
    }`;
}
