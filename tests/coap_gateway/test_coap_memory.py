"""Endpoints and what is remembered of them: repeated requests, retransmission, floods and spoofed sources. No sockets,
a clock of the test."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from services.coap_gateway.coap_memory import OF_ENDPOINT as OF_ENDPOINT_BYTES
from services.coap_gateway.coap_uploads import OF_ENDPOINT, OF_UPLOAD, UNPROVEN, CoapUploads

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


_steps = st.lists(
    st.tuples(
        st.sampled_from(("post", "echo", "late", "confirm", "acknowledge", "observe", "end", "time")),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    max_size=80,
)


@given(_steps)
def test_everything_is_forgotten_in_the_end(steps: list[tuple[str, int, int]]) -> None:
    """Requests with ids that are used again, challenges, refusals, answers that come late, observations that end with
    an answer: after all lifetimes nothing is kept, and in between what is kept is of endpoints that are known."""
    wire = Wire(6 * OF_EXCHANGE + 3 * OF_ENDPOINT_BYTES)
    memory = wire.memory
    for step, n, m in steps:
        address = (f"10.0.0.{n}", 1)
        endpoint = memory.endpoints.get((1, address))
        wire.answers = step != "late"
        if step in ("post", "late"):
            wire.take(post(m, secrets.token_bytes(4)), address)
        elif step == "echo":
            wire.take(post(m, secrets.token_bytes(4), ((ECHO, memory.echo(address)),)), address)
        elif step == "time":
            wire.after((0.5, 50, 150, 300)[m])
        elif endpoint is not None and step == "confirm":
            memory.confirm(endpoint, encoded(CON, 69, endpoint.next_id()), lambda done: None)
        elif endpoint is not None and step == "acknowledge":
            for id in list(endpoint.unconfirmed):
                wire.take(encoded(ACK, EMPTY, id), address)
        elif endpoint is not None and step == "observe":
            endpoint.observations[b"t"] = None
        elif endpoint is not None and endpoint.observations:  # as CoapObservations.ended
            del endpoint.observations[b"t"]
            memory.confirm(endpoint, encoded(CON, UNAVAILABLE, endpoint.next_id()), lambda done: None)
            memory.release(endpoint)
        exchanges = memory._exchanges.values()
        assert all(memory.endpoints.get(each.endpoint.key) is each.endpoint for each in exchanges)
        kept = sum(each.size for each in exchanges) + OF_ENDPOINT_BYTES * len(memory.endpoints)
        assert memory.kept == kept
    for each in list(memory.endpoints.values()):
        if each.observations.pop(b"t", each) is None:
            memory.release(each)
    for _ in range(8):
        wire.after(200)
    assert (memory.kept, memory.endpoints, memory.unconfirmed) == (0, {}, 0)


def test_an_endpoint_whose_observation_was_ended_with_an_answer() -> None:
    wire = Wire()
    wire.take(post(1))
    endpoint = wire.requests[0].endpoint
    endpoint.observations[b"t"] = None
    wire.after(EXCHANGE_LIFETIME + 1)
    del endpoint.observations[b"t"]
    wire.memory.confirm(endpoint, encoded(CON, UNAVAILABLE, 9), lambda done: None)
    wire.memory.release(endpoint)
    wire.take(encoded(ACK, EMPTY, 9))
    assert (wire.memory.kept, wire.memory.endpoints) == (0, {})


def test_ids_that_were_used_again_while_the_gateway_asks_for_proofs() -> None:
    wire = Wire(40 * OF_ENDPOINT_BYTES)
    n = 0
    while not wire.memory.pressed:
        n += 1
        wire.take(post(1), (f"10.0.0.{n}", 1))
    while wire.memory.kept < 38 * OF_ENDPOINT_BYTES:
        address = ("10.1.0.1", len(wire.requests))
        wire.take(post(1, options=((ECHO, wire.memory.echo(address)),)), address)
    for each in range(1, 6):
        (answer,) = wire.take(post(1, b"other"), (f"10.0.0.{each}", 1))
        assert answer.code == UNAUTHORIZED
    wire.after(EXCHANGE_LIFETIME + 1)
    assert (wire.memory.kept, wire.memory.endpoints) == (0, {})


def test_the_first_clause_of_an_error_is_sent_where_all_of_it_is_too_long() -> None:
    wire = Wire()
    wire.answers = False
    wire.take(post(1))
    wire.requests[0].answer(code("4.00"), (), b"foo: no such parameter; known are " + b"x" * 200)
    assert wire.out[0][0].payload == b"foo: no such parameter"
    wire.take(post(2))
    wire.requests[1].answer(code("2.05"), (), b"a; " + b"x" * 400)
    assert wire.out[1][0].payload == b"", "a body is not cut"


def test_half_done_uploads_are_bounded() -> None:
    time = [0.0]
    uploads = CoapUploads(100 * (OF_UPLOAD + 16), lambda: time[0])
    first, rest = CoapBlock(0, True, 0), CoapBlock(1, False, 0)
    uploads.take((0, b"mine"), first, b"a" * 16, 1000, proven=True)
    for n in range(5000):
        uploads.take((n, b"x"), first, b"x" * 16, 1000, proven=False)
    assert uploads.kept <= 100 * (OF_UPLOAD + 16)
    assert uploads.take((0, b"mine"), rest, b"b", 1000, proven=True) == b"a" * 16 + b"b", (
        "who has proved its address stays"
    )
    time[0] = 1000.0
    uploads.tick()
    assert (uploads.kept, len(uploads)) == (0, 0)


def test_uploads_have_a_number_of_each_endpoint_and_of_those_without_a_proof() -> None:
    uploads, first = CoapUploads(1 << 30, lambda: 0.0), CoapBlock(0, True, 0)

    def begin(endpoint: int, key: int) -> None:
        uploads.take((endpoint, b"%d" % key), first, b"x" * 16, 1000, proven=endpoint == 0)

    for key in range(OF_ENDPOINT):
        begin(0, key)
    with pytest.raises(CoapAnswer) as found:
        begin(0, OF_ENDPOINT)
    assert found.value.code == "4.29"
    begin(0, 0)  # again from its beginning
    uploads.take((0, b"0"), CoapBlock(1, False, 0), b"", 1000, proven=True)
    begin(0, OF_ENDPOINT)
    assert not uploads.pressed
    for n in range(UNPROVEN):
        begin(1 + n // OF_ENDPOINT, n)
    assert uploads.pressed
    with pytest.raises(CoapAnswer) as found:
        begin(UNPROVEN, 0)
    assert found.value.code == "5.03"


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
    assert uploads.take((0, b"a"), CoapBlock(0, True, 0), b"x" * 16, 1000, proven=True) is None
    with pytest.raises(CoapAnswer) as found:
        uploads.take((0, b"a"), block, payload, 1000, proven=True)
    assert found.value.code == number
    with pytest.raises(CoapAnswer):
        uploads.take((0, b"b"), CoapBlock(1, False, 0), b"", 1000, proven=True)
