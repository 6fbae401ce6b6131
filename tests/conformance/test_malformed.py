"""Packets that break a rule: the connection is closed, MQTT 5 is told why before, and other clients do not notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.conftest import Server
from tests.conformance.marks import clauses, marks
from tests.conformance.wire import (
    ALIAS,
    ALIAS_MAXIMUM,
    AUTH,
    AUTH_DATA,
    AUTH_METHOD,
    CONNACK,
    CONTENT_TYPE,
    CORRELATION,
    EXPIRY,
    PACKET_MAXIMUM,
    PAYLOAD_FORMAT,
    PING,
    PINGREQ,
    PINGRESP,
    PROBLEM_INFO,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    RECEIVE_MAXIMUM,
    RESPONSE_TOPIC,
    SESSION_EXPIRY,
    SUBACK,
    SUBSCRIBE,
    SUBSCRIPTION_ID,
    UNSUBACK,
    UNSUBSCRIBE,
    USER,
    WILL_DELAY,
    Will,
    ack,
    connect,
    disconnect,
    packet,
    publish,
    subscribe,
    text,
    unsubscribe,
    varint,
)

MALFORMED, PROTOCOL, TOPIC_INVALID, FILTER_INVALID, TOO_LARGE, ALIAS_INVALID = 0x81, 0x82, 0x90, 0x8F, 0x95, 0x94
FORMAT = (MALFORMED, PROTOCOL)
"""Where the specification leaves open which one it is, or servers disagree."""
STRINGS = {
    "latin-1": b"caf\xe9",
    "surrogate": b"a\xed\xa0\x80",
    "overlong": b"a\xc0\xaf",
    "cut": b"a\xe2\x82",
    "above U+10FFFF": b"a\xf4\x90\x80\x80",
}
NUL = b"a\x00b"


def raw_publish(version: int, props: bytes, topic: str = "t", payload: bytes = b"x") -> bytes:
    """A PUBLISH with QoS 0 whose property section is as given."""
    return packet(PUBLISH, 0, text(topic), props if version == 5 else b"", payload)


def with_properties(*entries: tuple[int, Any]) -> bytes:
    return publish("t", b"x", 5, props=list(entries))


def body(version: int) -> bytes:
    """What follows a packet id: no properties."""
    return b"\x00" if version == 5 else b""


def both() -> Iterator[Any]:
    """After an accepted CONNECT, in both versions."""

    def bad(name: str, build: Callable[[int], bytes], v3: str = "", v5: str = "", *codes: int) -> Iterator[Any]:
        for version, numbers in ((4, v3), (5, v5)):
            marked = marks(v3=numbers) if version == 4 else marks(v5=numbers)
            yield pytest.param(version, build(version), codes or FORMAT, id=f"v{version} {name}", marks=marked)

    for kind, name, number3, number5 in (
        (PUBACK, "PUBACK", "", ""),
        (PUBREC, "PUBREC", "", ""),
        (PUBCOMP, "PUBCOMP", "", ""),
        (PUBREL, "PUBREL", "3.6.1-1", "3.6.1-1"),
    ):
        flags = 0 if kind == PUBREL else 2
        yield from bad(
            f"{name} with flags {flags}",
            lambda v: packet(kind, flags, b"\x00\x01"),
            f"2.2.2-1 2.2.2-2 {number3}",
            f"2.1.3-1 {number5}",
        )
    yield from bad(
        "SUBSCRIBE with flags 0",
        lambda v: packet(SUBSCRIBE, 0, b"\x00\x01", body(v), text("a") + b"\x00"),
        "3.8.1-1 2.2.2-1 2.2.2-2",
        "3.8.1-1 2.1.3-1",
    )
    yield from bad(
        "UNSUBSCRIBE with flags 0",
        lambda v: packet(UNSUBSCRIBE, 0, b"\x00\x01", body(v), text("a")),
        "3.10.1-1 2.2.2-1 2.2.2-2",
        "3.10.1-1 2.1.3-1",
    )
    yield from bad("PINGREQ with flags 1", lambda v: packet(PINGREQ, 1), "2.2.2-1 2.2.2-2", "2.1.3-1")
    yield from bad("PINGREQ with a body", lambda v: packet(PINGREQ, 0, b"x"), "4.8.0-1", "4.13.1-1")
    yield from bad("DISCONNECT with flags 2", lambda v: packet(14, 2), "3.14.1-1 2.2.2-1 2.2.2-2", "3.14.1-1 2.1.3-1")
    yield from bad("type 0", lambda v: packet(0, 0), "4.8.0-1", "4.13.1-1 4.13.2-1")
    yield from bad("a second CONNECT", lambda v: connect("again", v), "3.1.0-2 4.8.0-1", "3.1.0-2", PROTOCOL)
    for kind, name in ((CONNACK, "CONNACK"), (PINGRESP, "PINGRESP"), (SUBACK, "SUBACK"), (UNSUBACK, "UNSUBACK")):
        content = {CONNACK: b"\x00\x00\x00", PINGRESP: b"", SUBACK: b"\x00\x01\x00\x00", UNSUBACK: b"\x00\x01\x00\x00"}
        yield from bad(f"{name} of a client", lambda v: packet(kind, 0, content[kind]), "4.8.0-1", "4.13.1-1")
    yield from bad(
        "remaining length of five bytes",
        lambda v: b"\x30\xff\xff\xff\xff\x01",
        "4.8.0-1",
        "4.13.1-1",
        *FORMAT,
        TOO_LARGE,
    )
    yield from bad("QoS 3", lambda v: packet(PUBLISH, 6, text("a"), b"\x00\x01", body(v)), "3.3.1-4", "3.3.1-4")
    yield from bad("PUBLISH with id 0", lambda v: publish("a", b"", v, qos=1, pid=0), "2.3.1-1", "2.2.1-3")
    yield from bad("SUBSCRIBE with id 0", lambda v: subscribe(0, [("a", 0)], v), "2.3.1-1", "2.2.1-3")
    yield from bad("UNSUBSCRIBE with id 0", lambda v: unsubscribe(0, ["a"], v), "2.3.1-1", "2.2.1-3")
    yield from bad("PUBLISH with DUP and QoS 0", lambda v: publish("a", b"", v, dup=True), "3.3.1-2", "3.3.1-2")
    yield from bad("PUBLISH without a topic", lambda v: packet(PUBLISH, 0), "3.3.2-1", "3.3.2-1")
    yield from bad(
        "PUBLISH whose topic is longer than the packet",
        lambda v: packet(PUBLISH, 0, b"\x00\x09abc"),
        "3.3.2-1",
        "3.3.2-1",
    )
    yield from bad("an empty topic", lambda v: publish("", b"", v), "4.7.3-1", "4.7.3-1", *FORMAT, TOPIC_INVALID)
    for topic in ("a/#", "a/+/b", "#", "a#"):
        yield from bad(
            f"topic {topic}",
            lambda v: publish(topic, b"", v),
            "3.3.2-2 4.7.1-1",
            "3.3.2-2 4.7.0-1",
            *FORMAT,
            TOPIC_INVALID,
        )
    for name, string in STRINGS.items():
        yield from bad(
            f"topic with {name}",
            lambda v: publish(string, b"", v),
            "1.5.3-1 3.3.2-1",
            "1.5.4-1 3.3.2-1",
            *FORMAT,
            TOPIC_INVALID,
        )
        yield from bad(
            f"filter with {name}",
            lambda v: subscribe(1, [(string, 0)], v),
            "1.5.3-1 3.8.3-1",
            "1.5.4-1 3.8.3-1",
            *FORMAT,
            FILTER_INVALID,
        )
        yield from bad(
            f"filter to remove with {name}",
            lambda v: unsubscribe(1, [string], v),
            "1.5.3-1 3.10.3-1",
            "1.5.4-1 3.10.3-1",
            *FORMAT,
            FILTER_INVALID,
        )
    yield from bad(
        "topic with U+0000",
        lambda v: publish(NUL, b"", v),
        "1.5.3-2 4.7.3-2",
        "1.5.4-2 4.7.3-2",
        *FORMAT,
        TOPIC_INVALID,
    )
    yield from bad(
        "filter with U+0000",
        lambda v: subscribe(1, [(NUL, 0)], v),
        "1.5.3-2 4.7.3-2",
        "1.5.4-2 4.7.3-2",
        *FORMAT,
        FILTER_INVALID,
    )
    yield from bad("SUBSCRIBE without a filter", lambda v: subscribe(1, [], v), "3.8.3-3", "3.8.3-2")
    yield from bad("UNSUBSCRIBE without a filter", lambda v: unsubscribe(1, [], v), "3.10.3-2", "3.10.3-2")
    yield from bad("SUBSCRIBE with QoS 3", lambda v: subscribe(1, [("a", 3)], v), "3.8.3-4", "3.8.3-5")
    yield from bad("SUBSCRIBE with reserved bits", lambda v: subscribe(1, [("a", 0x40)], v), "3.8.3-4", "3.8.3-5")
    yield from bad(
        "SUBSCRIBE without options",
        lambda v: packet(SUBSCRIBE, 2, b"\x00\x01", body(v), text("a")),
        "3.8.3-3",
        "3.8.3-2",
    )
    yield from bad("PUBACK cut short", lambda v: packet(PUBACK, 0, b"\x00"), "4.8.0-1", "4.13.1-1")


def version_5() -> Iterator[Any]:
    def bad(name: str, data: bytes, numbers: str, *codes: int) -> Any:
        return pytest.param(5, data, codes or FORMAT, id=f"v5 {name}", marks=marks(v5=numbers))

    yield bad("length of properties in too many bytes", raw_publish(5, b"\x80\x00"), "1.5.5-1")
    yield bad("length of properties beyond the packet", raw_publish(5, b"\x20", payload=b""), "2.2.2-1")
    yield bad("no length of properties", packet(PUBLISH, 0, text("t")), "2.2.2-1")
    yield bad("an unknown property", raw_publish(5, b"\x02\x7f\x00"), "4.13.1-1")
    yield bad("a property of another packet", with_properties((SESSION_EXPIRY, 1)), "4.13.1-1")
    yield bad("a property twice", with_properties((EXPIRY, 1), (EXPIRY, 2)), "4.13.1-1", PROTOCOL)
    yield bad("payload format 2", with_properties((PAYLOAD_FORMAT, 2)), "4.13.1-1")
    yield bad("topic alias 0", with_properties((ALIAS, 0)), "3.3.2-8", ALIAS_INVALID)
    yield bad("topic alias 65535", with_properties((ALIAS, 65535)), "3.2.2-17 3.3.2-9", ALIAS_INVALID)
    yield bad(
        "an alias that stands for nothing", publish("", b"x", 5, props=[(ALIAS, 1)]), "3.3.2-7", PROTOCOL, ALIAS_INVALID
    )
    yield bad("subscription identifier in PUBLISH", with_properties((SUBSCRIPTION_ID, 1)), "3.3.4-6", PROTOCOL)
    yield bad("subscription identifier 0", subscribe(1, [("a", 0)], 5, [(SUBSCRIPTION_ID, 0)]), "4.13.1-1", PROTOCOL)
    yield bad(
        "response topic with a wildcard", with_properties((RESPONSE_TOPIC, "a/#")), "3.3.2-14", *FORMAT, TOPIC_INVALID
    )
    for name, string in STRINGS.items():
        yield bad(f"response topic with {name}", with_properties((RESPONSE_TOPIC, string)), "3.3.2-13", *FORMAT, 0x90)
        yield bad(f"content type with {name}", with_properties((CONTENT_TYPE, string)), "3.3.2-19")
        yield bad(f"user property whose name has {name}", with_properties((USER, (string, "x"))), "1.5.7-1")
        yield bad(f"user property whose value has {name}", with_properties((USER, ("x", string))), "1.5.7-1")
    yield bad("user property with U+0000", with_properties((USER, ("x", NUL))), "1.5.4-2 1.5.7-1")
    yield bad("retain handling 3", subscribe(1, [("a", 0x30)], 5), "3.8.3-5")
    yield bad("reserved option bit 7", subscribe(1, [("a", 0x80)], 5), "3.8.3-5")
    yield bad("No Local on a shared subscription", subscribe(1, [("$share/g/a", 4)], 5), "3.8.3-4", PROTOCOL)
    for kind, name, number in ((PUBACK, "PUBACK", ""), (PUBREC, "PUBREC", ""), (PUBREL, "PUBREL", "3.6.2-1")):
        yield bad(f"{name} with reason code 0x55", ack(kind, 1, 0x55), f"4.13.1-1 {number}")
    yield bad("DISCONNECT with reason code 0x55", disconnect(5, 0x55), "4.13.1-1")
    yield bad(
        "DISCONNECT that begins to keep a session",
        disconnect(5, 0, [(SESSION_EXPIRY, 9)]),
        "4.13.1-1",
        PROTOCOL,
    )
    yield bad("AUTH without a method", packet(AUTH, 0, b"\x18\x00"), "4.12.0-7", PROTOCOL)
    yield bad("AUTH with flags 1", packet(AUTH, 1, b"\x18\x00"), "3.15.1-1")
    yield bad("AUTH with reason code 0x55", packet(AUTH, 0, b"\x55\x00"), "3.15.2-1")


@pytest.mark.parametrize(("version", "data", "codes"), [*both(), *version_5()])
def test_a_packet_that_breaks_a_rule(
    server: Server, unique: Callable[[str], str], version: int, data: bytes, codes: tuple[int, ...]
) -> None:
    other, raw = server.raw(version), server.raw(version)
    other.open(unique("c"))
    raw.open(unique("c"))
    raw.send(data)
    raw.refused(*codes)
    other.ping()


def test_type_15_is_of_version_5_only(server: Server, unique: Callable[[str], str]) -> None:
    raw = server.raw(4)
    raw.open(unique("c"))
    raw.send(packet(AUTH, 0))
    raw.refused()


def connects() -> Iterator[Any]:
    """CONNECTs that are refused: without a CONNACK in 3.1.1 (3.1.4-1), with one of the codes or none in 5."""

    def bad(name: str, build: Callable[[int], bytes], v3: str = "", v5: str = "", *codes: int) -> Iterator[Any]:
        for version, numbers in ((4, v3), (5, v5)):
            marked = marks(v3=f"3.1.4-1 3.2.2-6 {numbers}") if version == 4 else marks(v5=f"3.1.4-1 {numbers}")
            yield pytest.param(version, build(version), codes or FORMAT, id=f"v{version} {name}", marks=marked)

    will = Will("w")
    yield from bad("PUBLISH first", lambda v: publish("a", b"", v), "3.1.0-1", "3.1.0-1")
    yield from bad("PINGREQ first", lambda v: PING, "3.1.0-1", "3.1.0-1 3.14.0-1")
    yield from bad("HTTP", lambda v: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "3.1.0-1", "3.1.0-1")
    yield from bad("protocol name", lambda v: connect("c", v, name="MQTX"), "3.1.2-1", "3.1.2-1", *FORMAT, 0x84)
    yield from bad("reserved flag", lambda v: connect("c", v, flags=1), "3.1.2-3", "3.1.2-3")
    yield from bad("flags of the header", lambda v: b"\x11" + connect("c", v)[1:], "2.2.2-2", "2.1.3-1")
    yield from bad("will QoS without a will", lambda v: connect("c", v, flags=8), "3.1.2-11 3.1.2-13", "3.1.2-11")
    yield from bad("will retain without a will", lambda v: connect("c", v, flags=32), "3.1.2-11 3.1.2-15", "3.1.2-13")
    yield from bad("will QoS 3", lambda v: connect("c", v, will=Will("w", qos=3)), "3.1.2-14", "3.1.2-12")
    yield from bad("a will flag without a will", lambda v: connect("c", v, flags=4), "3.1.2-9", "3.1.2-9")
    yield from bad("a will without its flag", lambda v: connect("c", v, will=will, flags=4), "3.1.2-11", "3.1.4-1")
    yield from bad("a user name flag without a user name", lambda v: connect("c", v, flags=128), "3.1.2-19", "3.1.2-17")
    yield from bad(
        "a user name without its flag", lambda v: connect("c", v, user="u", flags=128), "3.1.2-18", "3.1.2-16"
    )
    yield from bad(
        "a password flag without a password",
        lambda v: connect("c", v, user="u", flags=64),
        "3.1.2-21",
        "3.1.2-19",
    )
    yield from bad(
        "a password without its flag",
        lambda v: connect("c", v, user="u", password=b"p", flags=64),
        "3.1.2-20",
        "3.1.2-18",
    )
    yield from bad(
        "no client id",
        lambda v: connect("c", v)[:1] + varint(len(connect("c", v)) - 5) + connect("c", v)[2:-3],
        "3.1.3-3",
        "3.1.3-3",
    )
    for name, string in STRINGS.items():
        yield from bad(
            f"client id with {name}",
            lambda v: connect(string, v),
            "3.1.3-4 1.5.3-1",
            "3.1.3-4 1.5.4-1",
            *FORMAT,
            0x85,
        )
        yield from bad(
            f"will topic with {name}",
            lambda v: connect("c", v, will=Will(string)),
            "3.1.3-10 1.5.3-1",
            "3.1.3-11 1.5.4-1",
            *FORMAT,
            TOPIC_INVALID,
        )
        yield from bad(
            f"user name with {name}",
            lambda v: connect("c", v, user=string),
            "3.1.3-11 1.5.3-1",
            "3.1.3-12 1.5.4-1",
        )
    yield from bad("client id with U+0000", lambda v: connect(NUL, v), "1.5.3-2", "1.5.4-2", *FORMAT, 0x85)
    yield from bad(
        "will topic with a wildcard",
        lambda v: connect("c", v, will=Will("a/#")),
        "4.7.1-1",
        "4.7.0-1",
        *FORMAT,
        TOPIC_INVALID,
    )
    yield from bad("bytes after the payload", lambda v: _longer(connect("c", v)), "3.1.3-1", "3.1.3-1")


def _longer(data: bytes) -> bytes:
    return data[:1] + varint(len(data) - 1) + data[2:] + b"x"


def connects_5() -> Iterator[Any]:
    def bad(name: str, data: bytes, *codes: int, numbers: str = "") -> Any:
        return pytest.param(5, data, codes or FORMAT, id=f"v5 {name}", marks=marks(v5=f"3.1.4-1 {numbers}"))

    def props(*entries: tuple[int, Any]) -> bytes:
        return connect("c", 5, props=list(entries))

    yield bad("receive maximum 0", props((RECEIVE_MAXIMUM, 0)), PROTOCOL)
    yield bad("maximum packet size 0", props((PACKET_MAXIMUM, 0)), PROTOCOL)
    yield bad("a property twice", props((ALIAS_MAXIMUM, 1), (ALIAS_MAXIMUM, 1)), PROTOCOL)
    yield bad("a property of PUBLISH", props((CORRELATION, b"x")))
    yield bad("problem information 2", props((PROBLEM_INFO, 2)), PROTOCOL)
    yield bad("authentication data without a method", props((AUTH_DATA, b"x")), PROTOCOL)
    yield bad("will property of CONNECT", connect("c", 5, will=Will("w", properties=[(SESSION_EXPIRY, 1)])))
    yield bad(
        "will delay twice", connect("c", 5, will=Will("w", properties=[(WILL_DELAY, 1), (WILL_DELAY, 1)])), PROTOCOL
    )
    yield bad(
        "an authentication method",
        props((AUTH_METHOD, "SCRAM-SHA-1")),
        0x8C,
        0x87,
        numbers="4.12.0-1 4.12.0-4 3.1.4-2 3.2.2-8 4.13.2-1",
    )


@pytest.mark.parametrize(("version", "data", "codes"), [*connects(), *connects_5()])
def test_a_connect_that_breaks_a_rule(server: Server, version: int, data: bytes, codes: tuple[int, ...]) -> None:
    raw = server.raw(version)
    raw.send(data)
    answer = raw.next()
    if answer is not None:
        assert version == 5 and answer.kind == CONNACK, answer
        assert answer.code in codes and answer.present == 0, answer
        assert raw.next() is None


@clauses(v3="3.1.2-2 3.2.2-4 3.2.2-5", v5="3.1.2-2 3.2.2-6 3.2.2-7")
@pytest.mark.parametrize("level", [0, 6, 127, 255])
def test_an_unknown_protocol_level(server: Server, level: int) -> None:
    raw = server.raw(4)
    raw.send(connect("c", 4, level=level))
    answer = raw.expect(CONNACK)
    assert (answer.code, answer.present) == (1, 0)
    raw.refused()


@clauses(v3="3.1.4-5", v5="3.1.4-6")
def test_after_a_refused_connect_nothing_is_processed(
    server: Server, version: int, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    watching, raw = server.raw(version), server.raw(version)
    watching.open(unique("c"))
    watching.subscribe(topic)
    raw.send(connect("c", version, flags=1), publish(topic, b"not", version), PING)
    while (answer := raw.next()) is not None:
        assert answer.kind == CONNACK and answer.code
    good = server.raw(version)
    good.open(unique("c"))
    good.publish(topic, b"marker")
    assert watching.message().payload == b"marker"


PLAIN = ["", "a#", "a/#/b", "#/a", "a/b#", "+a", "a+", "a/b+/c"]
SHARES = ["$share/", "$share/g", "$share/g/", "$share//a", "$share/a+/b", "$share/a#/b", "$share/g/a#"]


@clauses(v3="4.7.1-2 4.7.1-3 4.7.3-1", v5="4.7.1-1 4.7.1-2 4.7.3-1 4.8.2-1 4.8.2-2")
@pytest.mark.parametrize(
    ("version", "name"), [*((v, name) for v in (4, 5) for name in PLAIN), *((5, name) for name in SHARES)]
)
def test_a_filter_that_is_none(server: Server, version: int, unique: Callable[[str], str], name: str) -> None:
    raw = server.raw(version)
    raw.open(unique("c"))
    raw.send(subscribe(7, [(name, 1)], version))
    answer = raw.next()
    if answer is not None and answer.kind == SUBACK:
        assert answer.pid == 7 and answer.codes in (((0x80,),) if version == 4 else ((0x8F,), (0x80,), (0x9E,)))
    elif answer is not None:
        assert version == 5 and answer.code in (*FORMAT, FILTER_INVALID), answer


@clauses(v5="3.2.2-15")
def test_a_packet_above_the_servers_maximum(server: Server, version: int, unique: Callable[[str], str]) -> None:
    """By the length in its header alone: the rest need not come."""
    raw = server.raw(version)
    stated = raw.open(unique("c")).get(PACKET_MAXIMUM)
    assert version == 4 or stated
    raw.send(b"\x30" + varint(min((stated or 1 << 27) + 1, 268_435_455)), text("t"), body(version), bytes(1000))
    raw.refused(TOO_LARGE)


@clauses(v3="4.7.3-3", v5="4.7.3-3")
def test_a_topic_of_the_greatest_length(server: Server, version: int, unique: Callable[[str], str]) -> None:
    """65,535 bytes are forwarded, or refused by a reason code of this topic; others go on."""
    raw = server.raw(version)
    raw.open(unique("c"))
    prefix = unique("t") + "/"
    raw.send(publish(prefix + "x" * (65535 - len(prefix)), b"", version, qos=1, pid=1))
    answer = raw.next()
    if answer is not None and answer.kind == PUBACK:
        assert answer.pid == 1
        raw.ping()
    else:
        assert version == 4 or (answer is not None and answer.code == TOPIC_INVALID), answer


@clauses(v3="4.8.0-1", v5="4.13.1-1")
def test_a_packet_in_single_bytes(server: Server, version: int, unique: Callable[[str], str]) -> None:
    """Not an error: TCP knows no packets."""
    raw = server.raw(version)
    for one in connect(unique("c"), version) + PING:
        raw.send(bytes([one]))
    assert raw.expect(CONNACK).code == 0
    raw.expect(PINGRESP)


def test_unknown_ids_in_acknowledgements(server: Server, version: int, unique: Callable[[str], str]) -> None:
    """A PUBACK or PUBCOMP of nothing is ignored; PUBREC and PUBREL of nothing get their answers (4.3.3, figure 4.3)."""
    raw = server.raw(version)
    raw.open(unique("c"))
    raw.send(ack(PUBACK, 77), ack(PUBCOMP, 78))
    raw.ping()
    raw.send(ack(PUBREL, 79))
    done = raw.expect(PUBCOMP)
    assert done.pid == 79 and done.code == (0x92 if version == 5 else 0)
    raw.send(ack(PUBREC, 80))
    again = raw.expect(PUBREL)
    assert again.pid == 80 and again.code == (0x92 if version == 5 else 0)
