"""Processes and clients that end with their test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.configserv.running import FLAVORS, Client, Configserv


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Configserv]:
    """Not started; with flavors and without addresses."""
    made = Configserv(tmp_path)
    made.write("flavors.json", FLAVORS)
    made.write("addresses.json", {})
    yield made
    assert made.stop() == 0


@pytest.fixture
def connect(service: Configserv) -> Iterator[Callable[[], Client]]:
    """Makes clients."""
    clients: list[Client] = []

    def make() -> Client:
        clients.append(Client(service, clients))
        return clients[-1]

    yield make
    for client in clients:
        with contextlib.suppress(Exception):  # the service may have been killed: then nobody answers
            client.close(1)
