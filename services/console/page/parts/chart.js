// Pictures of numbers over time: a line in a table's cell, and a chart with axes (uPlot).
import { html, useEffect, useRef } from "../lib.js";

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

/**
 * A chart of series over time. `times`: seconds since 1970; `series`: [{label, values, color: "--a" of style.css}];
 * `around`: "zero" begins the axis there, "values" shows their range.
 */
export function Chart({ times, series, title, unit = "", around = "zero" }) {
  const box = useRef(null),
    plot = useRef(null);
  const shape = series.map((it) => it.label).join() + unit;
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
      scales: {
        x: { range: (_, first, last) => [Math.min(first, last - 60), last] },
        y: {
          range: (_, low, high) =>
            around === "zero"
              ? [0, Math.max(1, high * 1.1)]
              : [low - (high - low || 1) / 10, high + (high - low || 1) / 10],
        },
      },
      axes: [line, { ...line, size: 56, values: (_, ticks) => ticks.map((it) => it.toLocaleString("en") + unit) }],
      series: [
        {},
        ...series.map((it) => ({
          label: it.label,
          stroke: theme(it.color),
          width: 2,
          points: { show: false },
          value: (_, value) => (value === null ? "–" : value.toLocaleString("en", { maximumFractionDigits: 1 }) + unit),
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
  const now = series
    .map((it) => `${it.label} ${(it.values.at(-1) ?? 0).toLocaleString("en", { maximumFractionDigits: 1 })}${unit}`)
    .join(", ");
  return html`<figure class="chart"><figcaption>${title}</figcaption><div ref=${box} role="img"
    aria-label=${`${title}: now ${now}`}></div></figure>`;
}
