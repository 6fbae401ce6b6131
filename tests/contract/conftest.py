"""One broker of each engine for all tests; what a test makes has names of its own, and is gone afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Protocol, TypeVar

import pytest

from tests.broker.fixtures import c, m
from tests.broker.harness import Management
from tests.contract.engines import BROKERS, Broker
from tests.kit.marks import first_soon

__all__ = ["c", "m"]
T = TypeVar("T")


class Expected(Protocol):
    """What the test expects of the engine that it runs against."""

    def __call__(self, *, embedded: T, artemis: T) -> T: ...


@pytest.fixture(scope="session", params=first_soon(BROKERS))
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = BROKERS[request.param](tmp_path_factory.mktemp(request.param))
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.fixture
def expected(broker: Broker) -> Expected:
    """What differs on purpose. Each test that asks for it has a row in docs/engines.md."""

    def choose(*, embedded: T, artemis: T) -> T:
        return {"embedded": embedded, "artemis": artemis}[broker.engine.name]

    return choose


@pytest.fixture
def q(m: Management) -> Iterator[str]:
    """A queue."""
    name = f"q-{uuid.uuid4()}"
    m.queue(name)
    yield name
    m("destroyQueue", name, True, True)


@pytest.fixture
def t(broker: Broker, m: Management) -> Iterator[str]:
    """A topic, with the levels below it."""
    name = f"t-{uuid.uuid4()}"
    broker.topic(m, name)
    yield name
    m("deleteAddress", name, True)
