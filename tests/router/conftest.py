from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.router.differences import CONTRACT, DISPATCH_DIFFERS
from tests.router.harness import Broker, DispatchProcess, Management, RouterProcess

_numbers = count(1)
DISPATCH = "qdrouterd"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is of the contract runs with both routers."""
    if "router" not in metafunc.fixturenames or metafunc.module.__name__.rpartition(".")[2] not in CONTRACT:
        return
    engines: list[Any] = ["embedded"]
    if metafunc.function.__name__ not in DISPATCH_DIFFERS:
        engines.append(pytest.param(DISPATCH, marks=pytest.mark.needs(DISPATCH)))
    metafunc.parametrize("router", engines, indirect=True, scope="module")


@pytest.fixture(scope="module")
def router(request: pytest.FixtureRequest) -> Iterator[RouterProcess]:
    """A router that refuses undefined addresses, with a listener for clients and one for route containers."""
    make = DispatchProcess if getattr(request, "param", "embedded") == DISPATCH else RouterProcess
    process = make(
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
