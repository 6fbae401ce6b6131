// Pictures of numbers over time: a line in a table's cell, and a chart with axes (uPlot).
import { html, useEffect, useRef, useState } from "../lib.js";
import { bytes, count, time } from "../format.js";

/** Data for uPlot, which chooses an axis of years for a single moment. */
const data = (times, series) =>
  times.length === 1
    ? [[times[0] - 60, times[0]], ...series.map((it) => [null, it.values[0]])]
    : [times, ...series.map((it) => it.values)];

/** Draw the last numbers as a line 90 pixels wide. `label` is what a screen reader says. */
export function Sparkline({ values, label }) {
  if (!values || values.length < 2) return html`<span class="spark"></span>`;
  const most = Math.max(...values, 1e-9),
    step = 90 / (values.length - 1);
  const points = values
    .map((value, index) => `${(index * step).toFixed(1)},${(20 - (18 * value) / most).toFixed(1)}`)
    .join(" ");
  return html`<svg class="spark" viewBox="0 0 90 22" role="img" aria-label=${label}><polyline points=${points} />
    </svg>`;
}

const theme = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const POWERS = Array.from({ length: 50 }, (_, at) => 2 ** at);
const WHOLE = Array.from({ length: 45 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3));

/** Times below the axis: with seconds if they are close, with the date at midnight. */
const moments = (ticks, step) =>
  ticks.map((it) => {
    const [date, clock] = time(it * 1000).split(" ");
    if (clock === "00:00:00") return date.slice(5);
    return step < 60 ? clock : clock.slice(0, 5);
  });

const least = (values) => values.reduce((one, other) => (other === null || other > one ? one : other), Infinity);
const greatest = (values) => values.reduce((one, other) => (other === null || other < one ? one : other), -Infinity);

/**
 * A chart of series over time. `times`: seconds since 1970; `series`: [{label, values, color: "--a" of style.css}],
 * with null where nothing is known; `around`: "zero" begins the axis there, "values" shows their range; `shown(value)`:
 * a number as text; `span`: [first, last] time of the axis. The arrow keys read it point by point.
 */
export function Chart({ times, series, title, unit = "", around = "zero", shown = null, span = null }) {
  const box = useRef(null),
    plot = useRef(null),
    range = useRef(span);
  const [spoken, speak] = useState("");
  range.current = span;
  const text = (value) =>
    value === null || value === undefined
      ? "–"
      : shown
        ? shown(value) + unit
        : value.toLocaleString("en", { maximumFractionDigits: 1 }) + unit;
  const shape = series.map((it) => it.label + theme(it.color)).join() + unit;
  useEffect(() => {
    const line = {
      stroke: theme("--soft"),
      grid: { stroke: theme("--line"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui",
    };
    const options = {
      width: Math.max(200, box.current.clientWidth),
      height: 180,
      cursor: { y: false },
      legend: { live: true },
      hooks: { setCursor: [(it) => it.root.classList.toggle("pointed", Number.isInteger(it.cursor.idx))] },
      scales: {
        x: { range: (_, first, last) => range.current || [Math.min(first, last - 60), last] },
        y: {
          range: (_, low, high) =>
            around === "zero"
              ? [0, Math.max(1, (high || 0) * 1.1)]
              : [low - (high - low || 1) / 10, high + (high - low || 1) / 10],
        },
      },
      axes: [
        { ...line, size: 34, space: 76, values: (_, ticks, __, ___, step) => moments(ticks, step) },
        {
          ...line,
          size: (_, labels) => 16 + 7 * Math.max(4, ...(labels || []).map((it) => it.length)),
          incrs: shown === bytes ? POWERS : shown === count ? WHOLE : undefined,
          values: (_, ticks) => ticks.map(text),
        },
      ],
      series: [
        { value: (_, value) => (value === null ? "–" : time(value * 1000)) },
        ...series.map((it, at) => ({
          label: it.label,
          stroke: theme(it.color),
          width: 2,
          dash: at % 2 ? [6, 4] : undefined, // told apart without colours
          points: { show: false },
          value: (_, value) => text(value),
        })),
      ],
    };
    plot.current = new window.uPlot(options, data(times, series), box.current);
    const observer = new ResizeObserver(([{ contentRect }]) =>
      plot.current?.setSize({ width: Math.max(200, contentRect.width), height: 180 }),
    );
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => {
    if (plot.current) plot.current.setData(data(times, series));
  });
  const step = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (!by || !times.length) return;
    event.preventDefault();
    const last = times.length - 1;
    const at = Math.max(0, Math.min(last, (plot.current.cursor.idx ?? last) + by));
    plot.current.setCursor({ left: plot.current.valToPos(times[at], "x"), top: 20 });
    speak(`${time(times[at] * 1000)}: ${series.map((it) => `${it.label} ${text(it.values[at])}`).join(", ")}`);
  };
  const about = series.map((it) => {
    const known = it.values.filter((value) => value !== null && value !== undefined);
    if (!known.length) return `${it.label} not known`;
    return `${it.label} now ${text(it.values.at(-1))}, between ${text(least(known))} and ${text(greatest(known))}`;
  });
  return html`<figure class="chart"><figcaption>${title}</figcaption><div ref=${box} role="img" tabindex="0"
    onKeyDown=${step} aria-label=${`${title}: ${about.join("; ")}. Arrow keys: point by point`}></div>
    <p class="hidden" role="status">${spoken}</p></figure>`;
}
