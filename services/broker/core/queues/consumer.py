"""A receiver of messages of a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from services.broker.core.messages.stored_message import StoredMessage
from services.broker.selector import Selector


class Outlet(Protocol):
    """The sending side of a link (enmasse.amqp's Sender)."""

    @property
    def credit(self) -> int:
        """Number of messages that may be sent."""

    @property
    def drain(self) -> bool:
        """Whether the receiver waits for what there is, and the end of its credit."""

    def send(self, payload: Any, token: Any = None, *, settled: bool = False) -> Any:
        """Send a message; `token` is returned with its outcome unless it is settled."""

    def send_run(self, payloads: Sequence[bytes], tokens: Sequence[Any]) -> int:
        """Send unsettled messages as far as possible; return how many."""

    def drained(self) -> None:
        """Give the credit back: there is nothing more to send."""


class Consumer:
    """One receiver of a queue. The link face makes one per link and overrides `closed` and `blocked`. `relay`: it is a
    router's own link, behind which consumers come and go. `once`: the peer knows messages by their identity
    and may have begun to hand on what it was sent: such messages no longer expire. `sealed`: it gets the seals of
    retained messages."""

    sealed = False

    def __init__(
        self,
        id: str,
        outlet: Outlet,
        *,
        priority: int = 0,
        selector: Selector | None = None,
        presettled: bool = False,
        relay: bool = False,
        once: bool = False,
    ) -> None:
        self.id = id
        self.outlet = outlet
        self.priority = priority
        self.selector = selector
        self.presettled = presettled
        self.relay = relay
        self.once = once
        self.unsettled: dict[int, StoredMessage] = {}
        self.active = False
        # By priority: messages up to this id have been looked at and are not for this consumer.
        self.scanned = [0] * 10

    @property
    def selective(self) -> bool:
        """Whether it has a selector or a priority of its own."""
        return self.selector is not None or bool(self.priority)

    @property
    def weight(self) -> int:
        """Work of its selector for a message (`Selector.weight`)."""
        return 0 if self.selector is None else self.selector.weight

    def closed(self, condition: str, description: str) -> None:
        """Detach the link with this error: the queue ends the consumer."""

    def blocked(self) -> bool:
        """Return whether the peer does not read at the moment."""
        return False
