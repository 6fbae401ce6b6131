"""Clients of all kinds while routers and gateways come and go: they connect again at once, and say how long that took.

`Fleet` has them all, and counts: `check()` says whether what was accepted has come, and as often as promised.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from paho.mqtt.client import MQTTMessage
from proton import Message
from proton.handlers import IOHandler, MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

from enmasse.testing import Suite, wait_for
from tests.kit.eager_up import BURNING
from tests.kit.processes import COMMAND, start
from tests.kit.waiting import DEADLINE
from tests.load import Consumer, Producer
from tests.system.mqtt_devices import PATIENCE, SOME, Device, check, publishing

ADDRESSES = {
    "mytopic": {"type": "topic", "flavor": "small-persisted-topic"},
    "orders": {"type": "queue", "flavor": "small-persisted-queue"},
    "jobs": {"type": "queue", "flavor": "small-persisted-queue"},
    "slow": {"type": "queue", "flavor": "small-persisted-queue"},
    "news": {"type": "topic", "flavor": "small-persisted-topic"},
    "calls": {"type": "anycast"},
    "burning": {"type": "topic", "flavor": "vanilla-topic"},
}
KINDS = {"routers": "router", "gateways": "mqtt_gateway"}
"""As `enmasse scale` names them → kind of their processes."""


PAUSE = 0.05
"""Seconds between two messages of a client: little work, so that processes may go by load meanwhile."""


class Resilient(IOHandler):
    """Proton's input and output. Where the end of a stream meets a heartbeat that is due, Proton 0.40 raises an
    AttributeError, for ever at the same event."""

    def on_selectable_expired(self, event: Any) -> None:
        with contextlib.suppress(AttributeError):
            super().on_selectable_expired(event)


class Longest:
    """Longest time between two moments."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last: float | None = None

    def note(self) -> None:
        """Note a moment."""
        now = time.monotonic()
        self.seconds, self._last = max(self.seconds, now - (self._last or now)), now

    def reset(self) -> None:
        """Begin to look from now on."""
        self.seconds = 0.0


class Roamer(Device):
    """A device that connects again at once. `gaps`: seconds from each loss of its connection to the next one;
    `reasons`: why it was closed, of MQTT 5. `slow`: it takes a message after the other, with a pause."""

    def __init__(self, name: str, port: int, version: int = 5, *, slow: bool = False, host: str = "localhost") -> None:
        super().__init__(name, port, version, host=host)
        self.gaps: list[float] = []
        self.reasons: Counter[str] = Counter()
        self.acked, self.came = Longest(), Longest()
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

    def _on_publish(self, client: Any, data: Any, packet_id: int, reason: Any, properties: Any) -> None:
        super()._on_publish(client, data, packet_id, reason, properties)
        self.acked.note()

    def _on_message(self, client: Any, data: Any, message: MQTTMessage) -> None:
        if self._slow:
            self._pause.wait(0.02)
        super()._on_message(client, data, message)
        self.came.note()


class Steady(MessagingHandler):
    """Proton's reconnecting handler, without heartbeats: it sends to a queue, the next message once the one before is
    accepted and after a pause, and receives from it. `longest`: seconds between two that were accepted."""

    def __init__(self, url: str, queue: str, pause: float = PAUSE) -> None:
        super().__init__()
        self._url, self._queue, self._pause = url, queue, pause
        self._due = True
        self._delivery: Any = None
        self._last: float | None = None
        self.sent = 1
        self.doubtful = 0
        self.accepted: set[int] = set()
        self.came: Counter[int] = Counter()
        self.longest = 0.0
        self._container, self._commands = Container(self, global_handler=Resilient()), EventInjector()
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
        if event.delivery != self._delivery:  # of the connection before: Proton has sent it again by itself
            return
        now = time.monotonic()
        self.longest, self._last = max(self.longest, now - (self._last or now)), now
        self.accepted.add(self.sent)
        self.sent += 1
        self._due = True
        event.container.schedule(self._pause, self)

    def on_released(self, event: Any) -> None:
        self._due = True
        event.container.schedule(self._pause, self)

    def on_timer_task(self, event: Any) -> None:
        self._send()

    def _send(self) -> None:
        if self._due and self._sender.credit:
            self._due = False
            self._delivery = self._sender.send(Message(body=self.sent, durable=True))

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


class Idle(MessagingHandler):
    """Connections of Proton that do nothing, and connect again when they are lost. `gaps`: seconds until they had."""

    def __init__(self, url: str, count: int) -> None:
        super().__init__()
        self.gaps: list[float] = []
        self.opened = 0
        self._url, self._count = url, count
        self._lost: dict[Any, float] = {}
        self._container, self._commands = Container(self, global_handler=Resilient()), EventInjector()
        self._container.selectable(self._commands)
        self._thread = threading.Thread(target=self._container.run, daemon=True)
        self._thread.start()

    def on_start(self, event: Any) -> None:
        for number in range(self._count):
            connection = event.container.connect(self._url, heartbeat=DEADLINE)
            event.container.create_receiver(connection, f"news/idle/{number}")

    def on_link_opened(self, event: Any) -> None:
        self.opened += 1
        lost = self._lost.pop(event.link.source.address, None)
        if lost is not None:
            self.gaps.append(time.monotonic() - lost)

    def on_disconnected(self, event: Any) -> None:
        link = event.connection.link_head(0)
        if link is not None:
            self._lost.setdefault(link.source.address, time.monotonic())

    def on_leaves(self, event: Any) -> None:
        self._container.stop()

    def end(self) -> None:
        self._commands.trigger(ApplicationEvent("leaves"))
        self._thread.join(DEADLINE)


class Timed(Producer):
    """`longest`: between two messages that were accepted."""

    def __init__(self, url: str, address: str, rate: float) -> None:
        super().__init__(url, address, rate=rate)
        self.longest = Longest()

    def was_accepted(self, number: int) -> None:
        super().was_accepted(number)
        self.longest.note()


class Slow(Consumer):
    """Takes a message after the other, with a pause."""

    def take(self, body: Any) -> None:
        super().take(body)
        # pause: of a slow client
        time.sleep(0.01)


class Fleet:
    """All kinds of clients, of AMQP at `url` and of MQTT at `host` and `port`; they begin at once. `idle`: connections
    of AMQP and of MQTT that do nothing."""

    def __init__(self, url: str, port: int, host: str = "localhost", idle: int = 12) -> None:
        roamer = partial(Roamer, port=port, host=host)
        self.publishers = [roamer("new"), roamer("old", version=4)]
        self.readers = [roamer("reader"), roamer("reader-old", version=4), roamer("slow", slow=True)]
        self.idle = [roamer(f"idle-{number}", version=4 if number % 2 else 5) for number in range(idle)]
        self.devices = [*self.publishers, *self.readers, *self.idle]
        self.producers = [Timed(url, address, 1 / PAUSE) for address in ("orders", "slow", "news", "calls")]
        durable = Consumer(url, "news", container_id="fleet", subscription="fleet")
        self.consumers = [Consumer(url, "orders"), Slow(url, "slow"), durable, Consumer(url, "calls")]
        for device in self.devices:
            device.connect()
        for reader in self.readers:
            reader.subscribe("mytopic/+/state", 2)
        self.steady = Steady(url, "jobs")
        self.still = Idle(url, idle)
        for consumer in self.consumers:
            consumer.start()
        durable.wait_attached()
        for producer in self.producers:
            producer.start()
        self._publishing = ExitStack()
        self._work = self._publishing.enter_context(publishing(list(self.publishers), "mytopic", PAUSE))

    def goes_on(self) -> None:
        """Wait until something more is accepted from, or has come to, each that sends or receives."""
        waits = [self.steady.more(), *(more(reader) for reader in self.readers)]
        waits += [_accepted(producer) for producer in self.producers]
        for wait in waits:
            wait_for("messages arrive", wait, PATIENCE)

    def gaps(self) -> dict[str, float]:
        """Return the longest gap of each kind of client since the last call, in seconds."""
        found = {
            "AMQP accepted, one after the other": [self.steady.longest],
            "AMQP accepted, many": [each.longest.seconds for each in self.producers],
            "AMQP idle": self.still.gaps,
            "MQTT acknowledged": [each.acked.seconds for each in self.publishers],
            "MQTT connected": [gap for each in self.devices for gap in each.gaps],
        }
        longest = {kind: round(max(gaps, default=0.0), 2) for kind, gaps in found.items()}
        self.steady.longest = 0.0
        self.still.gaps.clear()
        for each in self.producers:
            each.longest.reset()
        for device in self.devices:
            device.acked.reset()
            device.gaps.clear()
        return longest

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Say how long a step took, and the longest gap of each kind of client meanwhile."""
        self.gaps()
        began = time.monotonic()
        yield
        gaps = ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in self.gaps().items())
        took = time.monotonic() - began
        print(f"{name}: {took:.0f} s, load {os.getloadavg()[0]:.0f}; longest gaps in s: {gaps}", flush=True)

    def check(self) -> str:
        """All stop sending; what was accepted has come, and as often as promised. Return the counts."""
        self._publishing.close()
        sent = Counter(text for publisher in self._work for text in publisher.sent)
        devices = self.publishers
        wait_for("all is acknowledged", lambda: sum(len(d.acknowledged) for d in devices) == len(sent), PATIENCE)
        for reader in self.readers:
            wait_for("all has come", lambda reader=reader: reader.got.keys() >= sent.keys(), PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default
            check(reader, sent, devices)
        wait_for("all accepted has come", lambda: self.steady.came.keys() >= self.steady.accepted, PATIENCE)
        for producer, consumer in zip(self.producers, self.consumers, strict=True):
            producer.enough()
            producer.wait_end()
            consumer.wait_all(producer)
            assert producer.accepted == consumer.seen.keys() == set(range(producer.sent))
        accepted = [len(self.steady.accepted), *(producer.sent for producer in self.producers)]
        doubles = [consumer.doubles for consumer in self.consumers]
        reasons = sum((device.reasons for device in self.devices), Counter())
        return (
            f"{len(sent)} MQTT messages of QoS 2, each once at {len(self.readers)} readers; {sum(accepted)} of AMQP "
            f"accepted, none lost, {sum(doubles)} twice; MQTT closed by {dict(reasons)}"
        )

    def end(self) -> None:
        """End all clients."""
        self._publishing.close()
        self.steady.end()
        self.still.end()
        for client in (*self.producers, *self.consumers):
            client.abandon()
        for device in self.devices:
            device.end()


def more(reader: Roamer) -> Callable[[], bool]:
    before = len(reader.got)
    return lambda: len(reader.got) > before + SOME


def _accepted(producer: Producer) -> Callable[[], bool]:
    before = len(producer.accepted)
    return lambda: len(producer.accepted) > before + SOME


def scale_both(suite: Suite, count: str) -> None:
    """Set the number of routers and of gateways at the same moment, and wait until it is so."""
    offset = ("--port-offset", str(suite.offset))
    scaling = [start(COMMAND, "scale", service, count, *offset) for service in KINDS]
    for process in scaling:
        assert process.wait(PATIENCE) == 0


def running_of(suite: Suite, kind: str) -> list[dict[str, Any]]:
    """Return the processes of a kind that are ready and do not leave."""
    found = suite.status()["components"]
    return [each for each in found if each["kind"] == kind and each["ready"] and not each["leaving"]]


def wait_spread(suite: Suite) -> None:
    """Wait until routers and gateways that came have clients, if not each of them: which one a client comes to is
    chance."""
    for kind in KINDS.values():
        wait_for(f"{kind}: clients spread", lambda kind=kind: any(map(_clients, running_of(suite, kind)[1:])), PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default


def _clients(component: dict[str, Any]) -> int:
    return int(component["counts"].get("clients", 0))


def wait_number(suite: Suite, count: int) -> None:
    """Wait until there are so many routers and so many gateways."""
    for kind in KINDS.values():
        wait_for(f"{count} of {kind}", lambda kind=kind: len(running_of(suite, kind)) == count, 2 * PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default


@contextmanager
def burning(suite: Suite, pairs: int) -> Iterator[None]:
    """Keep routers and gateways busy: programs that send as fast as they can, and connect again when they are moved, as
    many over MQTT as over AMQP."""
    (suite.folder / BURNING).touch()
    offset = ("--port-offset", str(suite.offset), "--count", "1000000000")
    commands = [("send", "burning", "x", "--non-durable", *offset), ("publish", "burning", "x", "--qos", "0", *offset)]
    programs = [start(COMMAND, *command) for command in commands * pairs]
    try:
        yield
    finally:
        (suite.folder / BURNING).unlink()
        for program in programs:
            program.kill()
        for program in programs:
            program.wait(DEADLINE)
