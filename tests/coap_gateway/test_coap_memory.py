"""Endpoints and what is remembered of them: repeated requests, retransmission, floods and spoofed sources. No sockets,
a clock of the test."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.wire_formats.coap_messages import (
    ACK,
    CON,
    ECHO,
    EMPTY,
    NON,
    OBSERVE,
    RST,
    URI_PATH,
    CoapBlock,
    CoapMessage,
    code,
    decoded,
    encoded,
)
from services.coap_gateway.coap_answers import CoapAnswer
from services.coap_gateway.coap_memory import (
    ACK_TIMEOUT,
    AMPLIFICATION,
    EXCHANGE_LIFETIME,
    MAX_RETRANSMIT,
    OF_EXCHANGE,
    REPEATED,
    CoapExchange,
    CoapMemory,
)
from services.coap_gateway.coap_uploads import OF_UPLOAD, CoapUploads

POST = 2
CREATED, UNAUTHORIZED, UNAVAILABLE = code("2.01"), code("4.01"), code("5.03")


class Wire:
    """A memory, what it was asked for, and what it has sent."""

    def __init__(self, most: int = 1 << 20) -> None:
        self.time = 1000.0
        self.requests: list[CoapExchange] = []
        self.answers = True
        self.out: list[tuple[CoapMessage, Any]] = []
        self.memory = CoapMemory(most, self._handle, lambda: self.time)

    def _handle(self, exchange: CoapExchange, message: CoapMessage, data: bytes) -> None:
        self.requests.append(exchange)
        if self.answers:
            exchange.answer(CREATED)

    def take(self, data: bytes, address: Any = ("10.0.0.1", 5000)) -> list[CoapMessage]:
        """Take a datagram, and return what is sent at once."""
        before = len(self.out)
        self.memory.take(data, address, 1, self._send, None)
        return [message for message, _ in self.out[before:]]

    def _send(self, data: bytes, address: Any) -> None:
        self.out.append((decoded(data), address))

    def after(self, seconds: float) -> list[CoapMessage]:
        """Let time pass, and return what is sent."""
        before = len(self.out)
        self.time += seconds
        self.memory.tick()
        return [message for message, _ in self.out[before:]]


def post(id: int, token: bytes = b"t", options: tuple[tuple[int, bytes], ...] = (), kind: int = CON) -> bytes:
    return encoded(kind, POST, id, token, ((URI_PATH, b"v1"), (URI_PATH, b"jobs"), *options), b"x")


@pytest.mark.parametrize("kind", [CON, NON])
def test_a_repeated_request_is_one(kind: int) -> None:
    wire = Wire()
    (first,) = wire.take(post(7, kind=kind))
    assert (first.type, first.code) == (ACK if kind == CON else NON, CREATED)
    assert wire.take(post(7, kind=kind)) == [first]
    assert len(wire.requests) == 1
    wire.take(post(7, b"other", kind=kind))
    assert len(wire.requests) == 2, "the id was used again, for another request"
    wire.take(post(7, kind=kind), ("10.0.0.1", 5001))
    assert len(wire.requests) == 3, "of another endpoint"
    wire.after(EXCHANGE_LIFETIME + 1)
    assert (wire.memory.kept, wire.memory.endpoints) == (0, {})


def test_an_answer_that_comes_late() -> None:
    wire = Wire()
    wire.answers = False
    assert wire.take(post(7)) == []
    (acknowledged,) = wire.after(1.1)
    assert (acknowledged.type, acknowledged.code, acknowledged.id) == (ACK, EMPTY, 7)
    assert wire.take(post(7)) == [acknowledged]
    wire.requests[0].answer(CREATED)
    separate = wire.out[-1][0]
    assert (separate.type, separate.code, separate.token) == (CON, CREATED, b"t")
    assert wire.after(2 * ACK_TIMEOUT) == [separate]
    wire.take(encoded(ACK, EMPTY, separate.id))
    assert (wire.memory.unconfirmed, wire.after(100)) == (0, [])


def test_confirmable_messages_are_given_up() -> None:
    wire, done = Wire(), list[bool]()
    wire.take(post(7))
    endpoint = wire.requests[0].endpoint
    for answer in (ACK, RST):
        wire.memory.confirm(endpoint, encoded(CON, 69, 1), done.append)
        wire.take(encoded(answer, EMPTY, 1))
    wire.memory.confirm(endpoint, encoded(CON, 69, 2, payload=b"x"), done.append)
    sent = [wire.after(0.5) for _ in range(200)]
    assert sum(map(len, sent)) == MAX_RETRANSMIT
    assert done == [True, False, False]


def test_who_has_proved_nothing_gets_at_most_three_times_its_bytes() -> None:
    wire = Wire()
    wire.answers = False
    request = encoded(CON, 1, 7, b"", ((OBSERVE, b""), (URI_PATH, b"v1")))
    wire.take(request)
    endpoint = wire.requests[0].endpoint
    for _ in range(20):
        wire.memory.confirm(endpoint, encoded(CON, 69, endpoint.next_id(), payload=b"x" * 20), lambda done: None)
        wire.after(1)
    wire.requests[0].answer(code("4.04"), (), b"text" * 100)
    assert endpoint.replied <= AMPLIFICATION * len(request)
    for id in range(20):  # guesses
        wire.take(encoded(ACK, EMPTY, (endpoint.next_id() + 1000 + id) & 0xFFFF))
    assert (wire.memory.unconfirmed, endpoint.proven) == (0, False)


def test_a_flood_of_spoofed_sources() -> None:
    """Memory is bounded, what may be repeated is not forgotten, and who proves its address is served meanwhile."""
    wire = Wire(200 * OF_EXCHANGE)
    wire.take(post(1), ("10.0.0.1", 1))
    for n in range(5000):
        (answer,) = wire.take(post(n), (f"10.1.{n // 250}.{n % 250}", n))
        assert len(encoded(*answer)) <= AMPLIFICATION * len(post(n))
    assert wire.memory.kept <= 101 * OF_EXCHANGE + 2000
    assert len(wire.requests) < 200
    assert wire.memory.events["challenged"] > 4800
    wire.take(post(1), ("10.0.0.1", 1))
    assert wire.memory.events["repeated"] == 1
    (challenge,) = wire.take(post(1), ("10.0.0.2", 1))
    assert challenge.code == UNAUTHORIZED
    echo = (ECHO, challenge.option(ECHO) or b"")
    assert [each.code for each in wire.take(post(2, options=(echo,)), ("10.0.0.3", 1))] == [UNAUTHORIZED]
    assert [each.code for each in wire.take(post(2, options=(echo,)), ("10.0.0.2", 1))] == [CREATED]
    ids = iter(range(3, 5000))
    while (answer := wire.take(post(next(ids)), ("10.0.0.2", 1))[0]).code == CREATED:
        assert wire.memory.kept <= 202 * OF_EXCHANGE
    assert answer.code == UNAVAILABLE, "nothing that may be repeated is forgotten"
    wire.after(REPEATED)
    assert wire.take(post(next(ids)), ("10.0.0.2", 1))[0].code == CREATED


def test_half_done_uploads_are_bounded() -> None:
    time = [0.0]
    uploads = CoapUploads(100 * (OF_UPLOAD + 16), lambda: time[0])
    first, rest = CoapBlock(0, True, 0), CoapBlock(1, False, 0)
    uploads.take("mine", first, b"a" * 16, 1000, proven=True)
    for n in range(5000):
        uploads.take(n, first, b"x" * 16, 1000, proven=False)
    assert uploads.kept <= 100 * (OF_UPLOAD + 16)
    assert uploads.take("mine", rest, b"b", 1000, proven=True) == b"a" * 16 + b"b", "who has proved its address stays"
    time[0] = 1000.0
    uploads.tick()
    assert (uploads.kept, len(uploads)) == (0, 0)


@pytest.mark.parametrize(
    ("block", "payload", "number"),
    [
        (CoapBlock(0, True, 0), b"short", "4.00"),
        (CoapBlock(2, True, 0), b"x" * 16, "4.08"),
        (CoapBlock(1, True, 6), b"x" * 1024, "4.13"),
    ],
)
def test_blocks_that_are_wrong(block: CoapBlock, payload: bytes, number: str) -> None:
    uploads = CoapUploads(1 << 20, lambda: 0.0)
    assert uploads.take("a", CoapBlock(0, True, 0), b"x" * 16, 1000, proven=True) is None
    with pytest.raises(CoapAnswer) as found:
        uploads.take("a", block, payload, 1000, proven=True)
    assert found.value.code == number
    with pytest.raises(CoapAnswer):
        uploads.take("b", CoapBlock(1, False, 0), b"", 1000, proven=True)
