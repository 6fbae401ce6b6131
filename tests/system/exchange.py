"""One message through each of many addresses over one connection: receivers first, then senders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from tests.kit.waiting import DEADLINE


class Exchange(MessagingHandler):
    """Sends every address its own name; `got` and `accepted` count by address, `failed` says what went wrong."""

    def __init__(self, url: str, addresses: Iterable[str], seconds: float = DEADLINE) -> None:
        super().__init__(prefetch=10)
        self.url, self.addresses, self.seconds = url, set(addresses), seconds
        self.got: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self.failed: list[str] = []
        self._opened = 0
        self._sent: set[str] = set()
        self._connection: Any = None
        self._deadline: Any = None

    def run(self) -> None:
        Container(self).run()

    def on_start(self, event: Any) -> None:
        self._connection = event.container.connect(self.url, reconnect=False)
        for address in self.addresses:
            event.container.create_receiver(self._connection, address, name=f"from {address}")
        self._deadline = event.container.schedule(self.seconds, self)

    def on_timer_task(self, event: Any) -> None:
        missing = sorted(self.addresses - self.got.keys())
        self.failed.append(f"no message within {self.seconds} s from {missing}")
        self._connection.close()

    def on_link_opened(self, event: Any) -> None:
        if event.link.is_receiver:
            self._opened += 1
            if self._opened == len(self.addresses):
                for address in self.addresses:
                    event.container.create_sender(self._connection, address, name=f"to {address}")

    def on_sendable(self, event: Any) -> None:
        address = event.link.target.address
        if address not in self._sent:
            self._sent.add(address)
            event.link.send(Message(body=address, durable=True))

    def on_accepted(self, event: Any) -> None:
        self.accepted[event.link.target.address] += 1
        self._look()

    def on_message(self, event: Any) -> None:
        if event.message.body != event.link.source.address:
            self.failed.append(f"{event.message.body} came from {event.link.source.address}")
        self.got[event.message.body] += 1
        self._look()

    def _look(self) -> None:
        if len(self.got) == len(self.accepted) == len(self.addresses):
            self._deadline.cancel()
            self._connection.close()

    def on_rejected(self, event: Any) -> None:
        self.failed.append(f"{event.link.name}: rejected")

    def on_released(self, event: Any) -> None:
        self.failed.append(f"{event.link.name}: released or modified")

    def on_link_error(self, event: Any) -> None:
        self.failed.append(f"{event.link.name}: {event.link.remote_condition}")

    def on_connection_error(self, event: Any) -> None:
        self.failed.append(str(event.connection.remote_condition))
        self._deadline.cancel()

    def on_transport_error(self, event: Any) -> None:
        self.failed.append(str(event.transport.condition))
        self._deadline.cancel()


def exchange(url: str, addresses: Iterable[str]) -> None:
    """Fails unless every address carries exactly its one message, accepted."""
    one = Exchange(url, addresses)
    one.run()
    assert not one.failed, one.failed
    assert one.got == one.accepted == Counter(one.addresses)
