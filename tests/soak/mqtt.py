"""MQTT clients of a soak: a publisher with QoS 2 to a queue, and two consumers that compete for its messages.

Each message has to be completed (PUBREL) by one of the consumers, once, whatever dies meanwhile.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time

from tests.conformance.exchange import Endpoint, Lost, Receiver, Sender
from tests.conformance.wire import PUBCOMP, PUBLISH, PUBREC, PUBREL, ack
from tests.soak.ledger import Flow, Ledger, Taker

QUEUE = "once"
VERSION = 5


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


class Publisher(_Thread):
    """Publishes the messages of a flow, as a sender of the crew does."""

    def __init__(self, port: int, ledger: Ledger, flow: Flow, rate: float) -> None:
        self._sender = Sender(f"soak-{flow.name}", VERSION, lambda: [port], 2)
        super().__init__(ledger, self._sender)
        self.flow = flow
        self._rate = rate
        self._enough = False
        self._idle = True

    def step(self) -> None:
        if self._enough:
            self._idle = True
            self.ended.wait(0.1)
            return
        self._idle = False
        number = self.ledger.fresh(self.flow)
        self.ledger.sends(self.flow, number)
        self._sender.send(QUEUE, b"%s %d" % (self.flow.name.encode(), number))
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
    """Competes for the messages of the queue. A message counts when it is released, as of a client by method A."""

    def __init__(self, port: int, ledger: Ledger, taker: Taker, name: str) -> None:
        self._receiver = Receiver(name, VERSION, lambda: [port], 2)
        super().__init__(ledger, self._receiver)
        self._taker = taker
        self._under_way: dict[int, bytes] = {}

    def subscribe(self) -> None:
        """Subscribe before the first message is sent."""
        self._receiver.subscribe(QUEUE)

    def step(self) -> None:
        receiver = self._receiver
        receiver.connected()
        found = receiver.packet()
        if found.kind == PUBLISH:
            self._under_way.setdefault(found.pid, found.payload)
            receiver.write(ack(PUBREC, found.pid))
        elif found.kind == PUBREL:
            payload = self._under_way.pop(found.pid, None)
            if payload is not None:
                flow, _, number = payload.decode().rpartition(" ")
                self.ledger.received(self._taker, flow, int(number))
            receiver.write(ack(PUBCOMP, found.pid))


class Pair:
    """The publisher and its consumers."""

    def __init__(self, port: int, ledger: Ledger) -> None:
        flow = Flow(f"{QUEUE}/0")
        self.taker = ledger.taker(QUEUE, [flow], exact=True)
        self.publisher = Publisher(port, ledger, flow, rate=30.0)
        self._consumers = [Consumer(port, ledger, self.taker, f"soak-once-{n}-{time.time_ns()}") for n in range(2)]

    def subscribe(self) -> None:
        """Subscribe the consumers, before the publisher starts."""
        for consumer in self._consumers:
            consumer.subscribe()
            consumer.start()

    def close(self) -> None:
        for each in (*self._consumers, self.publisher):
            each.close()
