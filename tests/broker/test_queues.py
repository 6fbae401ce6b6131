"""Queues over AMQP: a real broker process, Proton as the client."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection, BlockingSender

from enmasse.amqp.codec.codec import encode
from enmasse.amqp.codec.types import Described, UInt, ULong
from tests.broker.harness import (
    DEADLINE,
    BrokerProcess,
    Management,
    attach,
    bodies,
    flush,
    take,
)


@pytest.fixture
def q(m: Management) -> Iterator[str]:
    name = f"q-{uuid.uuid4()}"
    m.queue(name)
    yield name
    m("destroyQueue", name, True, True)


def send(sender: BlockingSender, *texts: str, **fields: object) -> None:
    for text in texts:
        sender.send(Message(body=text, **fields))


def test_duplicates_are_recognised(c: BlockingConnection, m: Management, q: str) -> None:
    sender = c.create_sender(q)
    for durable in (True, False):
        for _ in range(2):
            sender.send(Message(body="x", durable=durable, properties={"_AMQ_DUPL_ID": f"d{durable}"}))
    assert m.count(q) == 2
    sender.send(Message(body="y", id="same"))
    sender.send(Message(body="y", id="same"))
    assert m.count(q) == 4, "message-ids count only where that is switched on"
    m.settings(q, duplicateDetectionByMessageId=True)
    for durable in (True, False):
        for _ in range(2):
            sender.send(Message(body="z", id=f"id-{durable}", durable=durable))
    assert m.count(q) == 6


def test_malformed_messages_are_rejected(c: BlockingConnection, m: Management, q: str) -> None:
    sender = c.create_sender(q)
    delivery = sender.link.delivery(sender.link.delivery_tag())
    sender.link.stream(b"\x00\x53\x70\xc0\xff\x01")
    sender.link.advance()
    c.wait(lambda: delivery.remote_state != 0, timeout=DEADLINE)
    assert delivery.remote_state == Delivery.REJECTED
    assert m.count(q) == 0


def raw(c: BlockingConnection, address: str, payload: bytes) -> int:
    """Sends these bytes as one message; the outcome."""
    sender = c.create_sender(address)
    delivery = sender.link.delivery(sender.link.delivery_tag())
    sender.link.stream(payload)
    sender.link.advance()
    c.wait(lambda: delivery.settled, timeout=DEADLINE)
    sender.close()
    return int(delivery.remote_state)


@pytest.mark.parametrize("durable", [True, False])
def test_headers_with_impossible_numbers_do_no_harm(
    c: BlockingConnection, m: Management, q: str, durable: bool
) -> None:
    """The connection they come by may be a router's, with the messages of all its clients."""
    for priority, ttl in ((-20, None), (-(2**63), None), (255, None), (4, ULong(2**64 - 1)), (4, 2**63 - 1)):
        header = encode(Described(ULong(0x70), [durable, priority, ttl]))
        assert raw(c, q, header + b"\x00\x53\x77\x40") == Delivery.ACCEPTED
    receiver = attach(c, q, 5)
    assert sorted(take(receiver).priority for _ in range(5)) == [0, 0, 4, 4, 9]


def test_a_message_that_is_hard_to_encode_expires_and_others_after_it(
    c: BlockingConnection, m: Management, q: str
) -> None:
    expiry = f"{q}-expired"
    m.queue(expiry)
    m.settings(q, expiryAddress=expiry)
    twice = b"\x00\xa1\x01a\x00\xa1\x01b\x40"  # an array without elements, described twice
    array = b"\xe0" + bytes((len(twice) + 1, 0)) + twice
    annotations = b"\x00\x53\x72\xc1" + bytes((len(array) + 6, 2)) + b"\xa3\x03x-y" + array
    header = encode(Described(ULong(0x70), [False, None, UInt(1)]))
    assert raw(c, q, header + annotations + b"\x00\x53\x77\xa1\x03odd") == Delivery.ACCEPTED
    expired = attach(c, expiry, 2)
    assert bodies(expired, 1) == ["odd"]
    c.create_sender(q).send(Message(body="usual", ttl=0.001))
    assert bodies(expired, 1) == ["usual"]
    m("removeAddressSettings", q)
    m("destroyQueue", expiry, True, True)


def test_settings_in_the_configuration_hold_for_all(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, data_dir=None, settings={"autoCreateQueues": True, "autoCreateAddresses": True,
                                                             "defaultAddressRoutingType": "ANYCAST"})  # fmt: skip
    broker.start()
    with broker.connect() as c:
        c.create_sender("made").send(Message(body="x"))
        assert bodies(c.create_receiver("made", credit=1), 1) == ["x"]
        flush(c.create_receiver("made", name="2"))
    broker.stop()
