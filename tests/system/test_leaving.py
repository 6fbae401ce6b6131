"""Gateways that come and leave under load: what is acknowledged stays, what is promised once comes once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage
from proton import Timeout
from proton.utils import BlockingConnection, ConnectionClosed

from enmasse.testing import Suite, running, wait_for
from tests.kit.processes import COMMAND, run, start
from tests.kit.waiting import DEADLINE
from tests.system.mqtt_devices import PATIENCE, SOME, Device, publishing
from tests.system.test_kill import Flow

pytestmark = pytest.mark.slow
ADDRESSES = {
    "mytopic": {"type": "topic", "flavor": "small-persisted-topic"},
    "orders": {"type": "queue", "flavor": "small-persisted-queue"},
    "news": {"type": "topic", "flavor": "small-persisted-topic"},
}


class Roamer(Device):
    """A device that connects again at once. `gaps`: seconds from each loss of its connection to the next one;
    `reasons`: why it was closed, of MQTT 5. `slow`: it takes a message after the other, with a pause."""

    def __init__(self, name: str, port: int, version: int = 5, *, slow: bool = False) -> None:
        super().__init__(name, port, version)
        self.gaps: list[float] = []
        self.reasons: Counter[str] = Counter()
        self._lost: float | None = None
        self._pause = threading.Event()
        self._slow = slow
        self.client.reconnect_delay_set(0.05, 0.2)
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, given: Any) -> None:
        if self._lost is not None and not reason.is_failure:
            self.gaps.append(time.monotonic() - self._lost)
            self._lost = None

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: Any, given: Any) -> None:
        self._lost = self._lost or time.monotonic()
        self.reasons[str(reason)] += 1

    def _on_message(self, client: Any, data: Any, message: MQTTMessage) -> None:
        if self._slow:
            self._pause.wait(0.02)
        super()._on_message(client, data, message)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("leaving"), ADDRESSES, options=()) as found:
        found.up()
        yield found
        assert found.down() == 0


def scale(suite: Suite, service: str, count: int) -> str:
    done = run(COMMAND, "scale", service, str(count), "--port-offset", str(suite.offset), seconds=PATIENCE)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def gateways(suite: Suite) -> dict[str, dict[str, Any]]:
    return {c["name"]: c for c in suite.status()["components"] if c["kind"] == "mqtt_gateway"}


def more(reader: Roamer) -> Callable[[], bool]:
    before = len(reader.got)
    return lambda: len(reader.got) > before + SOME


def test_gateways_come_and_leave_and_sessions_have_everything_once(suite: Suite) -> None:
    """1 → 3 → 1 twice; the second time one of those that leave is killed meanwhile."""
    port = suite.mqtt_port
    publishers = [Roamer("new", port), Roamer("old", port, 4), Roamer("new-2", port)]
    readers = [Roamer("reader", port), Roamer("reader-old", port, 4), Roamer("slow", port, slow=True)]
    idle = [Roamer(f"idle-{number}", port, 4 if number % 2 else 5) for number in range(24)]
    every = [*publishers, *readers, *idle]
    try:
        scale(suite, "gateways", 3)
        for device in every:
            device.connect()
        for reader in readers:
            reader.subscribe("mytopic/+/state", 2)
        with publishing(list(publishers), "mytopic") as work:
            wait_for("messages arrive", more(readers[0]), PATIENCE)
            assert "leaving" in scale(suite, "gateways", 1)
            assert list(gateways(suite)) == ["mqtt_gateway-0"]
            wait_for("messages arrive after it", more(readers[0]), PATIENCE)
            scale(suite, "gateways", 3)
            others = ("mqtt_gateway-1", "mqtt_gateway-2")
            wait_for("clients spread", lambda: sum(_clients(suite, name) for name in others) > 6, PATIENCE)
            victim = max(others, key=lambda name: _clients(suite, name))
            scaling = start(COMMAND, "scale", "gateways", "1", "--port-offset", str(suite.offset))
            wait_for("it leaves", lambda: gateways(suite).get(victim, {}).get("leaving"), PATIENCE)
            os.kill(gateways(suite)[victim]["pid"], signal.SIGKILL)
            assert scaling.wait(PATIENCE) == 0
            wait_for("messages arrive after the kill", more(readers[0]), PATIENCE)
        sent = Counter(text for publisher in work for text in publisher.sent)
        wait_for("all is acknowledged", lambda: sum(len(d.acknowledged) for d in publishers) == len(sent), PATIENCE)
        for reader in readers:
            wait_for("all has come", lambda reader=reader: reader.got.keys() >= sent.keys(), PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default
            assert reader.got == sent
        wait_for("all are connected", lambda: _clients(suite, "mqtt_gateway-0") == len(every), PATIENCE)
        gaps = sorted(gap for device in every for gap in device.gaps)
        reasons = sum((device.reasons for device in every), Counter())
        print(f"{len(gaps)} gaps, the longest of {gaps[-3:]} s; {len(sent)} messages; closed: {dict(reasons)}")
        assert gaps and reasons["Server moved"]
    finally:
        for device in every:
            device.end()


def test_routers_come_and_leave_and_what_was_accepted_stays(suite: Suite) -> None:
    """1 → 2 → 1 twice, with producers and consumers of Proton at a queue and a topic, and idle connections."""
    scale(suite, "routers", 2)
    flow = Flow(suite)
    idle = [BlockingConnection(suite.url, timeout=DEADLINE) for _ in range(20)]
    flow.wait_some()
    assert "leaving" in scale(suite, "routers", 1)
    flow.wait_some()
    closed = [each for each in idle if _closed(each)]
    assert 0 < len(closed) < len(idle)
    scale(suite, "routers", 2)
    flow.wait_some()
    scale(suite, "routers", 1)
    flow.finish()
    flow.check_counts(kills=2)
    for each in idle:
        if each not in closed:
            each.close()


def _closed(connection: BlockingConnection) -> bool:
    """Whether a router has closed the connection, with the reason."""
    try:
        connection.wait(lambda: False, timeout=0.05)
    except ConnectionClosed:
        return bool(connection.conn.remote_condition.name == "amqp:connection:forced")
    except Timeout:
        return False
    raise AssertionError


def _clients(suite: Suite, name: str) -> int:
    return int(gateways(suite).get(name, {}).get("counts", {}).get("clients", 0))
