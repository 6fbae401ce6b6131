// Messages of a queue: look, send, remove, move, redrive, purge. Work on many goes on in the broker; its progress
// shows here.
import { html, useEffect, useState } from "../lib.js";
import { call, get, path, useFetch } from "../api.js";
import { bytes, count, time } from "../format.js";
import { Confirm, Dialog, notice } from "../parts/dialog.js";
import { may } from "../parts/rights.js";
import { Facts, Loaded } from "../parts/state.js";
import { Send } from "./send.js";

const PAGE = 50;

export function Messages({ name, depth, me }) {
  const manages = may(me, "manage", name);
  const [after, setAfter] = useState([]); // cursors of the pages before this one
  const [chosen, setChosen] = useState(new Set());
  const [dialog, setDialog] = useState(null),
    [shown, setShown] = useState(null),
    [job, setJob] = useState(null);
  const cursor = after.at(-1);
  const page = useFetch(
    `${path("addresses", name, "messages")}?limit=${PAGE}${cursor ? `&after=${encodeURIComponent(cursor)}` : ""}`,
  );
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
  const selected = chosen.size ? { ids: [...chosen] } : {};
  const what = chosen.size ? `${chosen.size} selected messages` : "all messages";
  const dead = items.some((it) => it.deaths.length);
  return html`
    <div class="tools">
      <button type="button" onClick=${() => {
        setAfter([]);
        page.again();
      }}>Refresh</button><span class="spring"></span>
      ${may(me, "send", name) && html`<button type="button" onClick=${() => setDialog("send")}>Send</button>`}
      ${
        manages &&
        html`<button type="button" onClick=${() => setDialog("move")}
          disabled=${!items.length}>Move ${chosen.size ? "selected" : "all"}</button>
      <button type="button" onClick=${() => setDialog("redrive")} disabled=${!items.length || !dead}
        title="Send each back to where it came from">Redrive ${chosen.size ? "selected" : "all"}</button>
      <button type="button" class="danger" onClick=${() => setDialog(chosen.size ? "remove" : "purge")}
        disabled=${!items.length}>${chosen.size ? "Remove selected" : "Purge"}</button>`
      }
    </div>
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
          ? html`<p class="empty">${depth ? "No message is waiting: consumers have them." : "The queue is empty."}</p>`
          : html`<div class="table-box short" tabindex="0" role="region" aria-label="Messages"><table>
        <caption class="hidden">Messages of ${name}, oldest first</caption>
        <thead><tr><th class="narrow"><span class="hidden">selected</span></th><th scope="col">Message</th><th
          scope="col" class="wide">Created</th><th scope="col" class="right wide">Deliveries</th><th scope="col"
            class="right wide">Size</th><th scope="col" class="grow">Body</th>${
              dead &&
              html`<th
              scope="col">Reason</th>`
            }</tr></thead>
        <tbody>${items.map(
          (it) => html`<tr key=${it.id} class="opens"
            onClick=${(event) => !event.target.closest("input, button") && setShown(it)}>
          <td class="narrow"><input type="checkbox" aria-label=${`select message ${it.id}`}
            checked=${chosen.has(it.id)} onChange=${() => toggle(it.id)} /></td>
          <td><button type="button" class="link" onClick=${() => setShown(it)}>${it.messageId || it.id}</button></td>
          <td class="wide">${it.created && time(it.created)}</td><td class="right wide">${it.deliveryCount}</td>
          <td class="right wide">${bytes(it.size)}</td><td class="grow body">${
            it.body === null
              ? html`<span
            class="soft">not shown</span>`
              : it.encoding === "base64"
                ? html`<span
              class="soft">binary</span>`
                : it.body.slice(0, 120)
          }</td>
          ${dead && html`<td>${it.deaths.at(-1)?.reason || ""}</td>`}</tr>`,
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
      html`<${Confirm} title="Remove" text=${`Remove ${what}? They are lost.`} onClose=${close}
      action=${() => call("POST", path("addresses", name, "remove"), { body: selected })} onDone=${began} />`
    }
    ${
      dialog === "purge" &&
      html`<${Confirm} title="Purge" name=${name} text=${`Remove all ${count(depth)} messages? They are lost.`}
        onClose=${close}
      action=${() => call("POST", path("addresses", name, "purge"), { body: {} })} onDone=${began} />`
    }`;
}

const DONE = { purge: "Purged", remove: "Removed", move: "Moved", redrive: "Redriven" };

function sentence(job) {
  const detail = job.detail ? `: ${job.detail}` : "";
  const end = job.state === "done" ? "" : `, ${job.state}${detail}`;
  return `${DONE[job.operation]}: ${count(job.done)} messages${end}.`;
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
      html`<label>Only those that this selector takes <input value=${selector}
      placeholder="priority > 4" onInput=${(event) => setSelector(event.currentTarget.value)} /></label>`
    }<//>`;
}

function Message({ message, onClose }) {
  const plain = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));
  return html`<${Dialog} title=${`Message ${message.messageId || message.id}`} onClose=${onClose} wide>
    ${message.deaths.map(
      (it) => html`<p class="lost"><strong>${it.reason}
    </strong> ${it.source && `at ${it.source}`} ${it.condition} ${it.description} ${
      it.count > 1 && `(${it.count} times)`
    } ${it.last && time(it.last)}</p>`,
    )}
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
