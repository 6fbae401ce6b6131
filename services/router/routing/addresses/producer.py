"""Interfaces of the producers of an address."""

from __future__ import annotations

from typing import Protocol

from services.router.routing.addresses.choice import Choice
from services.router.routing.addresses.destination import Party


class Producer(Party, Protocol):
    """Sends to one address: a client's sender, or a link from a broker."""

    choice: Choice | None
    """The destinations of its deliveries, as of the last `bind`."""

    @property
    def received(self) -> int:
        """Number of deliveries so far."""

    def bind(self) -> None:
        """Send deliveries to the address's current destinations, by its treatment."""

    def open_gate(self) -> None:
        """Grant credit, because there is a destination."""

    def close_gate(self) -> None:
        """Revoke credit, because there is no destination."""


class Feed(Producer, Protocol):
    """A link from a broker, which stores the messages that it cannot send."""

    @property
    def node(self) -> str:
        """The broker's name for the address."""

    def ask_waiting(self) -> int | None:
        """Return how many messages wait at the broker, as it stated last (None: not yet), and ask it again."""

    def resize(self) -> None:
        """Adapt the credit to a changed number of destinations."""

    def ask(self, wanted: int) -> None:
        """Have the broker send its messages, up to `wanted`, for a destination that drains. The address's `answered`
        follows."""
