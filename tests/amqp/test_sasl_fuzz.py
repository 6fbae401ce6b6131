"""Any bytes before `open`: a server that wants credentials refuses them, keeps little and raises nothing."""

from __future__ import annotations

import struct
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.amqp.codec.performatives import (
    Begin,
    Close,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.sasl.handshake import AMQP_HEADER, SASL_HEADER
from enmasse.amqp.sasl.layer import Exchange, SaslServer, external, plain
from enmasse.identity.processes.scram import SCRAM, UnknownUsers, scram, verifier
from tests.amqp.engine_kit import Recorder, frame, frames

USERS = {"alice": "secret", "ünï": "pässwörd"}
KNOWN = {"alice": verifier("secret")}
CONDITIONS = {
    "amqp:unauthorized-access",
    "amqp:illegal-state",
    "amqp:not-implemented",
    "amqp:decode-error",
    "amqp:connection:framing-error",
    "amqp:resource-limit-exceeded",
}
MAX_OUTPUT = 4096
"""Bytes that a refusal may make the server send: headers, mechanisms, challenges, outcome."""
MAX_HELD = 256 * 1024
"""Bytes that a connection may hold before `open`, its objects included."""


def nobody(exchange: Exchange, user: str, password: str) -> None:
    exchange.fail()


def never(exchange: Exchange, user: str, password: str) -> None:
    """Ask a service that does not answer."""


def server(authenticator: Any = nobody) -> tuple[Connection, Recorder]:
    handler = Recorder()
    mechanisms = {"PLAIN": plain(authenticator), SCRAM: scram(KNOWN.get, unknown=UnknownUsers()),
                  "EXTERNAL": external(lambda: None)}  # fmt: skip
    connection = Connection(handler, container_id="s", is_client=False, sasl=SaslServer(mechanisms))
    return connection, handler


def nested(levels: int, inside: bytes = b"\x40") -> bytes:
    """Return lists in lists."""
    for _ in range(levels):
        inside = b"\xd0" + struct.pack(">II", len(inside) + 4, 1) + inside
    return inside


def raw(body: bytes, size: int | None = None, doff: int = 2, kind: int = 1) -> bytes:
    return struct.pack(">IBBH", len(body) + 8 if size is None else size, doff, kind, 0) + body


INIT = b"\x00\x53\x41"
"""Descriptor of sasl-init."""
bodies = st.one_of(
    st.binary(max_size=30),
    st.builds(nested, st.integers(0, 200)),
    # performatives and compounds where a symbol, binary or string belongs
    st.builds(
        lambda fields: INIT + b"\xd0" + struct.pack(">II", len(b"".join(fields)) + 4, len(fields)) + b"".join(fields),
        st.lists(
            st.sampled_from([
                b"\x40", b"\xa3\x05PLAIN", b"\xa0\x03\0a\0", b"\xa1\x01h", b"\x00\x53\x41\xc0\x04\x01\xa3\x01X",
                b"\x45", b"\xe0\x04\x01\xa3\x01X", b"\xa3\x02\xff\xfe", b"\xa1\x02\xff\xff", b"\x43", nested(20),
            ]),
            max_size=6,
        ),
    ),
    # counts and sizes that lie
    st.builds(lambda count: INIT + b"\xd0" + struct.pack(">II", 4, count), st.integers(0, 2**32 - 1)),
    st.builds(lambda size: INIT + b"\xd0" + struct.pack(">II", size, 3), st.integers(0, 2**32 - 1)),
    st.builds(lambda size: INIT + b"\xc0\x10\x01\xb3" + struct.pack(">I", size), st.integers(0, 2**32 - 1)),
)  # fmt: skip
responses = st.one_of(
    st.none(),
    st.binary(max_size=60),
    st.binary(min_size=7000, max_size=9000),
    st.sampled_from([b"\0alice\0wrong", b"n,,n=alice,r=abc", b"c=biws,r=abc,p=AAAA", b"", b"alice"]),
)
pieces = st.one_of(
    st.sampled_from([SASL_HEADER, AMQP_HEADER, b"AMQP\x02\x01\0\0", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\0\x01"]),
    st.builds(
        lambda name, text: frame(0, SaslInit(mechanism=Symbol(name), initial_response=text), frame_type=1),
        st.sampled_from(["PLAIN", SCRAM, "EXTERNAL", "ANONYMOUS", "", "X" * 300]),
        responses,
    ),
    st.builds(lambda text: frame(0, SaslResponse(response=text or b""), frame_type=1), responses),
    st.sampled_from([
        frame(0, SaslOutcome(code=0), frame_type=1),
        frame(0, SaslChallenge(challenge=b"x"), frame_type=1),
        frame(0, SaslMechanisms(sasl_server_mechanisms=(Symbol("PLAIN"),)), frame_type=1),
        frame(0, Open(container_id="c")),
        frame(0, Open(container_id="c"), frame_type=1),
        frame(0, Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)),
        frame(0, Close()),
        frame(0, None),
    ]),
    st.builds(raw, bodies, st.none() | st.integers(0, 2**32 - 1), st.integers(0, 255), st.sampled_from([0, 1, 2, 255])),
    st.builds(raw, bodies),
)  # fmt: skip


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({place % (len(data) + 1) for place in at})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


@given(st.lists(pieces, max_size=12), st.booleans(), st.lists(st.integers(0, 9999), max_size=6), st.booleans())
@settings(deadline=None, max_examples=300)
def test_no_bytes_are_a_login(parts: list[bytes], begun: bool, at: list[int], asks: bool) -> None:
    connection, handler = server(never if asks else nobody)
    for each in cut((SASL_HEADER if begun else b"") + b"".join(parts), at):
        connection.receive(each)
    assert len(connection.take_output()) <= MAX_OUTPUT
    assert (connection.state, connection.user) != ("open", None) and connection.user is None
    assert handler.names() in ([], ["close"])
    if handler.events:
        assert handler.events[0][1] in CONDITIONS
        assert connection.finished


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode) | st.tuples(
    st.sampled_from([b"", b"alice", b"bob", b"\xff"]), st.sampled_from([b"alice", b"", "ünï".encode(), b"\xc3"]),
    st.sampled_from([b"secret", b"", "pässwörd".encode(), b"secret\0", b"secre"]),
).map(b"\0".join))  # fmt: skip
@settings(deadline=None)
def test_plain_accepts_the_two_forms_of_a_login_and_nothing_else(response: bytes) -> None:
    connection, _ = server(USERS)
    init = SaslInit(mechanism=Symbol("PLAIN"), initial_response=response)
    connection.receive(SASL_HEADER + frame(0, init, frame_type=1))
    outcome = frames(connection.take_output())[-1][1]
    good = {f"{who}\0{user}\0{password}".encode() for user, password in USERS.items() for who in ("", user)}
    assert (outcome.code == 0) == (response in good)


@pytest.mark.parametrize("flood", ["crumbs", "empty responses", "headers", "one frame", "behind a question"])
def test_what_never_ends_costs_little(flood: str) -> None:
    """A megabyte before `open` is neither kept nor processed for long, whatever it holds."""
    connection, _ = server(never)
    many = 1 << 20
    first = SASL_HEADER
    if flood == "behind a question":
        first += frame(0, SaslInit(mechanism=Symbol("PLAIN"), initial_response=b"\0alice\0x"), frame_type=1)
    data = {
        "crumbs": b"\0\0\x20\0\x02\x01\0\0",
        "empty responses": frame(0, SaslResponse(response=b""), frame_type=1),
        "headers": SASL_HEADER,
        "one frame": b"\0\x0f\xff\xff\x02\x01\0\0",
        "behind a question": frame(0, SaslResponse(response=b"x" * 100), frame_type=1),
    }[flood]
    connection.receive(first)
    tracemalloc.start()
    began = time.process_time()
    sent = 0
    while sent < many and not connection.finished and not connection.reading_paused:
        connection.receive(data)
        sent += len(data)
    seconds, held = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert connection.finished or connection.reading_paused
    assert held < MAX_HELD
    assert seconds < 5
