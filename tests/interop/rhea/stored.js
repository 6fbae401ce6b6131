// What brokers keep: queues and topics.
'use strict';

const { message: rheaMessage, types } = require('rhea');
const { check } = require('./peer.js');

// A hundred messages pipelined, received in order.
async function queue(peer) {
  const c = await peer.connect();
  const sender = await c.sender(peer.address('queue'));
  const outcomes = [];
  for (let i = 0; i < 100; i++) {
    outcomes.push(await sender.begin({ body: `body ${i}`, message_id: `id-${i}`, durable: true }));
  }
  for (const begun of outcomes) check('outcome', 'accepted', (await begun.outcome).outcome);
  const receiver = await c.receiver(peer.address('queue'));
  for (let i = 0; i < 100; i++) {
    const message = await receiver.accepted();
    check('message', [`body ${i}`, `id-${i}`, true], [message.body, message.message_id, message.durable]);
  }
  await receiver.close();
  await c.close();
}

// Released and modified come again, rejected goes to the dead-letter address.
async function outcomes(peer) {
  const c = await peer.connect();
  await (await c.sender(peer.address('outcomes'))).send({ body: 'again and again', durable: true });
  const receiver = await c.receiver(peer.address('outcomes'), { credit: 0 });
  const attempt = async (what, count) => {
    receiver.grant(1);
    const { message, delivery } = await receiver.next();
    check(what, count, message.delivery_count || 0);
    return delivery;
  };
  (await attempt('first attempt', 0)).release();
  (await attempt('released is no attempt', 0)).modified({ delivery_failed: true, undeliverable_here: false });
  (await attempt('failed is one', 1)).reject({ condition: 'interop:unwanted', description: 'not this one' });
  const dead = await c.receiver(peer.address('dead'));
  check('dead letter', 'again and again', (await dead.accepted()).body);
  await dead.close();
  await receiver.close();
  await c.close();
}

const received = rheaMessage.received({ section_number: 0, section_offset: 0 }).described();
const accepted = rheaMessage.accepted({}).described();

// Settled without an outcome, or with `received`: released, unless the source has a default outcome.
async function limbo(peer) {
  const c = await peer.connect();
  for (const address of [peer.address('limbo'), peer.address('limbo-topic')]) {
    for (const mode of [0, 1]) {
      const receiver = await c.receiver(address, { credit: 0, rcv_settle_mode: mode });
      const sender = await c.sender(address);
      await sender.send({ body: 'again', durable: true });
      for (const state of [undefined, received, accepted]) {
        receiver.grant(1);
        const { message, delivery } = await receiver.next();
        check('it comes again', ['again', 0], [message.body, message.delivery_count || 0]);
        delivery.update(true, state);
      }
      await receiver.close();
      const content = await c.receiver({ address, default_outcome: accepted }, { credit: 0, rcv_settle_mode: mode });
      for (const state of [undefined, received]) {
        await sender.send({ body: 'once', durable: true });
        content.grant(1);
        const { message, delivery } = await content.next();
        check('the default outcome counts', ['once', 0], [message.body, message.delivery_count || 0]);
        delivery.update(true, state);
      }
      await content.close();
    }
  }
  await c.close();
}

// A durable subscription keeps what comes while its client is away, by detach and by loss of the connection.
async function topic(peer) {
  const address = peer.address('topic');
  const connect = () => peer.connect({ container_id: `${peer.prefix}subscriber` });
  const subscribe = (c) =>
    c.receiver({ address, durable: 2, expiry_policy: 'never', capabilities: ['topic'] }, { name: 'durable' });
  const publish = async (body) => {
    const c = await peer.connect();
    await (await c.sender(address)).send({ body, durable: true });
    await c.close();
  };
  let c = await connect();
  await (await subscribe(c)).detach();
  await c.close();
  await publish('first');
  c = await connect();
  let receiver = await subscribe(c);
  check('while detached', 'first', (await receiver.accepted()).body);
  await receiver.detach();
  receiver = await subscribe(c);
  await c.close(); // with the link attached
  await publish('second');
  c = await connect();
  receiver = await subscribe(c);
  check('while the connection was gone', 'second', (await receiver.accepted()).body);
  await receiver.close(); // the end of the subscription
  await publish("nobody's");
  receiver = await subscribe(c);
  await publish('third');
  check('a new subscription', 'third', (await receiver.accepted()).body);
  await receiver.close();
  await c.close();
}

// At most once, from the sender and to the receiver.
async function presettled(peer) {
  const c = await peer.connect();
  const sender = await c.sender(peer.address('presettled'), { snd_settle_mode: 1 });
  for (let i = 0; i < 20; i++) {
    await sender.credit();
    check('settled by the sender', true, sender.link.send({ body: types.wrap_int(i) }).settled);
  }
  await sender.close();
  const receiver = await c.receiver(peer.address('presettled'), { snd_settle_mode: 1 });
  for (let i = 0; i < 20; i++) {
    const { message, delivery } = await receiver.next();
    check('body', i, message.body);
    check('settled by the sender', true, delivery.remote_settled);
  }
  await receiver.close();
  await c.close();
}

// A mebibyte in frames of 4 KiB, both ways.
async function large(peer) {
  const body = Buffer.from(Uint8Array.from({ length: 1 << 20 }, (_, i) => i * 31 + (i >> 8)));
  const c = await peer.connect({ max_frame_size: 4096 });
  await (await c.sender(peer.address('queue'))).send({ body: rheaMessage.data_section(body), durable: true });
  const receiver = await c.receiver(peer.address('queue'), { credit: 1 });
  check('body', true, body.equals((await receiver.accepted()).body.content));
  await receiver.close();
  await c.close();
}

// What has expired is not delivered, what has not is, and tells its time to live.
async function ttl(peer) {
  const c = await peer.connect();
  const sender = await c.sender(peer.address('ttl'));
  await sender.send({ body: 'late', durable: true, ttl: 20 });
  const expired = new Promise((resolve) => setTimeout(resolve, 20));
  await sender.send({ body: 'in time', durable: true, ttl: 600000 });
  await expired;
  const receiver = await c.receiver(peer.address('ttl'));
  const message = await receiver.accepted();
  check('the one in time', 'in time', message.body);
  check('ttl', true, message.ttl > 0 && message.ttl <= 600000);
  await receiver.close();
  await c.close();
}

const ID = Buffer.from('00112233445566778899aabbccddeeff', 'hex');
const FIELDS = {
  durable: true, priority: 7, message_id: ID, correlation_id: 'c', subject: 's', reply_to: 'r', content_type: 'text/x',
  group_id: 'g', user_id: Buffer.from([0, 255]),
};

// A message of many types, for another client to read.
async function typesSend(peer) {
  const c = await peer.connect();
  const { wrap_int, wrap_long, wrap_double, wrap_boolean, wrap_byte, wrap_uuid, wrap_list, wrap_string } = types;
  await (await c.sender(peer.address('types'))).send({
    ...FIELDS,
    creation_time: 1600000000123,
    message_annotations: { 'x-opt-a': wrap_byte(1) },
    application_properties: {
      string: 'é', int: wrap_int(-5), long: wrap_long(2 ** 40), double: wrap_double(0.25), bool: wrap_boolean(false),
      uuid: wrap_uuid(ID),
    },
    body: wrap_list([wrap_string('a'), wrap_int(1), wrap_long(2), wrap_boolean(true), wrap_double(0.5)]),
  });
  await c.close();
}

// The same message from another client. In this one every number is a number, and a uuid is its bytes.
async function typesReceive(peer) {
  const c = await peer.connect();
  const receiver = await c.receiver(peer.address('types'));
  const message = await receiver.accepted();
  for (const [name, value] of Object.entries(FIELDS)) check(name, value, message[name]);
  check('creation time', 1600000000123, message.creation_time.getTime());
  check('annotations', { 'x-opt-a': 1 }, { ...message.message_annotations });
  const expected = { string: 'é', int: -5, long: 2 ** 40, double: 0.25, bool: false, uuid: ID };
  check('properties', expected, { ...message.application_properties });
  check('body', ['a', 1, 2, true, 0.5], message.body);
  await receiver.close();
  await c.close();
}

module.exports = {
  queue, outcomes, limbo, topic, presettled, large, ttl, 'types-send': typesSend, 'types-receive': typesReceive,
};
