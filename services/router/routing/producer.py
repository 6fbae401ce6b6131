"""Where messages of an address come from."""

from __future__ import annotations

from typing import Protocol

from services.router.routing.choice import Choice
from services.router.routing.destination import Party


class Producer(Party, Protocol):
    """Sends to one address: a client's sender, or a link from a broker."""

    choice: Choice | None
    """The destinations of its deliveries, as of the last `bind`."""

    @property
    def received(self) -> int:
        """Deliveries so far."""

    def bind(self) -> None:
        """Deliveries go to the address's destinations, in the way of its treatment, from now on."""

    def open_gate(self) -> None:
        """There is a destination: give credit."""

    def close_gate(self) -> None:
        """There is none: take credit back."""


class Feed(Producer, Protocol):
    """A link from a broker, which keeps what it cannot send."""

    @property
    def node(self) -> str:
        """The address as the broker knows it."""

    def resize(self) -> None:
        """The number of destinations has changed."""

    def ask(self, wanted: int) -> None:
        """A destination wants to know whether there is anything: have the broker send what it has, up to `wanted`.
        The address's `answered` follows."""
