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
from proton import ConnectionException, Message, Timeout
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector
from proton.utils import BlockingConnection

from enmasse.testing import Suite, running, wait_for
from tests.kit.processes import COMMAND, run, start
from tests.kit.waiting import DEADLINE
from tests.system.mqtt_devices import PATIENCE, SOME, Device, check, publishing
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


class Steady(MessagingHandler):
    """Proton's reconnecting handler, without heartbeats: it sends to a queue, the next message once the one before is
    accepted, and receives from it. `longest`: seconds between two that were accepted."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__()
        self._url, self._queue = url, queue
        self._due = True
        self._last: float | None = None
        self.sent = 1
        self.doubtful = 0
        self.accepted: set[int] = set()
        self.came: Counter[int] = Counter()
        self.longest = 0.0
        self._container, self._commands = Container(self), EventInjector()
        self._container.selectable(self._commands)
        self._thread = threading.Thread(target=self._container.run, daemon=True)
        self._thread.start()

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._url)
        self._sender = event.container.create_sender(connection, self._queue)
        event.container.create_receiver(connection, self._queue)

    def on_link_opened(self, event: Any) -> None:
        if event.link.is_sender and not self._due:  # the message before was not answered
            self._due = True
            self.doubtful += 1

    def on_sendable(self, event: Any) -> None:
        self._send()

    def on_accepted(self, event: Any) -> None:
        now = time.monotonic()
        self.longest, self._last = max(self.longest, now - (self._last or now)), now
        self.accepted.add(self.sent)
        self.sent += 1
        self._due = True
        self._send()

    def on_released(self, event: Any) -> None:
        self._due = True
        event.container.schedule(0.05, self)

    def on_timer_task(self, event: Any) -> None:
        self._send()

    def _send(self) -> None:
        if self._due and self._sender.credit:
            self._due = False
            self._sender.send(Message(body=self.sent, durable=True))

    def on_message(self, event: Any) -> None:
        self.came[event.message.body] += 1

    def on_leaves(self, event: Any) -> None:
        self._container.stop()

    def more(self) -> Callable[[], bool]:
        before = len(self.accepted)
        return lambda: len(self.accepted) > before + SOME

    def end(self) -> None:
        self._commands.trigger(ApplicationEvent("leaves"))
        self._thread.join(DEADLINE)


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
            check(reader, sent, publishers)
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


def test_who_is_stopped_by_a_signal_holds_clients_up_for_a_moment_only(suite: Suite) -> None:
    """SIGSTOP of each router, gateway and broker in turn, and a router that hands its clients on."""
    scale(suite, "routers", 2)
    scale(suite, "gateways", 2)
    steady = Steady(suite.url, "orders")
    publishers, reader = [Roamer("p5", suite.mqtt_port), Roamer("p4", suite.mqtt_port, 4)], Roamer("r", suite.mqtt_port)
    for device in (*publishers, reader):
        device.connect()
    reader.subscribe("mytopic/+/state", 2)
    kinds = ("router", "mqtt_gateway", "broker")
    try:
        with publishing(list(publishers), "mytopic") as work:
            wait_for("messages are accepted", steady.more(), PATIENCE)
            for victim in [each for each in suite.status()["components"] if each["kind"] in kinds]:
                steady.longest, began = 0.0, time.monotonic()
                os.kill(victim["pid"], signal.SIGSTOP)
                wait_for("it is started again", lambda v=victim: _is_another(suite, v), PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default
                again = time.monotonic() - began
                wait_for("messages are accepted", steady.more(), PATIENCE)
                wait_for("messages arrive", more(reader), PATIENCE)
                print(f"{victim['name']}: ready after {again:.1f} s, longest gap of Proton {steady.longest:.2f} s")
            steady.longest = 0.0
            for count in (1, 2, 1):
                scale(suite, "routers", count)
                wait_for("messages are accepted", steady.more(), PATIENCE)
            print(f"routers that leave: longest gap of Proton {steady.longest:.2f} s")
        sent = Counter(text for publisher in work for text in publisher.sent)
        wait_for("all is acknowledged", lambda: sum(len(d.acknowledged) for d in publishers) == len(sent), PATIENCE)
        wait_for("all has come", lambda: reader.got.keys() >= sent.keys(), PATIENCE)
        check(reader, sent, publishers)
        wait_for("all accepted has come", lambda: steady.came.keys() >= steady.accepted, PATIENCE)
    finally:
        steady.end()
        gaps = sorted(gap for device in (*publishers, reader) for gap in device.gaps)
        print(f"longest gaps of MQTT clients: {gaps[-4:]}, {len(steady.accepted)} accepted, doubtful {steady.doubtful}")
        for device in (*publishers, reader):
            device.end()


def _is_another(suite: Suite, before: dict[str, Any]) -> bool:
    found = [each for each in suite.status()["components"] if each["name"] == before["name"]]
    return bool(found and found[0]["ready"] and found[0]["pid"] != before["pid"])


def _closed(connection: BlockingConnection) -> bool:
    """Whether a router has ended the connection."""
    try:
        connection.wait(lambda: False, timeout=0.05)
    except Timeout:
        return False
    except AttributeError:  # of Proton, if its heartbeat is due when the stream ends
        return True
    except ConnectionException:
        condition = connection.conn.remote_condition
        return condition is None or condition.name == "amqp:connection:forced"
    raise AssertionError


def _clients(suite: Suite, name: str) -> int:
    return int(gateways(suite).get(name, {}).get("counts", {}).get("clients", 0))
