"""Requests without sockets: options that count, bodies in blocks, and the share of an address space in observations."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from enmasse.bridge.message_outcomes import MessageOutcome
from enmasse.identity.principal import Principal
from enmasse.model.tenants.spaces import meant_host
from enmasse.wire_formats.coap_messages import (
    ACCEPT,
    BLOCK1,
    CON,
    CONTENT_FORMAT,
    ECHO,
    MAX_AGE,
    POST,
    URI_HOST,
    URI_PATH,
    URI_QUERY,
    CoapBlock,
    CoapMessage,
    block_option,
    code,
    decoded,
    encoded,
)
from services.coap_gateway import coap_observations, coap_requests
from services.coap_gateway.coap_answers import CoapAnswer
from services.coap_gateway.coap_observations import CoapObservations
from services.coap_gateway.coap_options import understood
from services.coap_gateway.coap_requests import CoapRequests
from services.coap_gateway.coap_uploads import OF_ENDPOINT
from tests.kit.running import asyncio_test
from tests.kit.waiting import until


@pytest.mark.parametrize(
    "options",
    [
        ((URI_HOST, b""),),
        ((URI_HOST, b"a"), (URI_HOST, b"b")),
        ((URI_QUERY, b"x" * 256),),
        ((ACCEPT, b"123"),),
        ((ACCEPT, b""), (ACCEPT, b"")),
        ((BLOCK1, b"1234"),),
        ((BLOCK1, b""), (BLOCK1, b"\x0e")),
        ((9, b""),),
    ],
)
def test_critical_options_that_are_wrong(options: tuple[tuple[int, bytes], ...]) -> None:
    with pytest.raises(CoapAnswer) as found:
        understood(CoapMessage(CON, POST, 1, b"", options))
    assert found.value.code == "4.02"


def test_elective_options_that_are_wrong_are_ignored() -> None:
    good = ((URI_PATH, b"v1"), (URI_PATH, b"v1"), (CONTENT_FORMAT, b"2"))
    wrong = ((CONTENT_FORMAT, b"0"), (MAX_AGE, b"12345"), (65000, b"x"))
    assert understood(CoapMessage(CON, POST, 1, b"", good + wrong)).options == good
    large = CoapMessage(CON, POST, 1, b"", ((CONTENT_FORMAT, b"\xff" * 1900),))
    assert understood(large).options == ()


def test_hosts_as_clients_state_them() -> None:
    assert [meant_host(each) for each in ("Shop", "shop.", "a.b.", "")] == ["shop", "shop", "a.b", ""]


class _Requests(CoapRequests):
    """Requests of clients of an address space whose login is there, with a queue `jobs`."""

    def __init__(self) -> None:
        super().__init__(1 << 20, 1 << 26, 1 << 26)
        way = SimpleNamespace(route=SimpleNamespace(to="jobs", traits=SimpleNamespace(stored=True)))
        self.way: Any = way
        topics = SimpleNamespace(relative=str)
        lanes = SimpleNamespace(publishing=SimpleNamespace(way=lambda name: way), topics=topics)
        login = SimpleNamespace(principal=Principal("alice"))
        visitor = SimpleNamespace(user="anonymous", space="default", lanes=lanes, login=login)
        limits = SimpleNamespace(limits=lambda space: SimpleNamespace(max_message_size=None))
        visitors: Any = SimpleNamespace(
            known=lambda space, host: visitor,
            check=lambda *given: None,
            bridge=SimpleNamespace(allowances=limits, rates=SimpleNamespace(admits=lambda space, size: True)),
        )
        self.visitors = visitors
        self.codes: list[int] = []

    def first_block(self, id: int, port: int, query: list[bytes]) -> int:
        """Send the first of several blocks, and return the code of the answer."""
        address = ("10.0.0.1", port)
        options = [(URI_PATH, b"v1"), (URI_PATH, b"jobs"), *((URI_QUERY, each) for each in query)]
        options += [(BLOCK1, block_option(CoapBlock(0, True, 0))), (ECHO, self.memory.echo(address))]
        data = encoded(CON, POST, id, b"", options, b"x" * 16)
        self.memory.take(data, address, 1, lambda data, _: self.codes.append(decoded(data).code), None)
        return self.codes[-1]


@asyncio_test
async def test_parameters_of_a_body_in_blocks_are_checked_at_its_first_block() -> None:
    requests = _Requests()
    assert requests.first_block(1, 1, [b"subject=a"]) == code("2.31")
    assert requests.first_block(2, 1, [b"nothing=a"]) == code("4.00")
    assert len(requests.uploads) == 1


@asyncio_test
async def test_a_message_without_an_outcome_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """In time, and once: an outcome that comes later changes nothing."""
    monkeypatch.setattr(coap_requests, "OUTCOME_WITHIN", 0.01)
    requests = _Requests()
    sent: list[Any] = []
    requests.way.lane = SimpleNamespace(send=lambda endpoint, key, qos, payload: sent.append((endpoint, key)))
    options = [(URI_PATH, b"v1"), (URI_PATH, b"jobs"), (ECHO, requests.memory.echo(("10.0.0.1", 1)))]
    data = encoded(CON, POST, 7, b"", options, b"x" * 16)
    requests.memory.take(data, ("10.0.0.1", 1), 1, lambda data, _: requests.codes.append(decoded(data).code), None)
    await until(lambda: code("5.04") in requests.codes, "an answer")
    answers = list(requests.codes)
    [(endpoint, key)] = sent
    endpoint.sent(key, 1, MessageOutcome.ACCEPTED, "", "")
    assert requests.codes == answers
    assert (requests.kept, requests.outcomes) == (0, {MessageOutcome.UNKNOWN: 1})


@asyncio_test
async def test_what_a_body_in_blocks_takes_is_what_is_counted() -> None:
    requests = _Requests()
    requests.first_block(0, 0, [b"subject=a"])
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for n in range(1, 321):
            query = [b"property.%d=%d%s" % (k, n, b"x" * 8) for k in range(58)]
            assert requests.first_block(n, n // OF_ENDPOINT, query) == code("2.31")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(requests.uploads) > 300
    assert after - before < 1.5 * (requests.uploads.kept + requests.memory.kept)


class _Observation:
    def __init__(self, observations: CoapObservations, exchange: Any, visitor: Any, *given: Any) -> None:
        self.visitor = visitor

    def attach(self) -> None:
        pass


@asyncio_test
async def test_a_space_leaves_observations_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coap_observations, "CoapObservation", _Observation)
    monkeypatch.setattr(coap_observations, "MOST", 100)

    def begun(observations: CoapObservations, user: str, *, alone: bool) -> int:
        """Return how many a user gets."""
        visitor: Any = SimpleNamespace(user=user)
        for n in range(1000):
            endpoint = SimpleNamespace(observations={}, proven=True)
            exchange: Any = SimpleNamespace(endpoint=endpoint, token=b"t")
            owner: Any = None
            try:
                observations.begin(exchange, visitor, "events", owner, 6, whole=False, alone=alone)
            except CoapAnswer as answer:
                assert answer.code == "5.03"
                return n
        raise AssertionError("no end")

    memory: Any = SimpleNamespace()
    observations = CoapObservations(memory, 1 << 20, None)
    assert begun(observations, "a/anonymous", alone=False) == 50
    assert begun(observations, "b/anonymous", alone=False) == 25
    assert begun(observations, "anonymous", alone=False) > 10
    assert begun(CoapObservations(memory, 1 << 20, None), "anonymous", alone=True) == 100
