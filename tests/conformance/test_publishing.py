"""PUBLISH in both directions: the exchanges of each QoS, also over reconnections, ids, order, limits, properties."""

from __future__ import annotations

import time

import pytest

from enmasse.testing import wait_for
from tests.conformance.conftest import Server
from tests.conformance.marks import clauses
from tests.conformance.test_sessions import Name, kept
from tests.conformance.wire import (
    ALIAS,
    ALIAS_MAXIMUM,
    CONNACK,
    CONTENT_TYPE,
    CORRELATION,
    DISCONNECT,
    EXPIRY,
    PACKET_MAXIMUM,
    PAYLOAD_FORMAT,
    PING,
    PINGRESP,
    PROBLEM_INFO,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    REASON,
    RECEIVE_MAXIMUM,
    RESPONSE_TOPIC,
    SESSION_EXPIRY,
    SUBACK,
    UNSUBACK,
    USER,
    Packet,
    Properties,
    Raw,
    ack,
    connect,
    disconnect,
    publish,
    subscribe,
    unsubscribe,
)

BOTH_EXCHANGES = "2.3.1-4 2.3.1-5 2.3.1-6 3.3.1-2 3.3.4-1 4.3.1-1 4.3.2-1 4.3.2-2 4.3.3-1 4.3.3-2"
BOTH_EXCHANGES_5 = """2.2.1-2 2.2.1-4 2.2.1-5 3.3.1-2 3.3.4-1 4.3.1-1 4.3.2-1 4.3.2-2 4.3.2-4 4.3.3-1 4.3.3-2 4.3.3-4
    4.3.3-8 4.3.3-11 3.6.2-1 3.7.2-1 3.4.2-1 3.5.2-1"""
WITHOUT_RECEIVERS = 0x10
REFUSED = "orders"
"""A queue: a retained message to it is refused."""


def session(server: Server, version: int, client: str, *, present: int = 1) -> Raw:
    """A client with a session that is kept comes (back)."""
    raw = server.raw(version)
    assert raw.open(client, clean=False, props=kept(version)).present == present
    return raw


def ended(server: Server, version: int, client: str) -> None:
    server.opened(version, client, clean=True).leave()


@clauses(v3=BOTH_EXCHANGES, v5=BOTH_EXCHANGES_5)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_packets_of_an_exchange(server: Server, version: int, unique: Name, qos: int) -> None:
    topic = unique("t")
    sender, receiver = server.opened(version, unique("c")), server.opened(version, unique("c"))
    receiver.subscribe((topic, qos))
    for pid in (1, 65535, 1, 300):
        sender.send(publish(topic, b"%d" % pid, version, qos=qos, pid=pid))
        if qos == 1:
            done = sender.expect(PUBACK)
            assert (done.pid, done.code) == (pid, 0)
        elif qos == 2:
            done = sender.expect(PUBREC)
            assert (done.pid, done.code) == (pid, 0)
            sender.send(ack(PUBREL, pid))
            done = sender.expect(PUBCOMP)
            assert (done.pid, done.code) == (pid, 0)
        got = receiver.message()
        assert (got.topic, got.payload, got.qos, got.dup) == (topic, b"%d" % pid, qos, False)
        assert bool(got.pid) == bool(qos)


@clauses(v3="2.3.1-4 4.6.0-5 4.6.0-6", v5="2.2.1-4 4.3.2-1 4.3.3-1 4.6.0-5 4.6.0-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_order_and_ids_of_many(server: Server, version: int, unique: Name, qos: int) -> None:
    """Two subscribers, each with its own pace of acknowledgement; ids in flight are not used twice."""
    topic, count = unique("t"), 60
    sender = server.opened(version, unique("c"))
    receivers = [server.opened(version, unique("c")) for _ in range(2)]
    for receiver in receivers:
        receiver.subscribe((topic, qos))
    for number in range(count):
        sender.publish(topic, b"%d" % number, qos=qos)
    for receiver, window in zip(receivers, (1, 7), strict=True):
        got: list[bytes] = []
        held: list[Packet] = []
        while len(got) < count:
            one = receiver.expect(PUBLISH)
            assert one.pid not in {other.pid for other in held} or not qos
            got.append(one.payload)
            held.append(one)
            if qos and (len(held) == window or len(got) == count):
                for packet in held:
                    receiver.send(ack(PUBACK if qos == 1 else PUBREC, packet.pid))
                for packet in held if qos == 2 else []:
                    assert receiver.expect(PUBREL).pid == packet.pid
                    receiver.send(ack(PUBCOMP, packet.pid))
                held.clear()
        assert got == [b"%d" % number for number in range(count)]


@clauses(v3="3.3.1-3 4.3.2-2", v5="3.3.1-3 4.3.2-5")
def test_the_same_id_after_puback_is_a_new_message(server: Server, version: int, unique: Name) -> None:
    topic = unique("t")
    sender, receiver = server.opened(version, unique("c")), server.opened(version, unique("c"))
    receiver.subscribe(topic)
    for dup in (False, True, True):
        sender.send(publish(topic, b"x", version, qos=1, pid=9, dup=dup))
        assert sender.expect(PUBACK).pid == 9
        assert not receiver.message().dup


@clauses(v3="4.3.3-2 3.3.1-3", v5="4.3.3-10 4.3.3-11 4.3.3-12 3.3.1-3")
@pytest.mark.parametrize("again", ["connected", "reconnected"])
def test_qos_2_is_delivered_once_until_pubrel(server: Server, version: int, unique: Name, again: str) -> None:
    client, topic = unique("c"), unique("t")
    receiver = server.opened(version, unique("c"))
    receiver.subscribe(topic)
    sender = session(server, version, client, present=0)
    for payload in (b"first", b"second"):
        sender.send(publish(topic, payload, version, qos=2, pid=5))
        assert sender.expect(PUBREC).pid == 5
        for _ in range(2):
            if again == "reconnected":
                sender.cut()
                sender = session(server, version, client)
            sender.send(publish(topic, payload, version, qos=2, pid=5, dup=True))
            assert sender.expect(PUBREC).pid == 5
        sender.send(ack(PUBREL, 5))
        assert sender.expect(PUBCOMP).pid == 5
    sender.publish(topic, b"marker")
    got = [receiver.message() for _ in range(3)]
    assert [(one.payload, one.dup) for one in got] == [(b"first", False), (b"second", False), (b"marker", False)]
    sender.cut()
    ended(server, version, client)


@clauses(v3="3.3.5-2", v5="4.3.3-9 3.4.2-1 3.5.2-1")
def test_a_message_that_is_refused(server: Server, version: int, unique: Name) -> None:
    """MQTT 5 gets the reason and goes on, the id is free; 3.1.1 has no way to say it and is disconnected."""
    topic = unique("t")
    receiver = server.opened(version, unique("c"))
    receiver.subscribe(topic)
    for qos in (1, 2):
        sender = server.opened(version, unique("c"))
        sender.send(publish(REFUSED, b"x", version, qos=qos, pid=4, retain=True))
        if version == 4:
            sender.refused()
            continue
        said = sender.expect(PUBACK if qos == 1 else PUBREC)
        assert (said.pid, said.code) == (4, 0x83) and said.get(REASON)
        sender.send(publish(topic, b"qos %d" % qos, version, qos=qos, pid=4))
        assert sender.expect(PUBACK if qos == 1 else PUBREC).code == 0
        assert receiver.message().payload == b"qos %d" % qos


@clauses(v3="3.3.1-1 4.4.0-1 2.3.1-4 4.6.0-1", v5="3.3.1-1 4.4.0-1 4.3.2-3 4.6.0-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_not_acknowledged_comes_again(server: Server, version: int, unique: Name, qos: int) -> None:
    """With DUP, its id, in its order, before what is new; what was acknowledged does not come again."""
    client, topic = unique("c"), unique("t")
    receiver, sender = session(server, version, client, present=0), server.opened(version, unique("c"))
    receiver.subscribe(topic)
    for number in range(5):
        sender.publish(topic, b"%d" % number, qos=qos)
    sent = [receiver.expect(PUBLISH) for _ in range(5)]
    for one in (sent[0], sent[3]):
        receiver.send(ack(PUBACK if qos == 1 else PUBREC, one.pid))
        if qos == 2:
            assert receiver.expect(PUBREL).pid == one.pid
            receiver.send(ack(PUBCOMP, one.pid))
    receiver.ping()
    receiver.cut()
    sender.publish(topic, b"new", qos=qos)
    again = session(server, version, client)
    got = [again.message() for _ in range(4)]
    assert [(m.payload, m.pid, m.dup) for m in got[:3]] == [(sent[n].payload, sent[n].pid, True) for n in (1, 2, 4)]
    assert (got[3].payload, got[3].dup) == (b"new", False)
    again.leave()
    last = session(server, version, client)
    sender.publish(topic, b"marker", qos=qos)
    assert last.message().payload == b"marker"
    last.cut()
    ended(server, version, client)


@clauses(v3="4.3.3-1 4.4.0-1", v5="4.3.3-3 4.3.3-5 4.3.3-6 4.4.0-1")
def test_after_pubrel_only_pubrel_comes_again(server: Server, version: int, unique: Name) -> None:
    client, topic = unique("c"), unique("t")
    receiver, sender = session(server, version, client, present=0), server.opened(version, unique("c"))
    receiver.subscribe(topic)
    sender.publish(topic, b"once", qos=2)
    first = receiver.expect(PUBLISH)
    receiver.cut()
    receiver = session(server, version, client)
    second = receiver.expect(PUBLISH)
    assert (second.pid, second.dup, second.payload) == (first.pid, True, b"once")
    receiver.send(ack(PUBREC, first.pid))
    assert receiver.expect(PUBREL).pid == first.pid
    for _ in range(2):
        receiver.cut()
        receiver = session(server, version, client)
        third = receiver.next()
        assert third is not None and (third.kind, third.pid) == (PUBREL, first.pid), third
    receiver.send(ack(PUBCOMP, first.pid))
    receiver.ping()
    receiver.leave()
    receiver = session(server, version, client)
    sender.publish(topic, b"marker")
    found = receiver.next()
    assert found is not None and (found.kind, found.payload) == (PUBLISH, b"marker"), found
    receiver.cut()
    ended(server, version, client)


@clauses(v3="4.6.0-2 4.6.0-3 4.6.0-4", v5="4.6.0-2 4.6.0-3 4.6.0-4")
def test_acknowledgements_are_in_order(server: Server, version: int, unique: Name) -> None:
    """Of messages to one topic and of messages that go different ways."""
    topic = unique("t")
    sender, receiver = server.opened(version, unique("c")), server.opened(version, unique("c"))
    receiver.subscribe(topic)
    topics = [topic, "orders", topic, "news/x", topic]
    sender.send(*[publish(name, b"x", version, qos=1, pid=10 + i) for i, name in enumerate(topics)])
    assert [sender.expect(PUBACK).pid for _ in topics] == [10 + i for i in range(len(topics))]
    sender.send(*[publish(name, b"y", version, qos=2, pid=20 + i) for i, name in enumerate(topics)])
    assert [sender.expect(PUBREC).pid for _ in topics] == [20 + i for i in range(len(topics))]
    sender.send(*[ack(PUBREL, 20 + i) for i in range(len(topics))])
    assert sorted(sender.expect(PUBCOMP).pid for _ in topics) == [20 + i for i in range(len(topics))]
    ours = [receiver.expect(PUBLISH) for _ in range(6)]
    twos = [one for one in ours if one.qos == 2]
    receiver.send(*[ack(PUBREC, one.pid) for one in reversed(twos)])
    assert [receiver.expect(PUBREL).pid for _ in twos] == [one.pid for one in reversed(twos)]
    collector = server.opened(version, unique("c"))
    collector.subscribe(("orders", 1))
    assert {collector.message().payload for _ in range(2)} == {b"x", b"y"}


@clauses(v5="3.3.4-9 3.3.4-10 4.9.0-1 4.9.0-2 4.9.0-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_the_clients_receive_maximum(server: Server, unique: Name, qos: int) -> None:
    topic = unique("t")
    sender, receiver = server.opened(5, unique("c")), server.opened(5, unique("c"), props=[(RECEIVE_MAXIMUM, 2)])
    receiver.subscribe((topic, qos))
    for number in range(4):
        sender.publish(topic, b"%d" % number, qos=qos)
    held = [receiver.expect(PUBLISH) for _ in range(2)]
    assert [one.payload for one in held] == [b"0", b"1"]
    receiver.subscribe(unique("t"))  # everything else is answered
    receiver.ping()
    assert not receiver.aside
    receiver.send(ack(PUBACK, held[0].pid) if qos == 1 else ack(PUBREC, held[0].pid))
    if qos == 2:
        assert receiver.expect(PUBREL).pid == held[0].pid
        receiver.ping()
        assert not receiver.aside
        receiver.send(ack(PUBCOMP, held[0].pid))
    assert receiver.expect(PUBLISH).payload == b"2"
    receiver.send(ack(PUBACK if qos == 1 else PUBREC, held[1].pid, 0x80))  # which frees a place as well
    assert receiver.expect(PUBLISH).payload == b"3"


@clauses(v5="3.3.4-7")
def test_more_than_the_servers_receive_maximum(server: Server, unique: Name) -> None:
    topic, raw = unique("t"), server.raw(5)
    limit = raw.open(unique("c")).get(RECEIVE_MAXIMUM) or 65535
    raw.send(*[publish(topic, b"", 5, qos=2, pid=1 + number) for number in range(min(limit + 1, 65535))])
    if limit == 65535:
        return
    while (found := raw.expect_any(PUBREC, DISCONNECT)).kind == PUBREC:
        assert found.code in (0, WITHOUT_RECEIVERS)
    assert found.code == 0x93
    raw.refused()


@clauses(v5="3.1.2-24 3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_above_the_clients_packet_size(server: Server, unique: Name, qos: int) -> None:
    topic = unique("t")
    sender, receiver = server.opened(5, unique("c")), server.opened(5, unique("c"), props=[(PACKET_MAXIMUM, 200)])
    receiver.subscribe((topic, qos))
    for _ in range(3):
        sender.publish(topic, bytes(500), qos=qos)
        sender.publish(topic, b"marker", qos=qos)
        got = receiver.message()
        assert got.payload == b"marker" and got.size <= 200


@clauses(v5="3.4.2-2 3.5.2-2 3.7.2-2 3.9.2-1 3.11.2-1 3.14.2-3 3.1.2-24")
def test_reason_strings_fit_into_the_clients_packet_size(server: Server, unique: Name) -> None:
    small = server.opened(5, unique("c"), props=[(PACKET_MAXIMUM, 12)])
    small.send(
        publish(REFUSED, b"x", 5, qos=1, pid=1, retain=True), publish(REFUSED, b"x", 5, qos=2, pid=2, retain=True)
    )
    small.send(ack(PUBREL, 3), subscribe(4, [("orders/+/x", 1)], 5), unsubscribe(5, ["never"], 5))
    wanted = {PUBACK: 0x83, PUBREC: 0x83, PUBCOMP: 0x92}
    for _ in range(5):
        found = small.expect_any(PUBACK, PUBREC, PUBCOMP, SUBACK, UNSUBACK)
        assert found.size <= 12 and found.get(REASON) is None, found
        assert found.code == wanted.get(found.kind, 0)
    small.send(publish("a/#", b"", 5))
    said = small.expect(DISCONNECT)
    assert said.size <= 12


@clauses(v5="3.2.2-19")
def test_the_reason_string_of_connack_fits_too(server: Server) -> None:
    raw = server.raw(5)
    raw.send(connect("c", 5, props=[(PACKET_MAXIMUM, 5), (0x15, "none")]))
    found = raw.next()
    assert found is None or (found.kind, found.size) == (CONNACK, 5)


@clauses(v5="3.1.2-29")
def test_no_problem_information(server: Server, unique: Name) -> None:
    raw = server.opened(5, unique("c"), props=[(PROBLEM_INFO, 0)])
    raw.send(publish(REFUSED, b"x", 5, qos=1, pid=1, retain=True), subscribe(4, [("orders/+/x", 1)], 5))
    for _ in range(2):
        found = raw.expect_any(PUBACK, SUBACK)
        assert found.get(REASON) is None and not found.all(USER)
        assert max(found.code, *found.codes, 0) >= 0x80


@clauses(v5="3.3.2-7 3.3.2-12")
def test_the_clients_topic_aliases(server: Server, unique: Name) -> None:
    topic, receiver, raw = unique("t"), server.opened(5, unique("c")), server.raw(5)
    receiver.subscribe((topic + "/#", 0))
    limit = raw.open(unique("c")).get(ALIAS_MAXIMUM) or 0
    assert limit > 0
    for alias in (1, limit):
        raw.send(publish(f"{topic}/{alias}", b"named", 5, props=[(ALIAS, alias)]))
    for alias in (limit, 1):
        raw.send(publish("", b"alias", 5, props=[(ALIAS, alias)]))
    raw.send(publish(f"{topic}/other", b"named", 5, props=[(ALIAS, 1)]), publish("", b"alias", 5, props=[(ALIAS, 1)]))
    got = [receiver.message() for _ in range(6)]
    assert [one.topic for one in got] == [f"{topic}/{n}" for n in (1, limit, limit, 1, "other", "other")]
    assert not any(one.all(ALIAS) for one in got)  # of this connection, which has no alias maximum
    again = server.opened(5, unique("c"))
    again.send(publish("", b"", 5, props=[(ALIAS, 1)]))
    again.refused(0x82, 0x94)


@clauses(v5="3.1.2-26 3.1.2-27 3.3.2-11")
@pytest.mark.parametrize("limit", [0, 2])
def test_the_servers_topic_aliases(server: Server, unique: Name, limit: int) -> None:
    topic, sender = unique("t"), server.opened(5, unique("c"))
    receiver = server.opened(5, unique("c"), props=[(ALIAS_MAXIMUM, limit)])
    receiver.subscribe((topic + "/#", 0))
    known: dict[int, str] = {}
    for number in (1, 2, 3, 1, 2, 3):
        sender.publish(f"{topic}/{number}", b"", qos=0)
        got = receiver.message()
        alias = got.get(ALIAS)
        assert alias is None or 1 <= alias <= limit
        if alias and got.topic:
            known[alias] = got.topic
        assert (got.topic or known[alias]) == f"{topic}/{number}"


PROPERTIES: Properties = [
    (PAYLOAD_FORMAT, 1),
    (CONTENT_TYPE, "application/ü"),
    (RESPONSE_TOPIC, "answers/here"),
    (CORRELATION, b"\x00\xff raw"),
    (USER, ("b", "1")),
    (USER, ("a", "2")),
    (USER, ("b", "3")),
    (USER, ("", "")),
    (USER, ("ü", "€")),
]


@clauses(v5="3.3.2-4 3.3.2-15 3.3.2-16 3.3.2-17 3.3.2-18 3.3.2-20 2.2.2-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_properties_are_forwarded(server: Server, unique: Name, qos: int) -> None:
    topic = unique("t")
    sender, receiver = server.opened(5, unique("c")), server.opened(5, unique("c"))
    receiver.subscribe((topic, qos))
    sender.publish(topic, "grün".encode(), qos=qos, props=PROPERTIES)
    sender.publish(topic, b"plain", qos=qos)
    got = receiver.message()
    assert got.all(USER) == [value for name, value in PROPERTIES if name == USER]
    for name in (PAYLOAD_FORMAT, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION):
        assert got.all(name) == [value for found, value in PROPERTIES if found == name]
    plain = receiver.message()
    assert plain.payload == b"plain" and plain.properties == []


@clauses(v5="3.3.2-5 3.3.2-6")
def test_expiry_of_a_message_that_waits(server: Server, unique: Name) -> None:
    client, topic = unique("c"), unique("t")
    away = session(server, 5, client, present=0)
    away.subscribe(topic)
    away.leave()
    sender = server.opened(5, unique("c"))
    for payload, seconds in ((b"short", 1), (b"long", 1000)):
        sender.publish(topic, payload, props=[(EXPIRY, seconds)])
    began = time.monotonic()
    sender.publish(topic, b"without")
    wait_for("the short one to expire", lambda: time.monotonic() - began > 2.1)
    back = session(server, 5, client)
    got = [back.message() for _ in range(2)]
    assert [one.payload for one in got] == [b"long", b"without"]
    left = got[0].get(EXPIRY)
    assert left is not None and 1000 - (time.monotonic() - began) - 2 <= left <= 998
    assert got[1].get(EXPIRY) is None
    back.cut()
    ended(server, 5, client)


@clauses(v5="4.3.3-7 4.3.3-13")
def test_a_message_that_was_sent_does_not_expire(server: Server, unique: Name) -> None:
    """Neither while it waits for PUBREC, nor for PUBREL."""
    client, topic = unique("c"), unique("t")
    receiver, sender = session(server, 5, client, present=0), server.opened(5, unique("c"))
    receiver.subscribe(topic)
    began = time.monotonic()
    sender.send(publish(topic, b"x", 5, qos=2, pid=1, props=[(EXPIRY, 1)]))
    sender.expect(PUBREC)
    first = receiver.expect(PUBLISH)
    receiver.cut()
    wait_for("the message to expire", lambda: time.monotonic() - began > 2.1)
    sender.send(ack(PUBREL, 1))
    assert sender.expect(PUBCOMP).code == 0
    receiver = session(server, 5, client)
    again = receiver.expect(PUBLISH)
    assert (again.pid, again.dup, again.payload) == (first.pid, True, b"x")
    receiver.send(ack(PUBREC, first.pid))
    assert receiver.expect(PUBREL).pid == first.pid
    receiver.send(ack(PUBCOMP, first.pid))
    receiver.ping()
    receiver.cut()
    ended(server, 5, client)


@clauses(v5="4.4.0-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_client_refuses_does_not_come_again(server: Server, unique: Name, qos: int) -> None:
    client, topic = unique("c"), unique("t")
    receiver, sender = session(server, 5, client, present=0), server.opened(5, unique("c"))
    receiver.subscribe((topic, qos))
    sender.publish(topic, b"refused", qos=qos)
    receiver.send(ack(PUBACK if qos == 1 else PUBREC, receiver.expect(PUBLISH).pid, 0x97))
    receiver.ping()
    receiver.cut()
    receiver = session(server, 5, client)
    sender.publish(topic, b"marker", qos=qos)
    assert receiver.message().payload == b"marker"
    receiver.cut()
    ended(server, 5, client)


LEVELS = [
    "\ufeffbom",
    "ünïcode",
    "é",
    "e\u0301",
    "a b",
    " ",
    "dot.ted",
    "::",
    "%41",
    "A*b",
    "$",
    "🦆",
    "\u200b",
    "a\\b",
]


@clauses(v3="1.5.3-3 4.7.3-4 3.3.2-3", v5="1.5.4-3 4.7.3-4 3.3.2-3")
@pytest.mark.parametrize("level", LEVELS)
def test_topics_are_kept_as_they_are(server: Server, version: int, unique: Name, level: str) -> None:
    topic = f"{unique('t')}/{level}//x/"
    sender, receiver = server.opened(version, unique("c")), server.opened(version, unique("c"))
    receiver.subscribe(topic)
    sender.publish(topic, b"x")
    assert receiver.message().topic == topic
    receiver.subscribe((topic.partition("/")[0] + "/#", 1))
    sender.publish(topic + "y", b"y")
    assert receiver.message().topic == topic + "y"


@clauses(v3="3.3.4-1", v5="3.3.4-1")
@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 100_000])
def test_payloads_of_each_size(server: Server, version: int, unique: Name, size: int) -> None:
    topic = unique("t")
    sender, receiver = server.opened(version, unique("c")), server.opened(version, unique("c"))
    receiver.subscribe(topic)
    payload = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    for qos in (0, 1, 2):
        sender.publish(topic, payload, qos=qos)
        assert receiver.message().payload == payload


@clauses(v5="3.14.1-1")
def test_disconnect_may_have_a_reason_and_properties(server: Server, unique: Name) -> None:
    raw = server.opened(5, unique("c"), props=[(SESSION_EXPIRY, 5)])
    raw.send(disconnect(5, 0, [(SESSION_EXPIRY, 0), (REASON, "bye"), (USER, ("a", "b"))]))
    raw.refused()


def test_pipelined_packets_in_one_segment(server: Server, version: int, unique: Name) -> None:
    """CONNECT, SUBSCRIBE, PUBLISH, PINGREQ in one go: each is answered."""
    topic, raw = unique("t"), server.raw(version)
    raw.send(
        connect(unique("c"), version),
        subscribe(1, [(topic, 0)], version),
        publish(topic, b"x", version, qos=1, pid=2),
        PING,
    )
    assert raw.expect(CONNACK).code == 0
    assert {raw.expect_any(SUBACK, PUBACK, PINGRESP).kind for _ in range(3)} == {SUBACK, PUBACK, PINGRESP}
