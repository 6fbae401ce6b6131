"""One running suite for everything here that leaves it as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from enmasse.control.errors import RequestFailed
from enmasse.testing import Suite, running, wait_for
from tests.load import MADE
from tests.system.operating import invoke
from tests.system.seeing import carrier, status

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


def holding(suite: Suite) -> list[str]:
    """Return the addresses that hold messages."""
    return [address["name"] for address in status(suite)["addresses"] if address["messages"]]


def discard(suite: Suite) -> None:
    """Remove the queues of addresses that hold messages: those of subscriptions for good, others are made again."""
    for name in holding(suite):
        at = carrier(suite, name)["endpoints"]["amqp"]
        for queue in invoke(suite, at, "getQueueNames"):
            with contextlib.suppress(RequestFailed):  # that of the answers to the question is gone
                invoke(suite, at, "destroyQueue", queue, True)


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
    try:
        wait_for("no messages", lambda: not holding(running_suite))
    except TimeoutError:
        discard(running_suite)  # the next test would wait in vain, too
        raise
    now = status(running_suite)
    assert now["errors"] == []
    assert {a["name"] for a in now["addresses"]} >= ADDRESSES.keys()
