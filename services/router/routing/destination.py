"""Where messages of an address go.

Kinds of destinations are clients' receivers (out_link.py) and the links to brokers (broker_links.py, relay.py).
What a neighbouring router of a mesh would need: docs/extending.md.

What only some of them have to do with an address is a protocol of its own: `Consumer` for drains, `Holder` for what
waits for credit, `Taker` and `StreamDestination` for deliveries in pieces, `Detour` for the links beside an auto-link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from enmasse.amqp.delivery import Outgoing
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.receiver import Partial
from services.router.routing.connection import RouterConnection
from services.router.routing.deliveries import Token


class Party(Protocol):
    """A link that sends to an address or receives from it."""

    connection: RouterConnection

    def detach(self, error: AmqpError | None = None) -> None:
        """Take the link away."""


class Destination(Party, Protocol):
    """Takes deliveries of one address: it is asked whether it is ready and how much it has to do, and gets them."""

    capacity: int
    """Deliveries that may be under way to it."""
    direct: bool
    """A delivery may go by `pass_on`."""

    @property
    def pass_on(self) -> Callable[[bytes, Token], bool]:
        """The hot path: takes an unsettled message of format 0 that is there as a whole, or returns False."""

    @property
    def ready(self) -> bool:
        """It can take a delivery now."""

    @property
    def load(self) -> int:
        """Deliveries it has and has not settled, or that wait for it; of one that is ready none wait."""

    @property
    def sent(self) -> int:
        """Deliveries so far."""

    def offer(self, payload: Any, token: Token | None, message_format: int) -> None:
        """Take this delivery now, or when there is credit. `payload`: bytes, or a delivery that comes in pieces
        (`Streamed`), which needs a `StreamDestination`. `token` None: settled already."""

    def reply(self, payload: bytes) -> bool:
        """Take a message of the router's own, settled. False: too much waits already, it is dropped."""


class Holder(Destination, Protocol):
    """A destination for which deliveries wait: it holds them until it has credit (`RoutedAddress.holders`)."""

    @property
    def undelivered(self) -> int:
        """So many wait."""

    def hand_over(self, other: Destination) -> None:
        """Without credit: give what waits to another destination of the address, the oldest first, as long as that one
        is ready."""


class Consumer(Destination, Protocol):
    """Asks the address whether there is something for it (`RoutedAddress.ask`)."""

    @property
    def wanted(self) -> int:
        """Messages it has asked for and not got."""

    @property
    def draining(self) -> bool:
        """It wants to know if there is nothing for it (AMQP: drain)."""

    def report_empty(self) -> None:
        """There is nothing for it: the answer to a drain."""


class Taker(Protocol):
    """Where a delivery that comes in pieces goes out: a destination, or a routed link."""

    stream: Any
    """What is half sent; None: nothing."""

    @property
    def stream_limit(self) -> int:
        """Bytes that it takes as one message; 0: as many as come."""

    def begin_stream(self, token: Token | None, partial: Partial) -> Outgoing: ...

    def stream_sent(self, token: Token | None) -> None:
        """A delivery in pieces is on its way completely."""

    def flow(self) -> None:
        """There is room again, or nothing is half sent any more."""


class StreamDestination(Destination, Taker, Protocol):
    """A destination as deliveries in pieces know it: they may have to wait there for their turn."""

    def detour(self) -> Detour | None:
        """A link to the same broker for a delivery that may take long; None: this one is to take it."""

    def leave(self, stream: Any) -> None:
        """A delivery in pieces that waited here was given back."""

    def reject_large(self, token: Token | None) -> None:
        """A delivery is larger than it takes."""


class Detour(StreamDestination, Protocol):
    """A link for deliveries that may take long, beside the destination that the address knows."""

    @property
    def busy(self) -> bool:
        """A delivery waits for it, or is half sent."""
