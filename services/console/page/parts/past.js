// What the console has kept of numbers over time, continued by what the page sees.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { usePoll } from "../api.js";
import { bytes, count, percent, rate } from "../format.js";
import { Chart } from "./chart.js";
import { useQuery } from "./route.js";

/** Minutes → the title of the range. */
const RANGES = { 10: "10 min", 60: "1 hour", 360: "6 hours", 1440: "1 day" };
const STEP_MS = 2000,
  POLL_MS = 10_000;

/** Numbers of `stats` of the API, or of a row that has them, by the fields of charts. */
const numbers = ({ rates, ...rest }) => ({ ...rest, in: rates.in, out: rates.out });
const of = (label, field, color = "--blue") => ({ label, field, color });
const RATES = ["Messages a second", [of("in", "in"), of("out", "out", "--orange")], { unit: "/s", shown: rate }];
const STORED = ["Messages stored", [of("stored", "messages")], { shown: count }];

/** Charts of an address, or of all. `stored`: it has messages; `links`: its consumers and producers are known. */
export const ofAddresses = (stored, links = true) =>
  [
    RATES,
    stored && STORED,
    stored && ["Size of these", [of("size", "size")], { shown: bytes }],
    links && [
      "Consumers and producers",
      [of("consumers", "consumers"), of("producers", "producers", "--orange")],
      { shown: count },
    ],
  ].filter(Boolean);

/** Charts of a broker or router. */
export const ofProcesses = (stored) =>
  [
    RATES,
    ["Loop busy", [of("busy", "busy")], { shown: percent }],
    ["Memory", [of("memory", "memory")], { shown: bytes }],
    ["Connections", [of("connections", "connections")], { shown: count }],
    stored && STORED,
  ].filter(Boolean);

/**
 * Charts over time. `where`: the history in the API; `stats`: the numbers now, null while they are not known; `charts`:
 * [title, series, more] of each.
 */
export function Past({ where, stats, charts }) {
  const [chosen, choose] = useQuery("minutes", "10");
  const minutes = chosen in RANGES ? Number(chosen) : 10;
  const polled = usePoll(`${where}?minutes=${minutes}`, { ms: POLL_MS });
  const own = useRef([]),
    latest = useRef(stats);
  const [turn, draw] = useState(0);
  latest.current = stats;
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.hidden) return;
      if (latest.current) own.current.push({ at: Date.now() / 1000, ...numbers(latest.current) });
      if (own.current.length > 1800) own.current.shift();
      draw((it) => it + 1);
    }, STEP_MS);
    return () => clearInterval(timer);
  }, []);
  const fields = charts.flatMap(([, series]) => series.map((it) => it.field));
  const { columns, span } = useMemo(
    () => joined(polled.data, own.current, minutes, fields),
    [polled.data, own.current.at(-1), minutes, turn, fields.join()],
  );
  return html`<div class="row ranges" role="group" aria-label="Time range of the charts">${Object.entries(RANGES).map(
    ([it, title]) => html`<button key=${it} type="button" class="small" aria-pressed=${Number(it) === minutes}
      onClick=${() => choose(it)}>${title}</button>`,
  )}</div>
  <div class="two charts">${charts.map(
    ([title, series, more]) => html`<${Chart} key=${title} title=${title} times=${columns.at}
      series=${series.map((it) => ({ ...it, values: columns[it.field] }))} span=${span} ...${more} />`,
  )}</div>`;
}

/** Samples of the console, then those of the page that are newer, with null where some are missing. */
function joined(history, own, minutes, fields) {
  const ahead = history ? Date.now() - Date.parse(history.time) : 0; // of the browser's clock, and the time that passes
  const skew = Math.abs(ahead) > 60_000 ? ahead / 1000 : 0;
  const kept = (history?.samples || []).map((it) => ({ at: Date.parse(it.time) / 1000 + skew, ...numbers(it) }));
  const now = Date.now() / 1000,
    first = now - minutes * 60,
    last = kept.at(-1)?.at ?? 0;
  const longest = 2.5 * (history?.interval ?? 10);
  /** @type {Record<string, any[]>} */
  const columns = { at: [], ...Object.fromEntries(fields.map((it) => [it, []])) };
  const add = (it) => {
    columns.at.push(it.at);
    for (const field of fields) columns[field].push(it[field] ?? null);
  };
  let before = null;
  for (const it of [...kept, ...own.filter((one) => one.at > last)]) {
    if (it.at < first) continue;
    if (before !== null && it.at - before > longest) add({ at: before + 1 });
    before = it.at;
    add(it);
  }
  return { columns, span: [first, now] };
}
