// What routers carry from link to link.
'use strict';

const { message: rheaMessage } = require('rhea');
const { check } = require('./peer.js');

// No credit without a receiver; with one, the sender learns the receiver's own outcome.
async function anycast(peer) {
  const one = await peer.connect();
  const other = await peer.connect();
  const sender = await one.sender(peer.address('anycast'));
  await (await one.receiver(peer.address('queue'))).close(); // what came before that answer has been read
  check('no credit without a receiver', false, sender.link.sendable());
  const receiver = await other.receiver(peer.address('anycast'), { credit: 0 });
  receiver.grant(2);
  const begun = [];
  for (const body of ['accept', 'reject', 'release']) begun.push(await sender.begin({ body }));
  const first = await receiver.next();
  check('first', 'accept', first.message.body);
  first.delivery.accept();
  check('accepted', 'accepted', (await begun[0].outcome).outcome);
  (await receiver.next()).delivery.reject({ condition: 'interop:unwanted' });
  const rejected = await begun[1].outcome;
  check('rejected', ['rejected', 'interop:unwanted'], [rejected.outcome, rejected.state.error.condition]);
  check('third is not sent beyond the credit', 0, receiver.here.length);
  receiver.grant(1);
  (await receiver.next()).delivery.release();
  check('released', 'released', (await begun[2].outcome).outcome);
  await one.close();
  await other.close();
}

// A sender learns an outcome also where its receiver has stated none.
async function unstated(peer) {
  const one = await peer.connect();
  const other = await peer.connect();
  for (const mode of [0, 1]) {
    const receiver = await other.receiver(peer.address('anycast'), { credit: 0, rcv_settle_mode: mode });
    const sender = await one.sender(peer.address('anycast'));
    for (const state of [undefined, rheaMessage.received({ section_number: 0, section_offset: 0 }).described()]) {
      receiver.grant(1);
      const begun = await sender.begin({ body: 'who knows' });
      (await receiver.next()).delivery.update(true, state);
      check('the outcome', 'released', (await begun.outcome).outcome);
    }
    await sender.close();
    await receiver.close();
  }
  await one.close();
  await other.close();
}

// Everybody gets everything.
async function multicast(peer) {
  const sending = await peer.connect();
  const one = await peer.connect();
  const other = await peer.connect();
  const receivers = [];
  for (const c of [one, other, other]) receivers.push(await c.receiver(peer.address('multicast')));
  const sender = await sending.sender(peer.address('multicast'));
  const begun = [];
  for (let i = 0; i < 5; i++) begun.push(await sender.begin({ body: i }));
  for (const receiver of receivers) {
    for (let i = 0; i < 5; i++) check('body', i, (await receiver.accepted()).body);
  }
  for (const { outcome } of begun) check('outcome', 'accepted', (await outcome).outcome);
  for (const c of [sending, one, other]) await c.close();
}

// A request, and its answer to a dynamic address through a sender without one.
async function request(peer) {
  const client = await peer.connect();
  const server = await peer.connect();
  const requests = await server.receiver(peer.address('anycast'), { credit: 1 });
  const replies = await client.receiver({ dynamic: true }, { credit: 1 });
  const sender = await client.sender(peer.address('anycast'));
  const asked = await sender.begin({ body: '6 x 7', reply_to: replies.address, correlation_id: 'q' });
  const question = await requests.accepted();
  check('request', 'accepted', (await asked.outcome).outcome);
  const answering = await server.sender({ address: null });
  const answered = await answering.begin({ body: '42', to: question.reply_to, correlation_id: question.correlation_id });
  const reply = await replies.accepted();
  check('reply', ['42', 'q'], [reply.body, reply.correlation_id]);
  check('reply', 'accepted', (await answered.outcome).outcome);
  await client.close();
  await server.close();
}

// An address nobody has defined is refused, and the connection goes on.
async function unknown(peer) {
  const c = await peer.connect();
  for (const attach of [() => c.sender(peer.address('nowhere')), () => c.receiver(peer.address('nowhere'))]) {
    const refusal = await attach().then(() => null, (error) => error);
    check('refused', 'amqp:not-found', refusal && refusal.condition);
  }
  await (await c.sender(peer.address('queue'))).send({ body: 'still here', durable: true });
  const receiver = await c.receiver(peer.address('queue'));
  check('the connection goes on', 'still here', (await receiver.accepted()).body);
  await receiver.close();
  await c.close();
}

module.exports = { anycast, unstated, multicast, request, unknown };
