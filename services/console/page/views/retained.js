// Retained messages as a tree of topics.
import { html, useMemo, useState } from "../lib.js";
import { call, path, useFetch, useWatch } from "../api.js";
import { bytes, count, matcher, time } from "../format.js";
import { Confirm, notice } from "../parts/dialog.js";
import { may } from "../parts/rights.js";
import { useQuery } from "../parts/route.js";
import { Loaded } from "../parts/state.js";

const MOST = 500; // topics of a level that are drawn

export function RetainedTopics({ me }) {
  const watched = useWatch("retained");
  const [filter, setFilter] = useQuery("name"),
    [asked, setAsked] = useState(null);
  const tree = useMemo(() => {
    const root = node(""),
      matches = matcher(filter);
    for (const it of watched.items.values()) {
      if (!matches(it.topic)) continue;
      let at = root;
      for (const level of it.topic.split("/")) {
        if (!at.below.has(level)) at.below.set(level, node(level));
        at = at.below.get(level);
        at.count += 1;
      }
      at.message = it;
    }
    return root;
  }, [watched.version, filter]);
  return html`<h1>Retained topics</h1>
    <div class="tools"><label>Topic <input type="search" value=${filter} placeholder="sensors/*"
      onInput=${(event) => setFilter(event.currentTarget.value)} /></label></div>
    <${Loaded} of=${watched}>${
      tree.below.size === 0
        ? html`<p
      class="empty">No topic has a retained message.</p>`
        : html`<${Level} of=${tree}
        open=${Boolean(filter) || watched.items.size <= 50}
          ask=${(it) => may(me, "manage", it.topic) && (() => setAsked(it))} />`
    }<//>
    ${
      asked &&
      html`<${Confirm} title="Clear"
        text=${`Clear the retained message of ${asked.topic}? New subscribers get none from then on.`}
          onClose=${() => setAsked(null)}
      action=${() => call("DELETE", path("retained", asked.topic))} onDone=${() => {
        setAsked(null);
        notice("The retained message is cleared.");
      }} />`
    }`;
}

const node = (level) => ({ level, below: new Map(), count: 0, message: null });

function Level({ of, open, ask }) {
  const shown = [...of.below.values()].sort((one, other) =>
    one.level.localeCompare(other.level, "en", { numeric: true }),
  );
  return html`<ul class="tree">${shown.slice(0, MOST).map(
    (it) => html`<li key=${it.level}>
    ${it.below.size ? html`<${Branch} of=${it} open=${open} ask=${ask} />` : html`<${Leaf} of=${it} ask=${ask} />`}
    </li>`,
  )}
    ${shown.length > MOST && html`<li class="soft">and ${count(shown.length - MOST)} more: filter by topic</li>`}</ul>`;
}

function Branch({ of, open, ask }) {
  const [isOpen, setOpen] = useState(open);
  return html`<details open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}><summary><code>
    ${of.level || "(empty)"}</code> <span class="soft">${count(of.count)}</span></summary>
    ${of.message && html`<${Leaf} of=${of} ask=${ask} />`}${
      isOpen &&
      html`<${Level} of=${of}
      open=${open && of.below.size < 50} ask=${ask} />`
    }</details>`;
}

function Leaf({ of, ask }) {
  const clear = ask(of.message);
  const [isOpen, setOpen] = useState(false);
  return html`<span class="leaf"><code>${of.level || "(empty)"}</code>
  <span class="soft">${bytes(of.message.size)} · QoS ${of.message.qos} · ${time(of.message.since)}
  ${of.message.user ? ` · ${of.message.user}` : ""}${of.message.withheld ? ` · withheld: ${of.message.withheld}` : ""}
  </span>
  <button type="button" class="small" aria-label=${`payload of ${of.message.topic}`} aria-expanded=${isOpen}
    onClick=${() => setOpen(!isOpen)}>Payload</button>
  ${
    clear &&
    html`<button type="button" class="small" aria-label=${`clear ${of.message.topic}`}
    onClick=${clear}>Clear</button>`
  }
  ${isOpen && html`<div class="whole"><${Payload} topic=${of.message.topic} /></div>`}</span>`;
}

/** The payload of a retained message, asked for when it is opened. */
function Payload({ topic }) {
  const fetched = useFetch(path("retained", topic)),
    message = fetched.data;
  return html`<${Loaded} of=${fetched}>${
    message &&
    (message.payload === null
      ? html`<p class="soft">You may not read it.</p>`
      : html`${message.encoding === "base64" && html`<span class="tag">Base64</span>`}
        <pre class="body" tabindex="0">${message.payload}${message.truncated ? " …" : ""}</pre>`)
  }<//>`;
}
