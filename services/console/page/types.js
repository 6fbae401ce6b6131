// The types of addresses, with the traits of enmasse/model/address_types.py. `browse`: their messages are looked at;
// `flavor`: the type of their flavors.
export const TYPES = {
  queue: {
    stored: true,
    flavor: "queue",
    browse: true,
    tag: "Stored",
    uses: "work, orders, commands",
    what: "Each message goes to one of the consumers. It waits on disk until one has taken it.",
  },
  topic: {
    stored: true,
    flavor: "topic",
    tag: "Stored for subscribers",
    uses: "events, telemetry, MQTT",
    what: "Each subscription gets each message, durable ones also what came while they were away.",
  },
  anycast: {
    tag: "Not stored",
    uses: "requests, low latency",
    what: "Each message goes straight to one attached receiver, and the sender gets its answer.",
  },
  multicast: {
    tag: "Not stored",
    uses: "live values, notifications",
    what: "Each message goes straight to all receivers that are attached now.",
  },
};
/** The traits of a type; none of an unknown one. */
export const traits = (type) => TYPES[type] || {};
