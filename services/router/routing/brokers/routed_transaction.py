"""A transaction of a client in the router, and what it may take at a broker that limits none itself."""

from __future__ import annotations

from typing import Any, Protocol

from enmasse.amqp.codec.errors import RESOURCE_LIMIT_EXCEEDED, AmqpError
from enmasse.amqp.codec.performatives import TransactionalState
from enmasse.amqp.messages.transaction_limits import BYTES, BYTES_OF_SPACE, OPERATIONS, used
from services.router.routing.connection import RouterConnection


class WorkLink(Protocol):
    """A link on which a client sends in transactions."""

    def is_sending(self, work: RoutedTransaction) -> bool:
        """Return whether a message of a transaction has not left whole. Then `ClientCoordinator.proceed` is called when
        that may have changed."""


_NONE: Any = None


class RoutedTransaction:
    """A transaction. `name`: its id at its broker; `foreign`: the broker has made that id, and sets no limits; `state`:
    of messages to such a broker; `links`: on which messages of it are sent; `unanswered`: those that a foreign broker
    has not answered; `error`: why it can only be rolled back; `ends`: its discharge has come; `timer`: its time at a
    foreign broker."""

    __slots__ = (
        "_held",
        "_operations",
        "_user",
        "ends",
        "error",
        "foreign",
        "id",
        "links",
        "name",
        "state",
        "timer",
        "unanswered",
    )

    def __init__(self, id: bytes) -> None:
        self.id = self.name = id
        self.foreign = False
        self.state: TransactionalState = _NONE
        self.links: set[WorkLink] = set()
        self.error: AmqpError | None = None
        self.ends = False
        self.unanswered = 0
        self.timer: Any = None
        self._user = b""
        self._operations = self._held = 0

    def named(self, name: bytes, user: bytes, timer: Any) -> None:
        """Note the id that a broker has made for the transaction."""
        self.name, self._user, self.timer, self.foreign = name, user, timer, True
        self.state = TransactionalState(txn_id=name)

    def count(self, container: RouterConnection, operations: int, size: int = 0) -> None:
        """Count what the transaction takes at a broker that limits none. Raises AmqpError if that is too much."""
        self._operations += operations
        if self._operations > OPERATIONS:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, f"a transaction has at most {OPERATIONS} messages")
        if not size:
            return
        if self._held + size > BYTES:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, f"a transaction sends at most {BYTES} bytes")
        held = container.transacted
        own, total = held.get(self._user, 0), sum(held.values())
        if own + size > BYTES_OF_SPACE - total - size:
            text = used("bytes in open transactions", own, total, BYTES_OF_SPACE)
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, text)
        held[self._user] = own + size
        self._held += size

    def over(self, container: RouterConnection) -> None:
        """Give back what the transaction has taken at its broker."""
        if self.timer is not None:
            self.timer.cancel()
        if self._held:
            held = container.transacted
            held[self._user] = held.get(self._user, 0) - self._held
            if held[self._user] <= 0:
                del held[self._user]
            self._held = 0
