"""What a message may look like, and what is recognised as a copy."""

from __future__ import annotations

import pytest

from enmasse.amqp.errors import AmqpError
from services.broker.core.publisher import publish
from tests.broker.sansio import Core, decoded, outlet, taken


def test_extreme_values_of_a_message() -> None:
    core = Core()
    deadlines: list[int] = []
    core.broker.on_deadline = deadlines.append
    q = core.queue()
    core.send("x", ttl=4294967.295, annotations={"x-opt-delivery-time": 2**62})
    core.send("x", annotations={"x-opt-delivery-delay": -5}, expiry_time=2**52)
    core.send("x", properties={"_AMQ_DUPL_ID": "k" * 100_000})
    core.send("x", properties={"_AMQ_DUPL_ID": "k" * 100_000})
    core.send("x", properties={"_AMQ_DUPL_ID": 7})
    assert (q.count, len(q.schedule)) == (4, 1)
    assert len(taken(core.consumer(q, 10))) == 3
    core.tick(1000)


def test_a_message_that_cannot_be_decoded_harms_nobody() -> None:
    """Well formed in front, rubbish in the application properties: selectors do not match, dead letters still move."""
    core = Core()
    core.broker.catalogue.put_settings("q", {"DLA": "dead"})
    q = core.queue()
    core.queue("dead")
    route = core.broker.catalogue.route("q", None)
    assert route is not None
    rubbish = b"\x00\x53\x73\xc0\x01\x00" + b"\x00\x53\x74\xc1\x05\x02\xa1\x7f\x00\x00" + b"\x00\x53\x77\x40"
    publish(core.broker, route, rubbish, core, 1)
    assert taken(core.consumer(q, 1, "a = 1")) == []
    consumer = core.consumer(q, 1)
    ((_, message),) = outlet(consumer).take()
    q.outcomes.reject(consumer, [message])
    assert core.broker.catalogue.queues["dead"].count == 1
    for bad in (
        b"\x00",
        b"\x00\x53\x70\xc0",
        b"\x00\x53\x70\xd0\xff\xff\xff\xff\x00",
        b"rubbish",
        b"\x00\x53\x73\xc0\x09",
    ):
        with pytest.raises(AmqpError):
            publish(core.broker, route, bad, core, 2)
    assert q.count == 0


def test_an_unusual_encoding_of_the_header_is_understood() -> None:
    core = Core()
    q = core.queue()
    route = core.broker.catalogue.route("q", None)
    assert route is not None
    long_descriptor = (
        b"\x00\x80" + (0x70).to_bytes(8, "big") + b"\xd0" + b"\x00\x00\x00\x07\x00\x00\x00\x02" + b"\x41\x50\x07"
    )
    publish(core.broker, route, long_descriptor + b"\x00\x53\x77\xa1\x01x", core, 1)
    ((payload, _),) = outlet(core.consumer(q, 1)).take()
    message = decoded(payload)
    assert (message.durable, message.priority, message.body) == (True, 7, "x")


def test_the_window_of_duplicates_is_bounded() -> None:
    core = Core()
    core.broker.catalogue.put_settings("q", {"iDCacheSize": 3})
    q = core.queue()
    for key in ("a", "b", "c", "d", "b", "a"):
        core.send(key, properties={"_AMQ_DUPL_ID": key})
    assert q.count == 5, "b is remembered, a is not any more"
