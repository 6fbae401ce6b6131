// A client of MQTT in the page, to try topics, users and permissions. It stays connected while other places are shown.
import { html, useEffect, useMemo, useState } from "../lib.js";
import { SPACE } from "../api.js";
import { bytes, count, matcher, time } from "../format.js";
import { Dialog, notice } from "../parts/dialog.js";
import { MqttClient, reasonText } from "../parts/mqtt.js";
import { Facts, State } from "../parts/state.js";

const MOST = 300; // messages that are kept, the newest
const SHOWN = 16 << 10; // bytes of a payload that are kept
const LINE = 160; // characters of a payload in the list
const PAUSE = 250; // milliseconds between two drawings of the list

const MOST_SECONDS = 0xffffffff; // of an expiry or a delay
const EMPTY = {
  topic: "",
  text: "",
  form: "text",
  qos: 0,
  retain: false,
  expiry: "",
  contentType: "",
  responseTopic: "",
  user: "",
};

const NONE = { client: null, state: "closed", why: "", filters: new Map(), log: [], seen: 0, form: null };
/** What the page has of the client; it is the same while other places are shown. */
let now = { ...NONE };
let number = 0;
/** @type {(() => void) | null} */
let draw = null;
/** @type {any} */
let timer = null;

/** Disconnect, and forget everything: the user of the page has logged out. */
export function forgetClient() {
  now.client?.disconnect();
  now = { ...NONE, filters: new Map(), log: [] };
  draw?.();
}

/** Draw soon, not for each message. */
function changed() {
  if (timer !== null) return;
  timer = setTimeout(() => {
    timer = null;
    draw?.();
  }, PAUSE);
}

function keep(entry) {
  const { payload, ...others } = entry;
  number += 1;
  now.seen += 1;
  now.log.unshift({ ...others, id: number, at: new Date(), size: payload.length, payload: payload.slice(0, SHOWN) });
  now.log.length = Math.min(now.log.length, MOST);
  changed();
}

function connect(form) {
  const will = form.will.topic ? messageOf(form.will) : null;
  const client = new MqttClient({
    state: (state, why) => {
      if (now.client !== client) return;
      now.state = state;
      now.why = why;
      if (state === "connected") now.form = { ...form, password: "" }; // a refused one is corrected, not typed again
      if (state === "closed") {
        now.client = null;
        now.filters = new Map();
      }
      draw?.();
    },
    message: (message) => keep({ ...message, direction: "in" }),
  });
  now.client = client;
  now.form = form;
  now.state = "connecting";
  now.why = "";
  draw?.();
  client.connect({ ...form, keepAlive: Number(form.keepAlive), will });
}

/** The message that a form states. */
function messageOf({ topic, text, form, qos, retain, expiry, contentType, responseTopic, user, willDelay = "" }) {
  return {
    topic,
    payload: form === "text" ? new TextEncoder().encode(text) : decoded(text),
    qos,
    retain,
    properties: {
      expiry: seconds(expiry),
      willDelay: seconds(willDelay),
      contentType: contentType || undefined,
      responseTopic: responseTopic || undefined,
      user: user.split("\n").filter(Boolean).map(pair),
    },
  };
}

/** What is wrong with a payload, and with user properties. */
function faultOfPayload({ form, text }) {
  if (form === "base64")
    try {
      decoded(text);
    } catch {
      return "This is not Base64.";
    }
  return "";
}

function faultOfUser(text) {
  const line = text.split("\n").find((it) => it && !it.includes("="));
  return line === undefined ? "" : `"${line}" has no =.`;
}

const seconds = (text) => (text === "" ? undefined : Number(text));

const decoded = (base64) => Uint8Array.from(atob(base64.replace(/\s+/g, "")), (it) => it.charCodeAt(0));

/** Name and value of a line `name=value`. */
function pair(line) {
  const at = line.indexOf("=");
  return [line.slice(0, at), line.slice(at + 1)];
}

/** Text of a payload; null: it is none in UTF-8. */
function textOf(payload, cut) {
  for (const end of cut ? [0, 1, 2, 3] : [0]) {
    // a cut may be within a character
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(payload.subarray(0, payload.length - end));
    } catch {
      /* try a shorter one */
    }
  }
  return null;
}

const hex = (payload) => [...payload].map((it) => it.toString(16).padStart(2, "0")).join(" ");
const shown = (it) => textOf(it.payload, it.size > it.payload.length) ?? hex(it.payload.subarray(0, 1024));

/** The URL of the gateway beside this console: the ports differ from the usual ones by the same number. */
function usualUrl() {
  const secure = location.protocol === "https:";
  const port = Number(location.port || (secure ? 443 : 80)) + (secure ? 8084 - 8443 : 8083 - 8080);
  return `${secure ? "wss" : "ws"}://${location.hostname}:${port > 0 ? port : secure ? 8084 : 8083}/mqtt`;
}

const field = (set, key) => (event) => set((before) => ({ ...before, [key]: event.currentTarget.value }));
const newId = () => `page-${Math.random().toString(36).slice(2, 10)}`;

export function MqttTest({ me }) {
  const [, turn] = useState(0);
  useEffect(() => {
    draw = () => turn((it) => it + 1);
    return () => {
      draw = null;
    };
  }, []);
  const connected = now.state === "connected";
  return html`<h1>MQTT client <${State}
    text=${connected ? "connected" : now.state === "closed" ? "not connected" : "connecting"} /></h1>
    ${now.why && html`<p class=${connected ? "soft" : "lost"} role="status">${now.why}</p>`}
    ${now.client ? html`<${Connected} />` : html`<${Connect} me=${me} />`}
    ${connected && html`<div class="two"><${Subscribe} /><${Publish} /></div>`}
    <${Log} />`;
}

function Connect({ me }) {
  const space = SPACE || me.space;
  const [form, set] = useState(
    () =>
      now.form || {
        url: usualUrl(),
        clientId: newId(),
        user: me.user ? me.user + (space ? `@${space}` : "") : "",
        password: "",
        clean: true,
        keepAlive: 60,
        will: { ...EMPTY, willDelay: "" },
      },
  );
  const [wrong, setWrong] = useState("");
  const setWill = (change) => set((before) => ({ ...before, will: change(before.will) }));
  const go = (event) => {
    event.preventDefault();
    try {
      setWrong("");
      connect(form);
    } catch (/** @type {any} */ error) {
      now.client = null;
      now.state = "closed";
      setWrong(error.message);
    }
  };
  return html`<form class="panel" onSubmit=${go} autocomplete="off"><div class="fields">
      <label>URL of the gateway <input required value=${form.url} onInput=${field(set, "url")} /></label>
      <label>Client id <input required value=${form.clientId} onInput=${field(set, "clientId")} /></label>
      <label>User <input value=${form.user} placeholder="none" onInput=${field(set, "user")} /></label>
      <label>Password or token <input type="password" autocomplete="new-password" value=${form.password}
        onInput=${field(set, "password")} /></label>
      <label>Keep alive, seconds <input type="number" min="0" max="65535" required value=${form.keepAlive}
        onInput=${field(set, "keepAlive")} /></label></div>
    <label class="check"><input type="checkbox" checked=${form.clean}
      onChange=${(event) => set({ ...form, clean: event.currentTarget.checked })} /> Clean start. Otherwise the session
      is
      kept for an hour after the end of the connection.</label>
    <details class="group"><summary>Last will</summary>
      <p class="soft">Published when the connection is lost. Without a topic there is none.</p>
      <${MessageFields} form=${form.will} set=${setWill} />
      <label>Delay, seconds; only without Clean start <input type="number" min="0" max=${MOST_SECONDS}
        value=${form.will.willDelay} onInput=${field(setWill, "willDelay")} /></label></details>
    ${wrong && html`<p class="failure" role="alert">${wrong}</p>`}
    <footer><button class="main">Connect</button></footer></form>`;
}

function Connected() {
  return html`<div class="tools"><span>${now.form.clientId}${now.form.user && ` as ${now.form.user}`} at${" "}
    <code>${now.form.url}</code></span><span class="spring"></span>
    ${
      now.form.will.topic &&
      html`<button type="button" onClick=${() => now.client?.disconnect({ withWill: true })}>
        Disconnect, publish the will</button>`
    }
    <button type="button" onClick=${() => now.client?.disconnect()}>Disconnect</button></div>`;
}

const Qos = ({ value, onChange }) => html`<label>QoS <select value=${value}
  onChange=${(event) => onChange(Number(event.currentTarget.value))}>
  ${[0, 1, 2].map((it) => html`<option key=${it} value=${it}>${it}</option>`)}</select></label>`;

function Subscribe() {
  const [filter, setFilter] = useState(""),
    [qos, setQos] = useState(0),
    [wrong, setWrong] = useState("");
  const attempt = async (what) => {
    try {
      setWrong("");
      await what();
    } catch (/** @type {any} */ error) {
      setWrong(error.message);
    }
    draw?.();
  };
  const go = (event) => {
    event.preventDefault();
    attempt(async () => {
      const code = await now.client.subscribe(filter, qos);
      if (code >= 128) throw new Error(`${filter} is refused: ${reasonText(code)}.`);
      now.filters.set(filter, code);
      setFilter("");
    });
  };
  const end = (of) =>
    attempt(async () => {
      await now.client.unsubscribe(of);
      now.filters.delete(of);
    });
  return html`<form class="panel" onSubmit=${go}><h2>Subscribe</h2>
    <label>Filter <input required value=${filter} placeholder="sensors/#"
      onInput=${(event) => setFilter(event.currentTarget.value)} /></label>
    <${Qos} value=${qos} onChange=${setQos} />
    ${wrong && html`<p class="failure" role="alert">${wrong}</p>`}
    <footer><button class="main">Subscribe</button></footer>
    <ul class="lines">${[...now.filters].map(
      ([of, granted]) => html`<li key=${of}><code>${of}</code> <span class="soft">QoS ${granted}</span>${" "}
        <button type="button" class="small" aria-label=${`unsubscribe ${of}`}
          onClick=${() => end(of)}>✕</button></li>`,
    )}</ul></form>`;
}

/** Fields of a message to publish, or of a will. `set` takes a function of the form before. */
function MessageFields({ form, set, required = false }) {
  const fault = (text) => (it) => it?.setCustomValidity(required || form.topic ? text : "");
  return html`<label>Topic <input required=${required} value=${form.topic} placeholder="sensors/kitchen"
      onInput=${field(set, "topic")} /></label>
    <label>Payload <textarea rows="3" value=${form.text} ref=${fault(faultOfPayload(form))}
      onInput=${field(set, "text")}></textarea></label>
    <div class="row"><${Qos} value=${form.qos} onChange=${(qos) => set((before) => ({ ...before, qos }))} />
    <label>As <select value=${form.form} onChange=${field(set, "form")}><option value="text">text</option>
      <option value="base64">Base64</option></select></label>
    <label class="check"><input type="checkbox" checked=${form.retain}
      onChange=${(event) => {
        const retain = event.currentTarget.checked;
        set((before) => ({ ...before, retain }));
      }} /> retain</label></div>
    <details class="group"><summary>Properties</summary><div class="fields">
      <label>Expires after, seconds <input type="number" min="1" max=${MOST_SECONDS} value=${form.expiry}
        placeholder="never" onInput=${field(set, "expiry")} /></label>
      <label>Content type <input value=${form.contentType} placeholder="application/json"
        onInput=${field(set, "contentType")} /></label>
      <label>Response topic <input value=${form.responseTopic} onInput=${field(set, "responseTopic")} /></label></div>
      <label>User properties, one <code>name=value</code> a line <textarea rows="2" value=${form.user}
        ref=${fault(faultOfUser(form.user))} onInput=${field(set, "user")}></textarea></label></details>`;
}

function Publish() {
  const [form, set] = useState(EMPTY);
  const [wrong, setWrong] = useState("");
  const go = async (event) => {
    event.preventDefault();
    try {
      setWrong("");
      const message = messageOf(form);
      const code = await now.client.publish(message);
      if (code >= 128) throw new Error(`${message.topic} is refused: ${reasonText(code)}.`);
      keep({ ...message, direction: "out" });
      if (code) notice(`${message.topic}: ${reasonText(code)}.`);
    } catch (/** @type {any} */ error) {
      setWrong(error.message);
    }
  };
  return html`<form class="panel" onSubmit=${go}><h2>Publish</h2>
    <${MessageFields} form=${form} set=${set} required />
    ${wrong && html`<p class="failure" role="alert">${wrong}</p>`}
    <footer><button class="main">Publish</button></footer></form>`;
}

function Log() {
  const [filter, setFilter] = useState(""),
    [open, setOpen] = useState(/** @type {any} */ (null)),
    [held, setHeld] = useState(/** @type {any[] | null} */ (null));
  const matches = useMemo(() => matcher(filter), [filter]);
  const rows = (held || now.log).filter((it) => matches(it.topic));
  const clear = () => {
    now.log = [];
    now.seen = 0;
    setHeld(null);
    draw?.();
  };
  return html`<section><h2>Messages</h2><div class="tools">
    <label>Topic <input type="search" value=${filter} onInput=${(event) => setFilter(event.currentTarget.value)} />
    </label><span class="spring"></span>
    <button type="button" aria-pressed=${held !== null} onClick=${() => setHeld(held ? null : [...now.log])}>
      ${held ? "Go on" : "Pause"}</button>
    <button type="button" onClick=${clear}>Clear</button></div>
    <div class="table-box short" tabindex="0" role="region" aria-label="Messages of the client"><table>
      <caption class="hidden">Messages, newest first</caption>
      <thead><tr><th scope="col">Time</th><th scope="col"><span class="hidden">direction</span></th><th
        scope="col">Topic</th><th scope="col">QoS</th><th scope="col" class="right">Size</th><th
        scope="col" class="grow">Payload</th></tr></thead>
      <tbody>${rows.map(
        (it) => html`<tr key=${it.id} class="opens" onClick=${() => setOpen(it)}>
        <td><time>${time(it.at)}</time></td>
        <td>${it.direction === "in" ? html`<span class="good">received</span>` : html`<span class="soft">sent</span>`}
        </td><td><button type="button" class="link" onClick=${() => setOpen(it)}>${it.topic}</button>
        ${it.retain && html` <span class="tag">retained</span>`}</td>
        <td>${it.qos}</td><td class="right">${bytes(it.size)}</td>
        <td class="grow body">${shown(it).slice(0, LINE)}</td></tr>`,
      )}</tbody></table>${rows.length === 0 && html`<p class="empty">No messages yet.</p>`}</div>
    <p class="foot" role="status">${count(now.seen)} in all${
      now.seen > now.log.length ? `, the newest ${MOST} are kept` : ""
    }</p>
    ${open && html`<${Message} of=${open} onClose=${() => setOpen(null)} />`}</section>`;
}

function Message({ of, onClose }) {
  const { user = [], correlation, format, ...properties } = of.properties;
  const cut = of.size > of.payload.length;
  const text = textOf(of.payload, cut);
  return html`<${Dialog} title=${of.topic} onClose=${onClose} wide>
    <${Facts} of=${{
      Direction: of.direction === "in" ? "received" : "sent",
      QoS: String(of.qos),
      Retained: of.retain ? "yes" : "no",
      Repeated: of.duplicate ? "yes" : null,
      Size: bytes(of.size),
      Expires: properties.expiry === undefined ? null : `in ${count(properties.expiry)} s`,
      "Content type": properties.contentType,
      "Response topic": properties.responseTopic,
      Correlation: correlation && (textOf(correlation, false) ?? hex(correlation)),
    }} />
    ${user.length > 0 && html`<h3>User properties</h3><${Facts} of=${Object.fromEntries(user)} />`}
    <h3>Payload ${text === null && html`<span class="tag">hexadecimal</span>`}</h3>
    <pre class="body" tabindex="0">${text ?? hex(of.payload)}${cut ? " …" : ""}</pre><//>`;
}
