// rhea's events as promises: connections, links, messages and outcomes that are waited for.
'use strict';

const assert = require('node:assert/strict');
const rhea = require('rhea');

const LIMIT = 60000; // milliseconds until a step is given up

function check(what, expected, actual) {
  assert.deepStrictEqual(actual, expected, what);
}

// A promise of `what`, which `start` settles.
function soon(what, start) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${what}: nothing in ${LIMIT / 1000} s`)), LIMIT);
    const end = (settle) => (value) => {
      clearTimeout(timer);
      settle(value);
    };
    start(end(resolve), end(reject));
  });
}

function failure(what, error) {
  const thrown = new Error(`${what}: ${error && error.condition} ${error && error.description}`);
  thrown.condition = error && error.condition;
  return thrown;
}

class Peer {
  constructor(host, port, prefix) {
    Object.assign(this, { host, port, prefix });
  }

  address(name) {
    return this.prefix + name;
  }

  async connect(options = {}) {
    const container = rhea.create_container();
    const connection = container.connect({ host: this.host, port: this.port, reconnect: false, ...options });
    await soon('open', (resolve, reject) => {
      connection.once('connection_open', resolve);
      connection.once('disconnected', (context) => reject(context.error || new Error('disconnected')));
    });
    return new Connection(connection);
  }
}

class Connection {
  constructor(connection) {
    this.connection = connection;
    connection.on('connection_error', () => {}); // told by connection_close
  }

  async sender(target, options = {}) {
    const link = this.connection.open_sender({ target, ...options });
    await this.attached('sender', link);
    return new Sender(link);
  }

  // `credit`: messages fetched ahead; 0: by `grant`.
  async receiver(source, { credit = 10, ...options } = {}) {
    const link = this.connection.open_receiver({ source, credit_window: credit, autoaccept: false, ...options });
    const receiver = new Receiver(link);
    await this.attached('receiver', link);
    return receiver;
  }

  attached(kind, link) {
    const what = `${kind} of ${JSON.stringify(link.local.attach)}`;
    return soon(what, (resolve, reject) => {
      link.once(`${kind}_error`, () => reject(failure(what, link.error)));
      link.once(`${kind}_close`, () => {});
      link.once(`${kind}_open`, () => {
        // A refusal is an attach with a null terminus, and then a detach (2.6.3).
        const terminus = kind === 'sender' ? link.target : link.source;
        if (terminus && terminus.value) resolve();
      });
    });
  }

  close() {
    return soon('close', (resolve) => {
      this.connection.once('connection_close', resolve);
      this.connection.once('disconnected', resolve);
      this.connection.close();
    });
  }
}

class Sender {
  constructor(link) {
    this.link = link;
    this.waiting = new Map();
    for (const outcome of ['accepted', 'rejected', 'released', 'modified']) {
      link.on(outcome, ({ delivery }) => this.decided(delivery, outcome));
    }
  }

  decided(delivery, outcome) {
    const resolve = this.waiting.get(delivery.id);
    this.waiting.delete(delivery.id);
    if (resolve) resolve({ outcome, state: delivery.remote_state });
  }

  async credit() {
    if (!this.link.sendable()) await soon('credit', (resolve) => this.link.once('sendable', resolve));
  }

  // Sends, and gives a promise of the outcome.
  async begin(message) {
    await this.credit();
    const delivery = this.link.send(message);
    return { outcome: soon('outcome', (resolve) => this.waiting.set(delivery.id, resolve)) };
  }

  async send(message) {
    const { outcome } = await (await this.begin(message)).outcome;
    check('outcome', 'accepted', outcome);
  }

  close() {
    return closed('sender', this.link);
  }
}

class Receiver {
  constructor(link) {
    this.link = link;
    this.here = [];
    this.waiting = [];
    link.on('message', (context) => {
      const resolve = this.waiting.shift();
      if (resolve) resolve(context);
      else this.here.push(context);
    });
  }

  get address() {
    return this.link.source.address;
  }

  grant(credit) {
    this.link.add_credit(credit);
  }

  // The next {message, delivery}.
  async next() {
    return this.here.shift() || soon(`a message from ${this.address}`, (resolve) => this.waiting.push(resolve));
  }

  async accepted() {
    const { message, delivery } = await this.next();
    delivery.accept();
    return message;
  }

  close() {
    return closed('receiver', this.link);
  }

  detach() {
    return closed('receiver', this.link, 'detach');
  }
}

function closed(kind, link, how = 'close') {
  return soon(`${how} of a ${kind}`, (resolve) => {
    link.once(`${kind}_close`, resolve);
    link[how]();
  });
}

module.exports = { Peer, check };
