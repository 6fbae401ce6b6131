// Messages of a queue: look, send, remove, move, redrive, purge. Work on many goes on in the broker; its progress
// shows here.
import { html, useEffect, useState } from "../lib.js";
import { call, get, path, useFetch } from "../api.js";
import { bytes, count, counted, time } from "../format.js";
import { Confirm, Dialog, notice } from "../parts/dialog.js";
import { may } from "../parts/rights.js";
import { Facts, Loaded } from "../parts/state.js";
import { Send } from "./send.js";

const PAGE = 50;
const SELECTOR =
  "A selector, as of JMS: application properties by their names, JMSPriority, JMSCorrelationID; " +
  '"m.KEY" is an annotation';

export function Messages({ name, depth, me }) {
  const manages = may(me, "manage", name);
  const [after, setAfter] = useState([]); // cursors of the pages before this one
  const [chosen, setChosen] = useState(new Set());
  const [dialog, setDialog] = useState(null),
    [shown, setShown] = useState(null),
    [job, setJob] = useState(null);
  const [selector, setSelector] = useState(""), // as it is typed, and the one in force
    [filter, setFilter] = useState("");
  const cursor = after.at(-1);
  const query = new URLSearchParams({
    limit: String(PAGE),
    ...(cursor && { after: cursor }),
    ...(filter && { selector: filter }),
  });
  const page = useFetch(`${path("addresses", name, "messages")}?${query}`);
  const items = page.data?.items || [];
  const close = () => setDialog(null);
  const again = () => {
    setChosen(new Set());
    close();
    page.again();
  };
  const began = (answer) => {
    close();
    setJob(answer.body);
  };
  const toggle = (id) =>
    setChosen((before) => {
      const next = new Set(before);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  const look = (event) => {
    event.preventDefault();
    setAfter([]);
    setChosen(new Set());
    setFilter(selector.trim());
    page.again();
  };
  const every = items.length > 0 && items.every((it) => chosen.has(it.id));
  const toggleAll = () =>
    setChosen((before) => {
      const next = new Set(before);
      for (const { id } of items) every ? next.delete(id) : next.add(id);
      return next;
    });
  const selected = chosen.size ? { ids: [...chosen] } : filter ? { selector: filter } : {};
  const what = chosen.size
    ? `${count(chosen.size)} selected ${chosen.size === 1 ? "message" : "messages"}`
    : filter
      ? "all messages that the filter takes"
      : "all messages";
  const which = chosen.size ? "selected" : filter ? "all that match" : "all";
  const removes = chosen.size || filter;
  const dead = items.some((it) => it.deaths.length);
  return html`
    <form class="tools" onSubmit=${look}>
      ${
        (manages || may(me, "recv", name)) &&
        html`<label class="filter">Filter <input type="search" value=${selector}
          placeholder="color = 'red' AND JMSPriority > 4"
        title=${SELECTOR}
        onInput=${(event) => setSelector(event.currentTarget.value)} /></label>`
      }
      <button>${selector.trim() === filter ? "Refresh" : "Filter"}</button><span class="spring"></span>
      ${may(me, "send", name) && html`<button type="button" onClick=${() => setDialog("send")}>Send</button>`}
      ${
        manages &&
        html`<button type="button" onClick=${() => setDialog("move")}
          disabled=${!items.length}>Move ${which}</button>
      <button type="button" onClick=${() => setDialog("redrive")} disabled=${!items.length || !dead}
        title="Send each back to where it came from">Redrive ${which}</button>
      <button type="button" class="danger" onClick=${() => setDialog(removes ? "remove" : "purge")}
        disabled=${!items.length}>${removes ? `Delete ${which}` : "Purge"}</button>`
      }
    </form>
    ${
      job &&
      html`<${Progress} job=${job} onEnd=${(last) => {
        setJob(null);
        notice(sentence(last), last.state === "failed");
        again();
      }} />`
    }
    <${Loaded} of=${page}>
      ${
        items.length === 0
          ? html`<p class="empty">${
              filter
                ? "No waiting message matches the filter."
                : depth
                  ? "No message is waiting: consumers have them."
                  : "The queue is empty."
            }</p>`
          : html`<div class="table-box short" tabindex="0" role="region" aria-label="Messages"><table>
        <caption class="hidden">Messages of ${name}, oldest first</caption>
        <thead><tr><th class="narrow"><input type="checkbox" aria-label="select all messages shown" checked=${every}
          onChange=${toggleAll} /></th>${dead && html`<th scope="col">Reason</th>`}<th scope="col">Body</th><th
          scope="col">Created</th><th scope="col" class="right">Deliveries</th><th scope="col" class="right">Size</th>
          <th scope="col">Id</th></tr></thead>
        <tbody>${items.map(
          (it) => html`<tr key=${it.id} class="opens"
            onClick=${(event) => !event.target.closest("input, button") && setShown(it)}>
          <td class="narrow"><input type="checkbox" aria-label=${`select message ${it.id}`}
            checked=${chosen.has(it.id)} onChange=${() => toggle(it.id)} /></td>
          ${dead && html`<td class="whole">${it.deaths.length > 0 && deathOf(it.deaths.at(-1))}</td>`}
          <td class="body">${
            it.body === null
              ? html`<span
            class="soft">not shown</span>`
              : it.encoding === "base64"
                ? html`<span
              class="soft">binary</span>`
                : it.body.slice(0, 120)
          }</td><td>${time(it.created)}</td><td class="right">${it.deliveryCount}</td>
          <td class="right">${bytes(it.size)}</td>
          <td class="shrink"><button type="button" class="link" title=${it.messageId || it.id}
            onClick=${() => setShown(it)}>${it.messageId || it.id}</button></td></tr>`,
        )}</tbody></table></div>
        <div class="tools"><button type="button" disabled=${!after.length}
          onClick=${() => setAfter(after.slice(0, -1))}>Earlier</button>
          <button type="button" disabled=${!page.data?.next}
            onClick=${() => setAfter([...after, page.data.next])}>Later</button></div>`
      }
    <//>
    ${shown && html`<${Message} message=${shown} onClose=${() => setShown(null)} />`}
    ${
      dialog === "send" &&
      html`<${Dialog} title=${`Send to ${name}`} onClose=${close}><${Send} name=${name}
      onSent=${again} /><//>`
    }
    ${
      dialog === "move" &&
      html`<${Move} name=${name} what=${what} selected=${selected} onClose=${close}
      onBegun=${began} />`
    }
    ${
      dialog === "redrive" &&
      html`<${Confirm} title="Redrive" text=${`Send ${what} back to the addresses they came from?`} onClose=${close}
      action=${() => call("POST", path("addresses", name, "redrive"), { body: selected })} onDone=${began} />`
    }
    ${
      dialog === "remove" &&
      html`<${Confirm} title="Delete" text=${`Delete ${what}? ${LOST}`} onClose=${close}
      action=${() => call("POST", path("addresses", name, "remove"), { body: selected })} onDone=${began} />`
    }
    ${
      dialog === "purge" &&
      html`<${Confirm} title="Purge" name=${name} text=${`Delete ${counted(depth, "message")}? ${LOST}`}
        onClose=${close}
      action=${() => call("POST", path("addresses", name, "purge"), { body: {} })} onDone=${began} />`
    }`;
}

/** A client, as a death names it: `~USER/CONTAINER-ID`, or its container-id alone. */
function clientOf(text) {
  const found = /^~([^/]*)\/(.*)$/.exec(text || "");
  return found ? `${found[2] || "a client"} of user ${found[1]}` : text || "a consumer";
}

const DEATHS = {
  rejected: (it) => `Rejected by ${clientOf(it.consumer)}`,
  expired: () => "Its time to live ended",
  "delivered-too-often": () => "It was delivered too often without being accepted",
  undeliverable: () => "No consumer could take it",
  "no-route": () => "No queue of the address took it",
  "by-order": () => "An operator moved it",
  unknown: () => "It was moved here",
};

/** Why a message died, as a sentence. */
function deathOf(it) {
  const what = (Object.hasOwn(DEATHS, it.reason) ? DEATHS[it.reason](it) : it.reason) || "It died";
  const stated = [it.description, it.condition && `(${it.condition})`].filter(Boolean).join(" ");
  const place = it.source ? ` ${it.reason === "unknown" || it.reason === "by-order" ? "from" : "at"} ${it.source}` : "";
  return `${what}${place}${stated && `: ${stated}`}.`;
}

const timesOf = (it) =>
  it.count > 1
    ? `It died ${count(it.count)} times${it.first ? `, first ${time(it.first)}` : ""}` +
      `${it.last ? `, last ${time(it.last)}` : ""}.`
    : it.last && `That was ${time(it.last)}.`;

const LOST = "What is deleted is lost.";
const DONE = { purge: "Purged", remove: "Deleted", move: "Moved", redrive: "Redriven" };

function sentence(job) {
  const detail = job.detail ? `: ${job.detail}` : "";
  const end = job.state === "done" ? "" : `, ${job.state}${detail}`;
  return `${DONE[job.operation]}: ${counted(job.done, "message")}${end}.`;
}

function Progress({ job, onEnd }) {
  const [now, setNow] = useState(job);
  useEffect(() => {
    let timer = null,
      ended = false;
    const look = async () => {
      try {
        const next = await get(path("jobs", job.id));
        if (ended) return;
        setNow(next);
        if (next.state !== "running") {
          onEnd(next);
          return;
        }
      } catch (/** @type {any} */ error) {
        if (!ended) onEnd({ ...job, state: "failed", detail: error.message });
        return;
      }
      timer = setTimeout(look, 300);
    };
    if (job.state !== "running") onEnd(job);
    else look();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [job.id]);
  return html`<div class="progress" role="status"><progress max=${now.total || undefined}
    value=${now.total ? now.done : undefined} aria-label=${now.operation}></progress>
    ${now.operation}: ${count(now.done)}${now.total ? ` of ${count(now.total)}` : ""} <button type="button"
      onClick=${() => call("DELETE", path("jobs", job.id))}>Stop</button></div>`;
}

function Move({ name, what, selected, onClose, onBegun }) {
  const [to, setTo] = useState(""),
    [selector, setSelector] = useState("");
  const known = useFetch("addresses?type=queue&limit=1000");
  return html`<${Confirm} title="Move" text=${`Move ${what} of ${name} to another queue.`} onClose=${onClose}
    onDone=${onBegun}
    action=${() =>
      call("POST", path("addresses", name, "move"), { body: { ...selected, ...(selector ? { selector } : {}), to } })}>
    <label>To <input list="queues" required value=${to} onInput=${(event) => setTo(event.currentTarget.value)} />
    </label>
    <datalist id="queues">${(known.data?.items || [])
      .filter((it) => it.name !== name)
      .map(
        (it) => html`<option
      key=${it.name} value=${it.name} />`,
      )}</datalist>
    ${
      !selected.ids &&
      !selected.selector &&
      html`<label>Only those that this selector takes <input value=${selector}
      placeholder="priority > 4" onInput=${(event) => setSelector(event.currentTarget.value)} /></label>`
    }<//>`;
}

function Message({ message, onClose }) {
  const plain = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));
  return html`<${Dialog} title=${`Message ${message.messageId || message.id}`} onClose=${onClose} wide>
    ${message.deaths.map((it) => html`<p class="lost">${deathOf(it)} ${timesOf(it)}</p>`)}
    <${Facts} of=${{
      Id: message.id,
      "Message id": message.messageId,
      To: message.to,
      Subject: message.subject,
      "Content type": message.contentType,
      "Reply to": message.replyTo,
      "Correlation id": message.correlationId,
      User: message.userId,
      Created: message.created && time(message.created),
      Expires: message.expires && time(message.expires),
      Priority: message.priority,
      Durable: message.durable ? "yes" : "no",
      Deliveries: message.deliveryCount,
      Size: bytes(message.size),
    }} />
    ${
      Object.keys(message.properties).length > 0 &&
      html`<h3>Properties</h3><${Facts}
      of=${Object.fromEntries(Object.entries(message.properties).map(([key, value]) => [key, plain(value)]))} />`
    }
    ${
      Object.keys(message.annotations).length > 0 &&
      html`<h3>Annotations</h3><${Facts}
      of=${Object.fromEntries(Object.entries(message.annotations).map(([key, value]) => [key, plain(value)]))} />`
    }
    <h3>Body ${message.encoding === "base64" && html`<span class="tag">Base64</span>`}</h3>
    ${
      message.body === null
        ? html`<p class="soft">You may not read it.</p>`
        : html`<pre class="body" tabindex="0">
    ${message.body}${message.truncated ? " …" : ""}</pre>`
    }<//>`;
}
