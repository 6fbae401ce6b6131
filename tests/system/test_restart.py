"""The whole suite ends, gently or not, and everything that was accepted is there when it comes back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.testing import Suite, running, wait_for
from tests.kit.waiting import DEADLINE
from tests.load import MADE, Producer, receive, subscribe
from tests.system.conftest import QUEUE, TOPIC
from tests.system.exchange import exchange
from tests.system.seeing import status, wait_address

SIGNALS = [signal.SIGTERM, signal.SIGKILL]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    addresses = {
        **{f"queue-{i}": {"type": "queue", "flavor": QUEUE} for i in range(5)},
        **{f"topic-{number.name}": {"type": "topic", "flavor": TOPIC} for number in SIGNALS},
    }
    with running(tmp_path_factory.mktemp("restart"), addresses) as suite:
        suite.up()
        yield suite
        for client in MADE:
            client.abandon()
        MADE.clear()


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL],  # a kill loses all that a gentle end does
    ids=lambda number: number.name,
)
def test_a_restart_keeps_all_accepted_messages(own: Suite, number: signal.Signals) -> None:
    """In mid-stream: exactly what was accepted comes, and perhaps what was never answered."""
    before = status(own)
    topic = f"topic-{number.name}"
    subscribe(own.url, topic, "reader")
    producers = [Producer(own.url, name) for name in ("queue-0", "queue-1", topic)]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.wait_accepted(200)
    assert own.process is not None
    own.process.send_signal(number)
    assert own.process.wait(DEADLINE) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    for producer in producers:
        producer.stop_trying()
    own.up()  # at once: children that are still dying must be no hindrance
    pids = [c["pid"] for c in before["components"]]
    assert len(pids) >= 6
    wait_for("the children to end", lambda: not [pid for pid in pids if is_alive(pid)])
    for producer in producers:
        producer.abandon()
    own.wait_ready()
    after = status(own)
    assert [(a["name"], a["ready"]) for a in after["addresses"]] == [(a["name"], True) for a in before["addresses"]]
    assert not {c["pid"] for c in after["components"]} & set(pids)
    reader = {"container_id": "reader", "subscription": "durable"}
    for producer in producers:
        options = reader if producer.address == topic else {}
        came = receive(own.url, producer.address, wait_stored(own, producer), **options)
        # In doubt is what had no answer yet when the suite died.
        assert producer.accepted <= set(came) <= producer.accepted | producer.in_doubt
        assert len(came) == len(set(came))
        wait_address(own, producer.address, messages=0)
    exchange(own.url, [a["name"] for a in after["addresses"]])


def wait_stored(suite: Suite, producer: Producer) -> int:
    """How many messages the status says the address holds: all the accepted ones at least."""

    def stored() -> int:
        held: int = next(a["messages"] or 0 for a in status(suite)["addresses"] if a["name"] == producer.address)
        return held if held >= len(producer.accepted) else 0

    found: int = wait_for(f"the messages of {producer.address}", stored)
    return found
