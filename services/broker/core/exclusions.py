"""Who has said `undeliverable-here` of which message (AMQP 1.0 part 3, section 3.4.5), and who is left to take it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from services.broker.core.backlog import Slice
from services.broker.core.choice import suits
from services.broker.core.consumer import Consumer
from services.broker.core.stored_message import StoredMessage

if TYPE_CHECKING:
    from services.broker.core.queue import Queue


class Exclusions:
    """Of one queue. An entry goes with its message and with its consumer, whichever goes first."""

    __slots__ = ("_consumers",)

    def __init__(self) -> None:
        self._consumers: dict[int, list[Consumer]] = {}  # by message id

    def __len__(self) -> int:
        """Messages that are excluded from somebody."""
        return len(self._consumers)

    def add(self, message: int, consumer: Consumer) -> None:
        self._consumers.setdefault(message, []).append(consumer)

    def excludes(self, message: int, consumer: Consumer) -> bool:
        return consumer in self._consumers.get(message, ())

    def forget(self, message: int) -> None:
        """The message is gone."""
        self._consumers.pop(message, None)

    def leave(self, consumer: Consumer) -> None:
        """The consumer is gone."""
        self._lift([id for id, consumers in self._consumers.items() if consumer in consumers], consumer)

    def lift_relays(self, message: int) -> bool:
        """Routers' links may have the message again. False: it is excluded from none."""
        relays = [consumer for consumer in self._consumers.get(message, ()) if consumer.relay]
        for consumer in relays:
            self._lift([message], consumer)
        return bool(relays)

    def _lift(self, messages: list[int], consumer: Consumer) -> None:
        for message in messages:
            consumers = self._consumers[message]
            consumers.remove(consumer)
            if not consumers:
                del self._consumers[message]

    def waiting(self, queue: Queue) -> Iterator[StoredMessage]:
        """Those of its messages that wait in the queue, neither scheduled nor being delivered."""
        ids = set(self._consumers)
        for part in queue.parts():
            if isinstance(part, Slice):
                yield from (m for m in part.messages() if m.id in ids) if part.holds(ids) else ()
            else:
                yield from (m for m in part if m.id in ids)


def has_taker(queue: Queue, message: StoredMessage) -> bool:
    """Whether a consumer is there that may have the message. The link of a router stands for consumers only while it
    has credit, or messages that are not settled."""
    for consumer in queue.consumers[:1] if queue.exclusive else queue.consumers:
        if consumer.relay and consumer.outlet.credit <= 0 and not consumer.unsettled:
            continue
        try:
            if suits(queue, consumer, message):
                return True
        except OSError:
            return True  # the queue stands still until that is known, and looks again then
    return False
