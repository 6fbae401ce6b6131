"""Messages that leave their queue without being delivered: to the dead-letter or expiry address, or gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from enmasse.identity.annotations import ORIGINAL_ADDRESS
from enmasse.logs import log
from services.broker.core import errors
from services.broker.core.legal_names import ANYCAST, MULTICAST
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.messages.dead_letter_reasons import Death, Reason, annotation
from services.broker.core.messages.leading_sections import actual_expiry, moved, original_annotations
from services.broker.core.messages.stored_message import DURABLE, PRIORITY_SHIFT, StoredMessage
from services.broker.core.queues.dispatcher import ReadFailure
from services.broker.core.queues.queue import Queue
from services.broker.core.routing.catalogue import Catalogue

_log = log.get()


class Put(Protocol):
    """Sends a message of the broker's own to an address. False: no queue took it."""

    def __call__(self, name: str, payload: bytes, *, durable: bool, priority: int = 4) -> bool: ...


class DeadLetters:
    """Moves of messages that are not delivered."""

    def __init__(self, catalogue: Catalogue, put: Put, wall: Callable[[], int], removed: Callable[[], None]) -> None:
        """`wall`: milliseconds since 1970. `removed`: called after a message has left its queue."""
        self._catalogue = catalogue
        self._put = put
        self._wall = wall
        self._removed = removed

    def expire(self, queue: Queue, message: StoredMessage) -> bool:
        """Move an expired message, already out of the queue's order, to the expiry address, or remove it. Return False
        if it could not be read: it is back in its place, and the queue stops sending until it can be read."""
        settings = queue.address.settings
        target = queue.address.expiry_address
        if target is not None and settings.auto_create_expiry:
            self._make_side_queue(target, queue, settings.expiry_prefix, settings.expiry_suffix)
        now = self._wall()
        done = self._move(queue, message, target, Death(Reason.EXPIRED), actual_expiry(now))
        if done:
            queue.count_expired()
        return done

    def kill(self, queue: Queue, message: StoredMessage, death: Death) -> bool:
        """Move a message that cannot be delivered, already out of the queue's order, to the dead-letter address, or
        remove it. Return False as `expire` does."""
        settings = queue.address.settings
        target = queue.address.dead_letter_address
        if target is not None and settings.auto_create_dead_letter:
            self._make_side_queue(target, queue, settings.dead_letter_prefix, settings.dead_letter_suffix)
        done = self._move(queue, message, target, death, {})
        if done:
            queue.count_killed()
        return done

    def _make_side_queue(self, target: str, queue: Queue, prefix: str, suffix: str) -> None:
        """Make the queue for the messages of one address. If it cannot be made, they go to a queue of the target."""
        name = f"{prefix}{queue.address.name}{suffix}"
        original = queue.address.name.replace("'", "''")
        present = self._catalogue.queues.get(name)
        if present is not None and not self._catalogue.may_give_way(present, target, MULTICAST):
            return
        try:
            self._catalogue.create_queue(
                target,
                name,
                MULTICAST,
                durable=True,
                filter=f"_AMQ_ORIG_ADDRESS='{original}'",
                auto_created=True,
                auto_delete=True,
                auto_create_address=True,
            )
        except errors.BrokerError as error:
            _not_created(target, queue, error)
            if target not in self._catalogue.queues:
                self._make_queue(target, queue)

    def _make_queue(self, target: str, queue: Queue) -> bool:
        """Make an address with a queue of the same name. Return False if that cannot be."""
        try:
            self._catalogue.create_queue(
                target, target, ANYCAST, durable=True, auto_created=True, auto_create_address=True
            )
        except errors.BrokerError as error:
            _not_created(target, queue, error)
            return False
        return True

    def unrouted(self, address: BrokerAddress, payload: bytes, *, durable: bool, priority: int) -> bool:
        """Put a message that no queue of `address` took at the dead-letter address. Return False without such
        an address, or if no queue there takes it."""
        target = address.dead_letter_address
        if target is None:
            return False
        notes = {ORIGINAL_ADDRESS: address.name}
        notes |= annotation(payload, Death(Reason.NO_ROUTE), address.name, self._wall())
        return self._put(target, moved(payload, durable, priority, notes), durable=durable, priority=priority)

    def _move(
        self, queue: Queue, message: StoredMessage, target: str | None, death: Death, annotations: dict[str, Any]
    ) -> bool:
        if target is not None:
            payload = queue.dispatcher.read(message)
            if isinstance(payload, ReadFailure):
                return payload is ReadFailure.LOST
            annotations |= annotation(payload, death, queue.address.name, self._wall())
            self.move_copy(queue, message, payload, target, annotations)
        queue.finish(message)
        self._removed()
        return True

    def move_copy(
        self, queue: Queue, message: StoredMessage, payload: bytes, target: str, annotations: dict[str, Any]
    ) -> bool:
        """Put a copy at another address, with annotations that name the message's origin. Return False if no queue
        there took it."""
        # If a dead-letter or expiry address is named but does not exist, making it beats losing the message.
        if self._catalogue.route(target, None) is None and not self._make_queue(target, queue):
            queue.count_lost()
            return False
        durable = bool(message.flags & DURABLE)
        priority = message.flags >> PRIORITY_SHIFT
        copy = self.copy(queue, message, payload, annotations)
        return self._put(target, copy, durable=durable, priority=priority)

    def copy(self, queue: Queue, message: StoredMessage, payload: bytes, annotations: dict[str, Any]) -> bytes:
        """Return a copy for another address, with annotations that name the message's origin."""
        notes = original_annotations(payload, queue.name, queue.address.name, queue.routing_type) | annotations
        return moved(payload, bool(message.flags & DURABLE), message.flags >> PRIORITY_SHIFT, notes)


def _not_created(target: str, queue: Queue, error: errors.BrokerError) -> None:
    _log.warning(
        "broker.dead-letter-queue.not-created",
        target=target,
        queue=queue.name,
        reason=str(error),
        space=queue.address.tenant,
    )
