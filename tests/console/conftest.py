"""One running suite without users, and one with, for the tests of the console."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from enmasse.testing import Suite, running
from tests.console.client import Client

ADDRESSES = {
    "orders": {"type": "queue", "flavor": "small-persisted-queue"},
    "orders/late": {"type": "queue", "flavor": "small-persisted-queue"},
    "news": {"type": "topic", "flavor": "small-persisted-topic"},
}


@pytest.fixture(scope="package")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("console"), ADDRESSES) as suite:
        suite.up()
        yield suite
        assert suite.down() == 0


@pytest.fixture(scope="package")
def suite_with_mqtt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """As `suite`, with the services of MQTT."""
    with running(tmp_path_factory.mktemp("with-mqtt"), ADDRESSES, options=()) as suite:
        suite.up()
        yield suite
        assert suite.down() == 0


@pytest.fixture
def client(suite: Suite) -> Iterator[Client]:
    """A client without credentials, who may do everything: there are no users."""
    with Client(suite) as client:
        yield client
