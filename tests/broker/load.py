"""Clients that keep a broker busy in a thread and count what was acknowledged, until it is gone or they stop."""

from __future__ import annotations

import threading
from typing import Any

from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from tests.kit.waiting import DEADLINE


class _Client(MessagingHandler):
    def __init__(self, url: str, address: str, **options: Any) -> None:
        super().__init__(**options)
        self.url = url
        self.address = address
        self.over = threading.Event()
        self.rounds = 0  # of its timer
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            Container(self).run()
        finally:
            self.over.set()

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.url, reconnect=False)
        self.open(event.container, connection)
        event.container.schedule(0.05, self)

    def open(self, container: Container, connection: Any) -> None:
        raise NotImplementedError

    def on_timer_task(self, event: Any) -> None:
        self.rounds += 1
        if self._stop:
            event.container.stop()
        else:
            event.container.schedule(0.05, self)

    def on_disconnected(self, event: Any) -> None:
        event.container.stop()

    on_transport_error = on_disconnected

    def stop(self) -> None:
        self._stop = True
        assert self.over.wait(DEADLINE)


class Sender(_Client):
    """Sends durable messages with bodies 0, 1, 2 … up to `limit`; `accepted` are those the broker answered for."""

    def __init__(self, url: str, address: str, limit: int = 1_000_000_000, size: int = 0, durable: bool = True) -> None:
        self.sent = 0
        self.limit = limit
        self.filler = "x" * size
        self.durable = durable
        self.accepted: set[int] = set()
        self.refused = 0
        self._numbers: dict[Any, int] = {}
        super().__init__(url, address)

    def open(self, container: Container, connection: Any) -> None:
        container.create_sender(connection, self.address)

    def on_sendable(self, event: Any) -> None:
        self._send(event.sender)

    def _send(self, link: Any) -> None:
        while link.credit and self.sent < self.limit and link.queued < 200:
            delivery = link.send(Message(body=[self.sent, self.filler], durable=self.durable, id=str(self.sent)))
            self._numbers[delivery.tag] = self.sent
            self.sent += 1

    def on_settled(self, event: Any) -> None:
        number = self._numbers.pop(event.delivery.tag)
        if event.delivery.remote_state == Delivery.ACCEPTED:
            self.accepted.add(number)
        else:
            self.refused += 1
        self._send(event.link)


class Receiver(_Client):
    """Receives and accepts; `got` has the number of deliveries of each body."""

    def __init__(self, url: str, address: str, credit: int = 100) -> None:
        self.got: dict[int, int] = {}
        self.count = 0
        self.counted = 0  # deliveries that said there had been others before
        super().__init__(url, address, prefetch=credit)

    def open(self, container: Container, connection: Any) -> None:
        container.create_receiver(connection, self.address)

    def on_message(self, event: Any) -> None:
        number = event.message.body[0]
        self.got[number] = self.got.get(number, 0) + 1
        self.counted += event.message.delivery_count > 0
        self.count += 1
