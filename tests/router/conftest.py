from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.router.harness import Broker, Management, RouterProcess

_numbers = count(1)


@pytest.fixture(scope="module")
def router() -> Iterator[RouterProcess]:
    """A router that refuses undefined addresses, with a listener for clients and one for route containers."""
    process = RouterProcess(
        [
            ["address", {"name": "any", "pattern": "any", "distribution": "balanced"}],
            ["address", {"name": "near", "pattern": "near", "distribution": "closest"}],
            ["address", {"name": "all", "pattern": "all", "distribution": "multicast"}],
            ["address", {"name": "temporary", "pattern": "test/#", "distribution": "balanced"}],
            ["address", {"name": "temporary-all", "pattern": "testall/#", "distribution": "multicast"}],
        ]
    )
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def management(router: RouterProcess) -> Iterator[Management]:
    client = router.management()
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    double = Broker("b0")
    try:
        yield double
    finally:
        double.stop()


@pytest.fixture
def address() -> str:
    """A balanced address that no other test uses."""
    return f"test/{next(_numbers)}"


@pytest.fixture
def multicast() -> str:
    """A multicast address that no other test uses."""
    return f"testall/{next(_numbers)}"
