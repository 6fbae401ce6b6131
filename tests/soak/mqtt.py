"""MQTT clients of a soak: publishers with QoS 1 and 2 to a queue and a topic, consumers that compete for the queue's
messages, subscribers of the topic, and a publisher of retained values.

Each message of QoS 2 has to be completed (PUBREL) by one of the consumers, and by each subscriber with QoS 2, once,
whatever dies meanwhile.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable

from tests.conformance.exchange import Endpoint, Lost, Receiver, Sender
from tests.conformance.wire import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, Raw, ack
from tests.soak.ledger import Flow, Ledger, Taker

QUEUE, TOPIC, STATE, TURN = "once", "feed/data", "feed/state", "turn"
VERSION = 5
RATE = 30.0
"""Messages a second of each publisher, at most; of the one of retained values:"""
STATE_RATE = 10.0
KEYS = 5
LOOK = 10.0
"""Seconds in which the retained values come to a new subscriber."""


class _Thread:
    """Runs one endpoint until `stop`; whatever an endpoint does not expect is a violation."""

    def __init__(self, ledger: Ledger, endpoint: Endpoint) -> None:
        endpoint.deadline = math.inf  # the soak itself judges how long it takes
        self.ledger = ledger
        self.endpoint = endpoint
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=endpoint.client, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the client; it may wait for a packet for some seconds before."""
        self.ended.set()
        raw = self.endpoint.raw
        if raw is not None:
            raw.cut()
        self._thread.join(30)

    def _run(self) -> None:
        try:
            while not self.ended.is_set():
                with contextlib.suppress(Lost):
                    self.step()
        except Exception as error:
            if not self.ended.is_set():
                self.ledger.broken(f"{self.endpoint.client}: {type(error).__name__}: {error}")

    def step(self) -> None:
        """One exchange, or one packet. Raises Lost."""
        raise NotImplementedError


class _Counted(Sender):
    """Tells of each further copy: of QoS 1 each may arrive."""

    def __init__(self, client: str, port: int, qos: int, again: Callable[[], None]) -> None:
        super().__init__(client, VERSION, lambda: [port], qos)
        self._again = again

    def resume(self) -> None:
        if self.stage == "published" and self.qos == 1:
            self._again()
        super().resume()


class Publisher(_Thread):
    """Publishes the messages of a flow, as a sender of the crew does."""

    def __init__(self, port: int, ledger: Ledger, flow: Flow, topic: str, qos: int, rate: float) -> None:
        self.flow = flow
        self._sender = _Counted(f"soak-{flow.name}", port, qos, self._again)
        super().__init__(ledger, self._sender)
        self._topic, self._rate = topic, rate
        self._number = 0
        self._enough = False
        self._idle = True

    def _again(self) -> None:
        self.ledger.sends(self.flow, self._number)

    def step(self) -> None:
        if self._enough:
            self._idle = True
            self.ended.wait(0.1)
            return
        self._idle = False
        self._number = number = self.ledger.fresh(self.flow)
        self.ledger.sends(self.flow, number)
        self._sender.send(self._topic, b"%s %d" % (self.flow.name.encode(), number))
        self.ledger.accepts(self.flow, number)
        self.ended.wait(1 / self._rate)

    def enough(self) -> None:
        """Begin no further message."""
        self._enough = True

    def finished(self) -> bool:
        """Return whether every message that was begun is complete."""
        return self._enough and self._idle

    def describe(self) -> str:
        return f"{self.endpoint.client} stands at {self._sender.stage}"


class Consumer(_Thread):
    """Competes for the messages of a queue, or has a subscription of a topic, in a session that is kept. A message of
    QoS 2 counts when it is released, as of a client by method A."""

    def __init__(self, port: int, ledger: Ledger, taker: Taker, name: str, topic: str, qos: int) -> None:
        self._receiver = Receiver(name, VERSION, lambda: [port], qos)
        super().__init__(ledger, self._receiver)
        self._taker, self._topic = taker, topic
        self._under_way: dict[int, bytes] = {}

    def subscribe(self) -> None:
        """Subscribe before the first message is sent."""
        self._receiver.subscribe(self._topic)

    def step(self) -> None:
        receiver = self._receiver
        receiver.connected()
        found = receiver.packet()
        if found.kind == PUBLISH and found.qos == 1:
            self._counts(found.payload)
            receiver.write(ack(PUBACK, found.pid))
        elif found.kind == PUBLISH:
            self._under_way.setdefault(found.pid, found.payload)
            receiver.write(ack(PUBREC, found.pid))
        elif found.kind == PUBREL:
            payload = self._under_way.pop(found.pid, None)
            if payload is not None:
                self._counts(payload)
            receiver.write(ack(PUBCOMP, found.pid))

    def _counts(self, payload: bytes) -> None:
        flow, _, number = payload.partition(b";")[0].decode().rpartition(" ")  # AMQP senders repeat it
        self.ledger.received(self._taker, flow, int(number))


class Keeper(_Thread):
    """Publishes retained values with QoS 1, each higher than the one before."""

    def __init__(self, port: int, ledger: Ledger) -> None:
        self._sender = Sender("soak-state", VERSION, lambda: [port], 1)
        super().__init__(ledger, self._sender)
        self._port = port
        self._value = 0
        self.trouble = ""
        """Why the last subscriber got nothing, if it could not subscribe."""
        self.acknowledged: dict[str, int] = {}
        """The newest value of each topic that is acknowledged."""

    def step(self) -> None:
        self._value += 1
        topic = f"{STATE}/{self._value % KEYS}"
        self._sender.send(topic, b"%d" % self._value, retain=True)
        self.acknowledged[topic] = self._value
        self.ended.wait(1 / STATE_RATE)

    def stale(self) -> dict[str, tuple[int, int]]:
        """What a new subscriber gets that is older than what was acknowledged before: topic → got (0 for nothing),
        acknowledged."""
        wanted = dict(self.acknowledged)
        got = dict.fromkeys(wanted, 0)
        self.trouble = ""
        try:
            raw = Raw("127.0.0.1", self._port, VERSION)
            try:
                raw.open(f"soak-look-{time.time_ns()}")
                granted = raw.subscribe((f"{STATE}/#", 1))
                assert granted.codes == (1,), granted
                end = time.monotonic() + LOOK
                while time.monotonic() < end and any(got[topic] < value for topic, value in wanted.items()):
                    found = raw.next(LOOK)
                    if found is None:
                        break
                    if found.kind == PUBLISH and found.retain:
                        got[found.topic] = max(got.get(found.topic, 0), int(found.payload))
            finally:
                raw.cut()
        except (OSError, AssertionError) as error:
            self.trouble = f"{type(error).__name__}: {error}"
        return {topic: (got[topic], value) for topic, value in wanted.items() if got[topic] < value}


class Devices:
    """All MQTT clients: two consumers of a queue, a subscriber with QoS 1 and one with QoS 2 of a topic, and one of the
    address that is a queue or a topic, where AMQP clients send (`turn`) and receive, too."""

    def __init__(self, port: int, ledger: Ledger, speed: float, turn: Flow) -> None:
        once, first, second = Flow(f"{QUEUE}/0"), Flow(f"{TOPIC}/qos1"), Flow(f"{TOPIC}/qos2")
        rate = RATE * speed
        self.publishers = [
            Publisher(port, ledger, once, QUEUE, 2, rate),
            Publisher(port, ledger, first, f"{TOPIC}/a", 1, rate),
            Publisher(port, ledger, second, f"{TOPIC}/b", 2, rate),
        ]
        turns = [Flow(f"{TURN}/qos{qos}") for qos in (1, 2)]
        self.publishers += [
            Publisher(port, ledger, flow, f"{TURN}/data", qos, RATE) for qos, flow in enumerate(turns, start=1)
        ]
        self.turn = ledger.taker(TURN, [turn, *turns], each=True)
        queue = ledger.taker(QUEUE, [once], exact=True)
        at_least, exact = (
            ledger.taker("feed: QoS 1", [first, second]),
            ledger.taker("feed: QoS 2", [second], exact=True),
        )
        self.takers = [queue, at_least, exact, self.turn]
        run = time.time_ns()
        self._consumers = [
            *(Consumer(port, ledger, queue, f"soak-once-{n}-{run}", QUEUE, 2) for n in range(2)),
            Consumer(port, ledger, at_least, f"soak-feed-1-{run}", f"{TOPIC}/#", 1),
            Consumer(port, ledger, exact, f"soak-feed-2-{run}", f"{TOPIC}/b", 2),
            Consumer(port, ledger, self.turn, f"soak-turn-{run}", f"{TURN}/#", 1),
        ]
        self.keeper = Keeper(port, ledger)

    def subscribe(self) -> None:
        """Subscribe the consumers, before the publishers start."""
        for consumer in self._consumers:
            consumer.subscribe()
            consumer.start()
        self.keeper.start()

    def close(self) -> None:
        for each in (self.keeper, *self._consumers, *self.publishers):
            each.close()
