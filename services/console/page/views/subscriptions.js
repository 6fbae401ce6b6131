// Subscriptions that outlive connections, and what waits for them.
import { html } from "../lib.js";
import { call, path } from "../api.js";
import { ago, count, counted } from "../format.js";
import { covers, owns } from "../parts/rights.js";
import { State } from "../parts/state.js";
import { List } from "./lists.js";

const nameOf = (it) => it.client || it.id;
const filters = (it) => Object.keys(it.filters).join(", ");

/** Whether the caller may delete a subscription. A shared one ends with its last member. */
function mayDelete(me, it) {
  const of = Object.keys(it.filters);
  return (
    it.kind !== "share" &&
    (owns(me, it.user) || (of.length ? of : ["#"]).every((filter) => covers(me, "manage", filter)))
  );
}

export const Subscriptions = ({
  me,
}) => html`<${List} title="Subscriptions" where="subscriptions" empty="There are no subscriptions."
  texts=${(it) => [it.client, it.user, it.id, filters(it)]}
  columns=${[
    { key: "client", title: "Client", shrink: true, stays: true, value: nameOf, render: nameOf },
    { key: "kind", title: "Kind" },
    { key: "filters", title: "Filters", grow: true, value: filters, render: (it) => html`<code>${filters(it)}</code>` },
    {
      key: "connected",
      title: "State",
      render: (it) => html`<${State} text=${it.connected ? "connected" : "away"} />`,
    },
    { key: "depth", title: "Waiting", align: "right", down: true, render: (it) => count(it.depth) },
    { key: "user", title: "User" },
    { key: "since", title: "Since", align: "right", render: (it) => ago(it.since) },
  ]}
  actions=${[
    {
      title: "Delete",
      may: (it) => mayDelete(me, it),
      done: "The subscription is deleted.",
      run: (it) => call("DELETE", path("subscriptions", it.id)),
      text: (it) => `Delete this subscription, and what waits for it: ${counted(it.depth, "message")}?`,
      many: {
        text: (rows) =>
          `What waits for them is deleted too: ${counted(
            rows.reduce((sum, it) => sum + it.depth, 0),
            "message",
          )}.`,
        done: (number) => `Deleted: ${counted(number, "subscription")}.`,
        nameOf: (it) => `${nameOf(it)} ${filters(it)}`,
      },
    },
  ]} />`;
