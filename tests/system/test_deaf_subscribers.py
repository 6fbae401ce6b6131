"""MQTT subscribers of a topic that never read: the gateway's memory stays bounded, and no topic waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from proton.utils import BlockingConnection

from enmasse.mqtt.packets import PubAck, Publish, SubAck, Subscribe, Subscription
from enmasse.testing import Suite, running, wait_for
from tests.kit.waiting import DEADLINE
from tests.mqtt_gateway.live import Raw

MIB = 1 << 20
FLAVOR = "small-persisted-topic"
TOPICS = {"t": {"type": "topic", "flavor": FLAVOR}, "other": {"type": "topic", "flavor": FLAVOR}}
DEAF = 100
"""Subscribers that do not read, enough to reach the gateway's limit of 256 MiB."""
MESSAGES, SIZE = 24, 400_000
BESIDE = 128 * MIB
"""Bytes of the gateway's process beside that limit: its start, what each client may keep, and the allocator. 31 to 67
MiB were seen on an idle machine, 92 at a load of 20. Without a limit it would hold 960 MB."""


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Suite]:
    with running(tmp_path, TOPICS, options=()) as found:
        found.up()
        yield found
        assert found.down() == 0


def publish(source: Raw, topic: str, packet_id: int, size: int = SIZE) -> None:
    source.send(Publish(topic, bytes(size), 1, packet_id=packet_id))
    assert source.next(PubAck).packet_id == packet_id


@pytest.mark.slow
def test_subscribers_that_never_read_hold_up_no_topic(suite: Suite) -> None:
    pid = suite.component("mqtt_gateway")["pid"]
    gateway = psutil.Process(pid)

    def memory() -> int:
        return int(gateway.memory_full_info().uss)

    before = memory()
    deaf = [Raw(suite.mqtt_port, buffer=4096).connect(f"deaf-{number}") for number in range(DEAF)]
    for each in deaf:
        each.send(Subscribe(1, (Subscription("t/x/#", 1),)))
        each.next(SubAck)
    highest = before
    with Raw(suite.mqtt_port).connect("source") as source:
        for number in range(1, MESSAGES + 1):
            publish(source, "t/x/1", number)
            highest = max(highest, memory())
        wait_for("the gateway holds output of clients that do not read", lambda: memory() > before + 32 * MIB)
        highest = max(highest, memory())
        for each in deaf:
            each.socket.close()
        for number, topic in enumerate(("t/x/1", "t/y", "other"), MESSAGES + 1):
            publish(source, topic, number, 10)
            highest = max(highest, memory())
    connection = BlockingConnection(suite.url, timeout=DEADLINE)
    for address in ("t/x/1", "other"):
        connection.create_receiver(address).close()
    connection.close()
    assert highest < 256 * MIB + BESIDE
    assert suite.component("mqtt_gateway")["pid"] == pid
    suite.wait_ready()
