// Queries of the Spark pipeline beside the suite: progress and lag, and the newest windows as a chart.
import { html, useState } from "../lib.js";
import { path, usePoll, useWatch } from "../api.js";
import { ago, count, rate, seconds, time } from "../format.js";
import { Chart } from "../parts/chart.js";
import { Facts, Loaded } from "../parts/state.js";

const SAMPLES = 120;
const sample = (it) => ({ at: Date.now() / 1000, in: it.rowsPerSecond, behind: it.behind });

export function Queries() {
  const watched = useWatch("queries", { history: SAMPLES, sample });
  return html`<h1>Spark queries</h1><${Loaded} of=${watched}>
    ${
      watched.items.size === 0 &&
      html`<p
      class="empty">No query runs beside the suite. <code>enmasse up --with spark</code> runs the telemetry pipeline
        of <code>spark.toml</code>.</p>`
    }
    ${[...watched.items.values()].map(
      (it) => html`<${Query} key=${it.name} query=${it}
      samples=${watched.history.get(it.name) || []} />`,
    )}<//>`;
}

function Query({ query, samples }) {
  const times = samples.map((it) => it.at);
  return html`<section aria-label=${query.name}><h2>${query.name}</h2>
    <${Facts} of=${{
      "Rows a second": rate(query.rowsPerSecond),
      "Messages behind": count(query.behind),
      "Oldest waits": query.oldest === null ? "" : seconds(query.oldest),
      "Rows since the start": count(query.rows),
      "Last batch": query.batch === null ? "none yet" : `${count(query.batch)}, ${ago(query.at)} ago`,
    }} />
    <div class="two">
      <${Chart} title="Rows a second" times=${times}
        series=${[{ label: "rows", values: samples.map((it) => it.in), color: "--blue" }]} unit="/s" />
      <${Chart} title="Messages behind" times=${times}
        series=${[{ label: "behind", values: samples.map((it) => it.behind), color: "--orange" }]} />
    </div><${Windows} name=${query.name} /></section>`;
}

function Windows({ name }) {
  const polled = usePoll(path("queries", name, "windows"), { ms: 5000 });
  const windows = polled.data?.windows || [];
  const devices = [...new Set(windows.map((it) => it.device))];
  const [chosen, choose] = useState(null);
  const device = devices.includes(chosen) ? chosen : devices[0];
  const own = windows.filter((it) => it.device === device);
  const line = (label, color) => ({ label, values: own.map((it) => it[label]), color });
  return html`<h3>Newest windows</h3><${Loaded} of=${polled}>
    ${
      own.length === 0
        ? html`<p class="soft">No window has ended yet.
            A window's result comes when the watermark has passed its end.</p>`
        : html`
    <label class="choice">Device <select value=${device} onChange=${(event) => choose(event.currentTarget.value)}>
    ${devices.map((it) => html`<option key=${it} value=${it}>${it}</option>`)}</select></label>
    <${Chart} key=${device} title=${`Windows of ${device}`} times=${own.map((it) => Date.parse(it.start) / 1000)}
      around="values"
      series=${[line("maximum", "--red"), line("mean", "--blue"), line("minimum", "--green")]} />
    <details><summary>The same as a table</summary><div class="table-box short" tabindex="0" role="region"
      aria-label=${`Windows of ${device}`}><table>
      <thead><tr>${["Start", "Minimum", "Mean", "Maximum", "Readings"].map(
        (it) => html`<th key=${it} scope="col">${it}
      </th>`,
      )}</tr></thead>
      <tbody>${own
        .slice(-20)
        .reverse()
        .map(
          (it) =>
            html`<tr key=${it.start}><td>${time(it.start)}</td>
              ${[it.minimum, it.mean, it.maximum].map(
                (value) => html`<td>
              ${value.toLocaleString("en", { maximumFractionDigits: 2 })}</td>`,
              )}<td>${count(it.readings)}</td></tr>`,
        )}</tbody></table></div></details>`
    }<//>`;
}
