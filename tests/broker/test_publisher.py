"""What a message may look like, and what is recognised as a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enmasse.amqp.codec.errors import AmqpError
from enmasse.identity import senders
from enmasse.identity.principal import Principal
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


SENDERS = {
    "users": [senders.of_user(Principal(name)) for name in ("alice", "bob")],
    "a user and nobody": [senders.of_user(Principal("alice")), b""],
    "operators": [senders.OPERATOR, senders.OPERATOR],  # known by user-id
    "services": [senders.SERVICE, senders.SERVICE],  # known by the id
}


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("kind", SENDERS)
def test_ids_count_for_their_sender_alone(tmp_path: Path, kind: str, durable: bool) -> None:
    """Another's id is another one, and another's flood pushes out none."""
    core = Core(tmp_path if durable else None)
    core.broker.catalogue.put_settings("q", {"iDCacheSize": 3})
    q = core.queue(durable=durable)

    def send(who: int, id: str) -> None:
        if kind == "services":
            id = senders.id_for(Principal(("alice", "bob")[who]), id)
        named: dict[str, Any] = {"user_id": (b"alice", b"bob")[who]} if kind == "operators" else {}
        core.send("x", sender=SENDERS[kind][who], durable=durable, properties={"_AMQ_DUPL_ID": id}, **named)
        core.commit()

    for who in (0, 1, 0, 1):
        send(who, "same")
    assert q.count == 2
    for n in range(4):
        send(1, str(n))
    send(0, "same")
    assert q.count == 6, "that of the first sender is known as before"
    send(1, "same")
    assert q.count == 7, "the second has had three newer ones"


@pytest.mark.parametrize("properties", [{}, {"a": 1}])
def test_an_id_of_a_service_is_not_passed_on(properties: dict[str, Any]) -> None:
    core = Core()
    q = core.queue()
    marked = {**properties, "_AMQ_DUPL_ID": senders.new_id(Principal("alice"))}
    for sender in (senders.SERVICE, senders.of_user(Principal("alice")), b""):
        core.send("x", sender=sender, properties=marked)
    found = [decoded(payload) for payload, _ in outlet(core.consumer(q, 3)).take()]
    assert [each.properties for each in found] == [properties or None, marked, marked]
    assert [each.body for each in found] == ["x"] * 3
