"""Which consumers settled which messages as `undeliverable-here` (AMQP 1.0 part 3, section 3.4.5)."""

from __future__ import annotations

from services.broker.core.queues.consumer import Consumer


class Exclusions:
    """Exclusions of one queue. An entry ends with its message or with its consumer, whichever ends first."""

    __slots__ = ("_consumers",)

    def __init__(self) -> None:
        self._consumers: dict[int, list[Consumer]] = {}  # by message id

    def __len__(self) -> int:
        """Return number of messages that are excluded from a consumer."""
        return len(self._consumers)

    def ids(self) -> set[int]:
        """Return messages that are excluded from a consumer."""
        return set(self._consumers)

    def add(self, message: int, consumer: Consumer) -> None:
        """Keep a message from a consumer."""
        self._consumers.setdefault(message, []).append(consumer)

    def excludes(self, message: int, consumer: Consumer) -> bool:
        """Return True if the message is not for this consumer."""
        return consumer in self._consumers.get(message, ())

    def rename(self, message: int, new: int) -> None:
        """Note that the message has another id from now on."""
        if message in self._consumers:
            self._consumers[new] = self._consumers.pop(message)

    def forget(self, message: int) -> None:
        """Forget a message that has left the queue."""
        self._consumers.pop(message, None)

    def leave(self, consumer: Consumer) -> None:
        """Forget a consumer that has left the queue."""
        self._lift([id for id, consumers in self._consumers.items() if consumer in consumers], consumer)

    def lift_relays(self, message: int) -> bool:
        """Let routers' links have the message again. Return False if it is not excluded from one."""
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
