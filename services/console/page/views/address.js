// One address: its messages, traffic, links and consumers.
import { html, useState } from "../lib.js";
import { call, path, useWatch } from "../api.js";
import { bytes, count, counted, rate, seconds } from "../format.js";
import { Confirm, notice } from "../parts/dialog.js";
import { may } from "../parts/rights.js";
import { go } from "../parts/route.js";
import { ofAddresses, Past } from "../parts/past.js";
import { Facts, Loaded, Missing, State, useSeen } from "../parts/state.js";
import { traits } from "../types.js";
import { Links } from "./connections.js";
import { Messages } from "./messages.js";
import { Send } from "./send.js";
import { AddressWizard } from "./wizard.js";

export function Address({ name, me }) {
  const watched = useWatch(`addresses?name=${encodeURIComponent(literal(name))}`);
  const address = watched.items.get(name);
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  const seen = useSeen(address);
  const stored = address && traits(address.type).stored;
  if (watched.ready && !address)
    return html`<${Missing} title=${name} places=${[[["addresses"], "All addresses"]]} text=${
      seen
        ? "This address has been removed, or you may no longer see it."
        : "This address does not exist, or you may not see it (permission view)."
    } />`;
  return html`<${Loaded} of=${watched}>${
    address &&
    html`
    <h1>${name} <${State} text=${address.phase} detail=${address.message} /></h1>
    ${
      address.phase === "Terminating" &&
      html`<p class="lost">This address is being removed. ${
        address.stats.messages
          ? `It holds ${counted(address.stats.messages, "message")}, and goes when none is left.`
          : "It goes when nothing uses it any more."
      }</p>`
    }
    ${address.message && html`<p class="lost">${address.message}</p>`}
    ${
      may(me, "manage", name) &&
      html`<div class="tools"><span class="spring"></span>
      <button type="button" disabled=${!address.entry} onClick=${() => setDialog("edit")}>Edit</button>
      <button type="button" class="danger" disabled=${!address.entry && address.phase !== "Terminating"}
        onClick=${() => setDialog("delete")}>${address.entry ? "Delete" : "Delete its messages"}</button></div>`
    }
    <${Facts} of=${{
      Type: address.type,
      Plan: address.entry?.plan,
      Flavor: address.flavor,
      Brokers: address.brokers.join(", "),
      Messages: count(address.stats.messages),
      Size: stored ? bytes(address.stats.size) : null,
      Oldest: stored ? seconds(address.stats.oldest) : null,
      Consumers: count(address.stats.consumers),
      "Consumers at": Object.entries(address.stats.receivers || {})
        .map(([name, number]) => `${name}: ${count(number)}`)
        .join(", "),
      Producers: count(address.stats.producers),
      In: `${rate(address.stats.rates.in)}/s`,
      Out: `${rate(address.stats.rates.out)}/s`,
      "Accepted by consumers": count(address.stats.totals.accepted),
      Rejected: count(address.stats.totals.rejected),
      Released: count(address.stats.totals.released),
      Expired: count(address.stats.totals.expired),
      "Dead-lettered": count(address.stats.totals.deadLettered),
    }} />
    ${
      traits(address.type).browse &&
      html`<section><h2>Messages</h2><${Messages} name=${name} me=${me}
      depth=${address.stats.messages} /></section>`
    }
    <${Past} where=${path("addresses", name, "stats")} stats=${watched.lost ? null : address.stats}
      charts=${ofAddresses(stored)} />
    <section><h2>Links</h2><${Links} where=${`connections?address=${encodeURIComponent(name)}`} address=${name} />
    </section>
    ${!traits(address.type).browse && may(me, "send", name) && html`<${SendOnly} name=${name} />`}
    ${
      dialog === "edit" &&
      html`<${AddressWizard} me=${me} address=${address} known=${new Map()} onClose=${close}
      onDone=${close} />`
    }
    ${dialog === "delete" && html`<${Delete} address=${address} onClose=${close} />`}`
  }<//>`;
}

const literal = (name) => name; // names of addresses hold neither * nor ?

function Delete({ address, onClose }) {
  const removed = !address.entry; // it is Terminating
  const [force, setForce] = useState(removed);
  const holds = address.stats.messages > 0;
  return html`<${Confirm} title=${removed ? "Delete messages" : "Delete"} name=${address.name} onClose=${onClose}
    text=${
      removed
        ? `${address.name} is removed already, and goes when its messages have been received. They are thrown away now.`
        : holds
          ? `${address.name} holds ${counted(address.stats.messages, "message")}.`
          : "Clients that use it are refused from then on."
    }
    action=${() =>
      call("DELETE", path("addresses", address.name) + (force ? "?force=true" : ""), { etag: address.etag })}
    onDone=${() => {
      notice(`${address.name} is deleted${holds && !force ? " once its messages have been received" : ""}.`);
      go("addresses");
    }}>
    ${
      holds &&
      !removed &&
      html`<label class="check"><input type="checkbox" checked=${force}
      onChange=${(event) => setForce(event.currentTarget.checked)} /> Delete its messages too.
        Otherwise it goes when they have been received.</label>`
    }
  <//>`;
}

function SendOnly({ name }) {
  return html`<section><h2>Send</h2><${Send} name=${name} onSent=${() => {}} /></section>`;
}
