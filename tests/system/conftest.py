"""One running suite for everything here that leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from enmasse.testing import Suite, running, wait_for
from tests.load import MADE
from tests.system.seeing import status

QUEUE, TOPIC = "small-persisted-queue", "small-persisted-topic"
SPREAD = [f"spread-{i}" for i in range(9)]
"""Queues of a flavor with three brokers."""
ADDRESSES = {
    "orders": {"type": "queue", "flavor": QUEUE},
    "news": {"type": "topic", "flavor": TOPIC},
    "direct": {"type": "anycast"},
    "all": {"type": "multicast"},
    "scratch": {"type": "queue", "flavor": "vanilla-queue"},
    **{name: {"type": "queue", "flavor": "three"} for name in SPREAD},
}
FLAVORS = {"three": {"type": "queue", "templateName": "queue-persisted", "templateParameters": {"BROKERS": 3}}}


@pytest.fixture(scope="package")
def running_suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("system"), ADDRESSES, FLAVORS) as suite:
        suite.up()
        yield suite
        assert suite.down() == 0


@pytest.fixture
def suite(running_suite: Suite) -> Iterator[Suite]:
    """Ready before each test, and ready, without errors, and without messages after it."""
    running_suite.wait_ready()
    yield running_suite
    for client in MADE:
        print(client.describe())  # shown where the test has failed
        client.abandon()
    MADE.clear()
    running_suite.wait_ready()
    wait_for("no messages", lambda: not any(a["messages"] for a in status(running_suite)["addresses"]))
    now = status(running_suite)
    assert now["errors"] == []
    assert {a["name"] for a in now["addresses"]} >= ADDRESSES.keys()
