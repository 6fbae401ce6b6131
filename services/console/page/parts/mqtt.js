// A client of MQTT 5 over WebSocket, to try topics in the page: one connection, and bounds for all that it keeps.

const CONNECT = 1,
  CONNACK = 2,
  PUBLISH = 3,
  PUBACK = 4,
  PUBREC = 5,
  PUBREL = 6,
  PUBCOMP = 7,
  SUBSCRIBE = 8,
  SUBACK = 9,
  UNSUBSCRIBE = 10,
  UNSUBACK = 11,
  PINGREQ = 12,
  DISCONNECT = 14;
const LARGEST = 4 << 20; // bytes of a packet; the gateway is told so
const IN_FLIGHT = 20; // messages of QoS 1 and 2 from the gateway at once; told too
const FAILED = 0x80; // reason codes from here on are refusals
const WITH_WILL = 0x04; // reason code of a client whose will is to be published

/** Reason codes of MQTT 5 (2.4) in words. */
const REASONS = {
  0: "done",
  4: "disconnected, the will is published",
  16: "done, but nobody subscribes to it",
  17: "there was no such subscription",
  128: "refused",
  129: "the packet is malformed",
  130: "protocol error",
  131: "the gateway cannot do this now",
  132: "this version of MQTT is not served",
  133: "the client id is not valid",
  134: "user or password is wrong",
  135: "not permitted",
  136: "the service is not available",
  137: "the gateway is busy",
  138: "banned",
  139: "the gateway ends",
  141: "nothing was heard from the client in time",
  142: "another client has connected with this client id",
  143: "the filter is not valid",
  144: "the topic is not valid",
  145: "the packet id is in use",
  147: "too many messages at once",
  149: "the message is too large",
  150: "messages come too fast",
  151: "a limit is reached",
  152: "an operator has disconnected the client",
  153: "the payload is not what it says",
  154: "messages are not retained here",
  155: "the QoS is not supported",
  158: "shared subscriptions are not supported",
  159: "connections come too fast",
};
/** Properties (2.2.2.2): id → name, and its form. */
const PROPERTIES = {
  1: ["format", "byte"],
  2: ["expiry", "four"],
  3: ["contentType", "text"],
  8: ["responseTopic", "text"],
  9: ["correlation", "binary"],
  11: ["subscription", "variable"],
  17: ["sessionExpiry", "four"],
  18: ["clientId", "text"],
  19: ["keepAlive", "two"],
  21: ["method", "text"],
  22: ["data", "binary"],
  24: ["willDelay", "four"],
  26: ["response", "text"],
  28: ["server", "text"],
  31: ["reason", "text"],
  33: ["receiveMaximum", "two"],
  34: ["aliases", "two"],
  35: ["alias", "two"],
  36: ["maximumQos", "byte"],
  37: ["retain", "byte"],
  38: ["user", "pair"],
  39: ["largest", "four"],
  40: ["wildcards", "byte"],
  41: ["identifiers", "byte"],
  42: ["shared", "byte"],
};
const encoder = new TextEncoder();

export const reasonText = (code) => REASONS[code] || `reason code 0x${code.toString(16)}`;

function join(...parts) {
  const found = new Uint8Array(parts.reduce((sum, it) => sum + it.length, 0));
  let at = 0;
  for (const part of parts) {
    found.set(part, at);
    at += part.length;
  }
  return found;
}

const byte = (value) => Uint8Array.of(value);
const two = (value) => Uint8Array.of(value >> 8, value & 255);
const four = (value) => Uint8Array.of(value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255);

function variable(value) {
  const found = [];
  do {
    found.push((value & 127) | (value > 127 ? 128 : 0));
    value >>>= 7;
  } while (value);
  return Uint8Array.from(found);
}

function binary(value) {
  if (value.length > 65535) throw new Error("This has more than 65,535 bytes.");
  return join(two(value.length), value);
}

const text = (value) => binary(encoder.encode(value));
const FORMS = { byte, two, four, text, pair: ([name, value]) => join(text(name), text(value)) };

/** Properties of a packet, with their length: those of `values` that are there, by their names in PROPERTIES. */
function properties(values) {
  const parts = [];
  for (const [id, [name, form]] of Object.entries(PROPERTIES))
    for (const value of form === "pair" ? values[name] || [] : [values[name]])
      if (value !== undefined) parts.push(byte(Number(id)), FORMS[form](value));
  const found = join(...parts);
  return join(variable(found.length), found);
}

function packet(type, flags, ...parts) {
  const body = join(...parts);
  return join(byte((type << 4) | flags), variable(body.length), body);
}

/** Takes values from a packet; throws RangeError beyond its end. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.at = 0;
  }
  get left() {
    return this.bytes.length - this.at;
  }
  take(size) {
    if (size > this.left) throw new RangeError("a packet of the gateway is cut");
    this.at += size;
    return this.bytes.subarray(this.at - size, this.at);
  }
  byte() {
    return this.take(1)[0];
  }
  two() {
    const [high, low] = this.take(2);
    return high * 256 + low;
  }
  four() {
    return this.two() * 65536 + this.two();
  }
  variable() {
    let value = 0;
    for (let factor = 1; factor <= 128 ** 3; factor *= 128) {
      const next = this.byte();
      value += (next & 127) * factor;
      if (next < 128) return value;
    }
    throw new RangeError("a length in a packet of the gateway is wrong");
  }
  binary() {
    return this.take(this.two());
  }
  text() {
    return new TextDecoder().decode(this.binary());
  }
  pair() {
    return [this.text(), this.text()];
  }
  /** @returns {Record<string, any>} */
  properties() {
    const found = {};
    const size = this.variable(),
      end = this.at + size;
    while (this.at < end) {
      const [name, form] = PROPERTIES[this.variable()] || [];
      if (!name) throw new RangeError("a property in a packet of the gateway is unknown");
      const value = this[form]();
      if (form === "pair") found[name] = [...(found[name] || []), value];
      else found[name] = value;
    }
    return found;
  }
}

/**
 * `properties` by their names in PROPERTIES.
 * @typedef {{topic: string, payload: Uint8Array, qos: number, retain: boolean, properties: Record<string, any>
 * }} Message
 */

/**
 * A connection. `on.state(state, why)`: "connected" or "closed", with a sentence; `on.message(message)`: {topic,
 * payload, qos, retain, duplicate, properties}.
 */
export class MqttClient {
  /** @param {{state: (state: string, why: string) => void, message: (message: any) => void}} on */
  constructor(on) {
    this.on = on;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.held = new Uint8Array(0);
    /** @type {Map<number, {resolve: (code: number) => void, reject: (error: Error) => void}>} */
    this.waiting = new Map();
    this.received = new Set(); // ids of messages of QoS 2 from the gateway that it has not released
    this.last = 0;
    this.most = 65535;
    this.largest = LARGEST;
    this.connected = false;
    /** @type {any} */
    this.beat = null;
  }

  /**
   * @param {{url: string, clientId: string, user: string, password: string, clean: boolean, keepAlive: number,
   *   will: Message | null}} options
   */
  connect({ url, clientId, user, password, clean, keepAlive, will }) {
    const ofWill = will ? 4 | (will.qos << 3) | (will.retain ? 32 : 0) : 0;
    const flags = (clean ? 2 : 0) | ofWill | (user ? 128 : 0) | (password ? 64 : 0);
    const hello = packet(
      CONNECT,
      0,
      text("MQTT"),
      byte(5),
      byte(flags),
      two(keepAlive),
      properties({ receiveMaximum: IN_FLIGHT, largest: LARGEST, sessionExpiry: clean ? undefined : 3600 }),
      text(clientId),
      ...(will ? [properties(will.properties), text(will.topic), binary(will.payload)] : []),
      ...(user ? [text(user)] : []),
      ...(password ? [text(password)] : []),
    );
    this.socket = new WebSocket(url, "mqtt");
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.send(hello);
    this.socket.onmessage = (event) => this.take(new Uint8Array(event.data));
    this.socket.onclose = () =>
      this.end(
        this.connected
          ? "The gateway has closed the connection."
          : "There is no gateway at this URL, its certificate is not accepted, or it refuses pages of this origin.",
      );
    if (keepAlive) this.beat = setInterval(() => this.connected && this.send(packet(PINGREQ, 0)), keepAlive * 500);
  }

  /** @param {{withWill?: boolean}} options */
  disconnect({ withWill = false } = {}) {
    if (this.connected) this.send(packet(DISCONNECT, 0, ...(withWill ? [byte(WITH_WILL)] : [])));
    this.end("Disconnected.");
  }

  /** Returns the reason code. */
  subscribe(filter, qos) {
    return this.ask((id) => packet(SUBSCRIBE, 2, two(id), byte(0), text(filter), byte(qos)));
  }

  unsubscribe(filter) {
    return this.ask((id) => packet(UNSUBSCRIBE, 2, two(id), byte(0), text(filter)));
  }

  /**
   * Returns the reason code, 0 at QoS 0.
   * @param {Message} message
   */
  publish({ topic, payload, qos, retain, properties: values }) {
    const flags = (qos << 1) | (retain ? 1 : 0);
    const make = (id) => packet(PUBLISH, flags, text(topic), ...(id ? [two(id)] : []), properties(values), payload);
    if (qos) return this.ask(make);
    this.send(make(0));
    return Promise.resolve(0);
  }

  /** Send a packet that is answered; returns the reason code. */
  ask(make) {
    if (this.waiting.size >= Math.min(this.most, 1000))
      return Promise.reject(new Error("The gateway has not answered the packets before."));
    do this.last = (this.last % 65535) + 1;
    while (this.waiting.has(this.last));
    const id = this.last;
    return new Promise((resolve, reject) => {
      this.send(make(id)); // throws if a text is too long
      this.waiting.set(id, { resolve, reject });
    });
  }

  send(bytes) {
    if (!this.socket || this.socket.readyState !== WebSocket.OPEN) throw new Error("There is no connection.");
    if (bytes.length > this.largest)
      throw new Error(`The gateway takes ${this.largest} bytes at most; this is ${bytes.length}.`);
    this.socket.send(bytes);
  }

  take(bytes) {
    try {
      this.held = this.held.length ? join(this.held, bytes) : bytes;
      while (this.socket && this.next());
    } catch (/** @type {any} */ error) {
      this.end(`The connection was closed: ${error.message}.`);
    }
  }

  /** Deal with the next packet; returns whether one was complete. */
  next() {
    if (this.held.length < 2) return false;
    const reader = new Reader(this.held);
    const first = reader.byte();
    if (this.held.length < 5 && this.held.at(-1) > 127) return false; // the length is not complete
    const size = reader.variable();
    if (size > LARGEST) throw new RangeError("a packet of the gateway is too large");
    if (reader.left < size) return false;
    const body = new Reader(reader.take(size));
    this.held = this.held.subarray(reader.at);
    this.handle(first >> 4, first & 15, body);
    return this.held.length > 0;
  }

  handle(type, flags, body) {
    if (type === CONNACK) this.accepted(body);
    else if (type === PUBLISH) this.message(flags, body);
    else if (type === PUBACK || type === PUBCOMP) this.answered(body);
    else if (type === PUBREC) {
      const id = body.two(),
        code = body.left ? body.byte() : 0;
      if (code >= FAILED) this.settle(id, code);
      else this.send(packet(PUBREL, 2, two(id)));
    } else if (type === PUBREL) {
      const id = body.two();
      this.received.delete(id);
      this.send(packet(PUBCOMP, 0, two(id)));
    } else if (type === SUBACK || type === UNSUBACK) {
      const id = body.two();
      body.properties();
      this.settle(id, body.byte());
    } else if (type === DISCONNECT) {
      const code = body.left ? body.byte() : 0,
        why = body.left ? body.properties().reason : "";
      this.end(`The gateway has disconnected: ${why || reasonText(code)}.`);
    }
  }

  accepted(body) {
    const resumed = body.byte() === 1,
      code = body.byte(),
      properties = body.properties();
    if (code >= FAILED) {
      this.end(`Refused: ${properties.reason || reasonText(code)}.`);
      return;
    }
    this.most = properties.receiveMaximum ?? 65535;
    this.largest = properties.largest ?? LARGEST;
    this.connected = true;
    this.on.state("connected", resumed ? "Connected; the session of before goes on." : "Connected.");
  }

  message(flags, body) {
    const qos = (flags >> 1) & 3,
      topic = body.text(),
      id = qos ? body.two() : 0,
      properties = body.properties();
    if (qos === 1) this.send(packet(PUBACK, 0, two(id)));
    if (qos === 2) {
      this.send(packet(PUBREC, 0, two(id)));
      if (this.received.has(id)) return;
      this.received.add(id);
    }
    const payload = body.take(body.left);
    this.on.message({ topic, payload, qos, retain: Boolean(flags & 1), duplicate: Boolean(flags & 8), properties });
  }

  answered(body) {
    const id = body.two();
    this.settle(id, body.left ? body.byte() : 0);
  }

  settle(id, code) {
    const asked = this.waiting.get(id);
    this.waiting.delete(id);
    asked?.resolve(code);
  }

  end(why) {
    if (!this.socket) return;
    const { socket } = this;
    this.socket = null;
    this.connected = false;
    clearInterval(this.beat);
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
    for (const { reject } of this.waiting.values()) reject(new Error(why));
    this.waiting.clear();
    this.on.state("closed", why);
  }
}
