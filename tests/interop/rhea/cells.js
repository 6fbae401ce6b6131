// `node cells.js HOST PORT TLS_PORT CA SOURCE`: connections of users from the address SOURCE, by commands on standard
// input; each is answered by a line.
//   open ID USER PASSWORD TOKEN CERTIFICATE KEY STORE OPERATION ADDRESS BODY
//                                                  log in ("-": without that), then send or receive
//   take ID                                        the body of the next message
//   gone ID                                        why the connection has ended
//   close ID                                       bodies of messages that have come and were not taken, as JSON
'use strict';

const fs = require('node:fs');
const net = require('node:net');
const readline = require('node:readline');
const tls = require('node:tls');
const rhea = require('rhea');

const LIMIT = 60000; // milliseconds for one answer
const [host, port, tlsPort, ca, localAddress] = process.argv.slice(2);
const sessions = new Map();

class Session {
  constructor(user, password, token, certificate, key) {
    this.bodies = [];
    this.ended = new Promise((resolve) => {
      this.end = resolve;
    });
    // By PLAIN: with XOAUTH2 rhea has no answer to a refusal, and ends the program by an exception.
    const secret = token === '-' ? password : token;
    const credentials = user === '-' ? {} : { username: user, password: secret };
    let connect = (_port, _host, _options, connected) => net.connect({ port, host, localAddress }, connected);
    if (certificate !== '-') {
      credentials.enable_sasl_external = true;
      const files = { ca: fs.readFileSync(ca), cert: fs.readFileSync(certificate), key: fs.readFileSync(key) };
      credentials.cert = files.cert; // which rhea wants to see
      const there = { port: tlsPort, host, localAddress, ...files };
      connect = (_port, _host, _options, connected) => tls.connect(there, connected);
    }
    this.connection = rhea.create_container().connect({ connect, reconnect: false, ...credentials });
    // Listeners of errors: without them rhea raises an exception.
    this.connection.on('connection_error', ({ connection, error }) => this.end(told(connection.error || error)));
    this.connection.on('connection_close', ({ connection }) => this.end(told(connection.error)));
    this.connection.on('disconnected', ({ error }) => this.end(isProtocol(error) ? told(error) : 'closed'));
    this.connection.on('message', ({ message }) => this.bodies.push(String(message.body)));
  }

  operate(operation, address, body) {
    const opened = new Promise((resolve) => this.connection.once('connection_open', () => resolve('')));
    return Promise.race([this.ended, opened.then(() => this[operation](address, body))]);
  }

  send(target, body) {
    return new Promise((resolve) => {
      const link = this.connection.open_sender({ target });
      link.once('sender_error', () => resolve(told(link.error)));
      link.once('sendable', () => link.send({ body }));
      for (const outcome of ['accepted', 'released', 'modified', 'rejected']) link.once(outcome, () => resolve(outcome));
    });
  }

  receive(source) {
    return new Promise((resolve) => {
      const link = this.connection.open_receiver({ source });
      link.once('receiver_error', () => resolve(told(link.error)));
      // A refusal is an attach with a null terminus, and then a detach (2.6.3).
      link.once('receiver_open', () => link.source && link.source.value && resolve('attached'));
    });
  }

  async take() {
    while (!this.bodies.length) await new Promise((resolve) => this.connection.once('message', resolve));
    return this.bodies.shift();
  }

  close() {
    this.connection.close();
    return JSON.stringify(this.bodies);
  }
}

// Other errors are those of the socket, or of TLS, in many forms.
function isProtocol(error) {
  return Boolean(error) && error.name === 'ProtocolError';
}

function told(error) {
  if (!error) return 'closed';
  return error.condition || error.message || String(error);
}

async function obey(line) {
  const [command, id, ...rest] = line.split(' ');
  if (command === 'open') {
    const [user, password, token, certificate, key, , operation, address, body] = rest;
    sessions.set(id, new Session(user, password, token, certificate, key));
    return sessions.get(id).operate(operation, address, body);
  }
  return command === 'gone' ? sessions.get(id).ended : sessions.get(id)[command]();
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const late = new Promise((resolve) => setTimeout(resolve, LIMIT, 'no answer').unref());
    console.log(await Promise.race([obey(line), late]));
  }
  process.exit(0);
}

main();
