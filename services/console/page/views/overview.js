// The suite at a glance: what is not well comes first.
import { html } from "../lib.js";
import { SPACE, usePoll, useWatch } from "../api.js";
import { ago, bytes, count, counted, rate, time } from "../format.js";
import { ofAddresses, Past } from "../parts/past.js";
import { Link } from "../parts/route.js";
import { Loaded, State } from "../parts/state.js";
import { Usage } from "../parts/usage.js";

const CHARTS = ofAddresses(true);

export function Overview({ me }) {
  const polled = usePoll("overview");
  const refusals = useWatch("events");
  const name = SPACE || me.space;
  const space = useWatch(name ? `spaces?name=${encodeURIComponent(name)}` : null).items.get(name);
  const { data: suite } = polled;
  return html`<${Loaded} of=${polled}>${
    suite &&
    html`
    <h1>Overview <${State} text=${suite.ready ? (suite.degraded.length ? "degraded" : "ready") : "not ready"} /></h1>
    <${Problems} suite=${suite} />
    <section class="tiles" aria-label="Numbers">
      <${Tile} title="Messages in" value=${`${rate(suite.rates.in)}/s`} /><${Tile} title="Messages out"
        value=${`${rate(suite.rates.out)}/s`} />
      <${Tile} title="Stored" value=${count(suite.messages)} to=${["addresses"]} />
      <${Tile} title="Size of these" value=${bytes(suite.size)} to=${["addresses"]} /><${Tile} title="Connections"
        value=${count(suite.connections)} to=${["connections"]} />
      <${Tile} title="Addresses" value=${count(Object.values(suite.phases).reduce((sum, it) => sum + it, 0))}
        to=${["addresses"]} />
      <${Tile} title="Refused" value=${`${rate(suite.rates.rejected)}/s`} to=${["events"]} />
    </section>
    ${
      space &&
      Object.keys(space.used).length > 0 &&
      html`<section><h2>Used${space.plan && html` of the plan <${Link} to=${["plans"]}>${space.plan}<//>`}</h2>
        <${Usage} space=${space} /></section>`
    }
    <${Past} where="stats" stats=${polled.lost ? null : suite} charts=${CHARTS} />
    ${
      suite.components.length > 0 &&
      html`<section><h2>Components</h2><ul class="cards">${suite.components.map(
        (it) => html`<li key=${it.name}>
      <strong>${it.name}</strong> <${State} text=${it.ready ? "ready" : "not ready"} detail=${it.detail} />
      <span class="soft">${[
        it.since && `up ${ago(it.since)}`,
        it.restarts && `restarted ${counted(it.restarts, "time")}`,
        ...Object.entries(it.counts || {}).map(([name, value]) =>
          value === 1 ? `1 ${name.replace(/s$/, "")}` : `${count(value)} ${name}`,
        ),
      ]
        .filter(Boolean)
        .join(" · ")}</span>
      ${!it.ready && html`<span class="soft">${it.detail}</span>`}</li>`,
      )}</ul></section>`
    }
    <section><h2>Last refusals</h2>${
      refusals.items.size === 0
        ? html`<p class="soft">No client was refused.</p>`
        : html`<ul class="lines">${[...refusals.items.values()]
            .slice(-8)
            .reverse()
            .map(
              (it) => html`<li key=${it.id}>
      <time>${time(it.time)}</time> <strong>${it.condition || it.kind}
      </strong> ${it.description} <span class="soft">
      ${[it.user || it.client, it.peer, it.count > 1 && `${it.count} times`].filter(Boolean).join(" · ")}</span></li>`,
            )}</ul>`
    }</section>`
  }<//>`;
}

function Problems({ suite }) {
  const dead = suite.components.filter((it) => !it.ready);
  const waits = suite.notReady.filter((it) => it.phase !== "Terminating"),
    removed = suite.notReady.filter((it) => it.phase === "Terminating");
  const going =
    removed.length > 0 &&
    html`<section class="lost" aria-label="Being removed"><h2>Being removed</h2><ul>${removed.map(
      (it) =>
        html`<li key=${it.name}><${Link} to=${["addresses", it.name]}>${it.name}<//>${
          it.stats.messages ? `: it holds ${counted(it.stats.messages, "message")}, and goes when none is left` : ""
        }</li>`,
    )}</ul></section>`;
  if (!dead.length && !suite.errors.length && !waits.length)
    return html`<p class="well">Everything is ready.</p>${going}`;
  return html`${going}<section class="wrong" aria-label="What is not well"><h2>What is not well</h2><ul>
    ${dead.map((it) => html`<li key=${it.name}><strong>${it.name}</strong>: ${it.detail || "not ready"}</li>`)}
    ${suite.errors.map(
      (it) => html`<li><strong>${it.file}${it.line ? `:${it.line}` : ""}
    </strong> ${[it.entry, it.field].filter(Boolean).join(".")}: ${it.reason}</li>`,
    )}
    ${waits.map(
      (it) => html`<li key=${it.name}><${Link} to=${["addresses", it.name]}>${it.name}
    <//> is ${it.phase}${it.message && `: ${it.message}`}</li>`,
    )}
  </ul></section>`;
}

const Tile = ({ title, value, to }) => {
  const inner = html`<span class="soft">${title}</span><strong>${value}</strong>`;
  return to ? html`<${Link} class="tile" to=${to}>${inner}<//>` : html`<div class="tile">${inner}</div>`;
};
