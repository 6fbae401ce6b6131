"""Interfaces of the destinations of an address.

Kinds of destinations are clients' receivers (out_link.py) and the links to brokers (broker_links.py, relay.py).
For a neighbouring router of a mesh see docs/extending.md.

Capabilities of some destinations are separate protocols: `Consumer` for drains, `Holder` for deliveries that wait for
credit, `Taker` and `StreamDestination` for deliveries in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Rejected
from enmasse.amqp.delivery import Outgoing
from enmasse.amqp.receiver import Partial
from services.router.routing.addresses.deliveries import Source, Token
from services.router.routing.connection import RouterConnection


class Party(Protocol):
    """A link that sends to an address or receives from it."""

    connection: RouterConnection

    def detach(self, error: AmqpError | None = None) -> None:
        """Detach the link."""


class Destination(Party, Protocol):
    """Takes deliveries of one address, chosen by `ready` and `load`."""

    capacity: int
    """Deliveries of one window."""
    windows: int
    """Number of windows of credit that brokers get for it, and of `capacity` that it may have under way."""
    direct: bool
    """True if a delivery may be sent by `pass_on`."""
    presettled: int
    """Number of deliveries that it has taken settled."""
    names_senders: bool
    """Whether the tags of its deliveries name the senders: the `tag` of `pass_on`, and the mark of `send_run`."""

    def tag(self, source: Source) -> bytes | None:
        """Return the tag of a delivery from `source`; None: any will do."""

    @property
    def pass_on(self) -> Callable[..., bool]:
        """Hot path: takes a complete, unsettled message of format 0, maybe with its `tag`, or returns False."""

    @property
    def send_run(self) -> Callable[[Sequence[bytes], Sequence[Token] | None, bytes], int]:
        """Hot path: takes such messages up to the first that `pass_on` would not take; returns how many. Tokens None:
        presettled."""

    @property
    def ready(self) -> bool:
        """True if the destination can take a delivery now."""

    @property
    def room(self) -> int:
        """Number of deliveries that it can take now by `send_run`."""

    @property
    def load(self) -> int:
        """Number of its unsettled and waiting deliveries; none wait for a destination that is ready."""

    @property
    def sent(self) -> int:
        """Number of deliveries so far."""

    def offer(self, payload: Any, token: Token | None, message_format: int) -> None:
        """Take this delivery now, or when there is credit. `payload`: bytes, or a delivery that arrives in pieces
        (`Stream`), which needs a `StreamDestination`. `token` None: presettled."""

    def reply(self, payload: bytes) -> bool:
        """Take one of the router's own messages, settled. Return False if it is dropped because too many wait."""


class Holder(Destination, Protocol):
    """A destination for which deliveries wait: it holds them until it has credit (`RoutedAddress.holders`)."""

    @property
    def undelivered(self) -> int:
        """Number of waiting deliveries."""

    def hand_over(self, other: Destination) -> None:
        """Without credit, give waiting deliveries to another destination of the address, oldest first, while that one
        is ready."""


class Consumer(Destination, Protocol):
    """A destination that drains (`RoutedAddress.ask`)."""

    @property
    def wanted(self) -> int:
        """Number of requested messages that have not arrived."""

    @property
    def draining(self) -> bool:
        """True while the consumer drains (AMQP 2.6.7)."""

    def answer_drain(self) -> None:
        """Answer a drain: the brokers have sent their messages, and none waits that the consumer has credit for."""


class Taker(Protocol):
    """Outgoing end of a delivery in pieces: a destination, or a routed link."""

    stream: Any
    """The partially sent delivery, or None."""
    exact: bool
    """True if the peer may find other sections in a message than the router does: a message of which that is so is
    rejected (enmasse/amqp/messages/section_checks.py)."""

    @property
    def stream_limit(self) -> int:
        """Largest message in bytes; 0: no limit."""

    def begin_stream(self, token: Token | None, partial: Partial) -> Outgoing:
        """Begin a delivery in pieces; the engine's object to write them to. `token` None: presettled."""

    def stream_sent(self, token: Token | None) -> None:
        """Handle a delivery in pieces that is completely sent."""

    def reject(self, token: Token | None, state: Rejected) -> None:
        """Reject a delivery, or its rest. `token` None: presettled."""

    def flow(self) -> None:
        """Continue: there is room again, or no delivery is partially sent."""


class StreamDestination(Destination, Taker, Protocol):
    """A destination of deliveries in pieces, which may have to wait there for their turn."""

    @property
    def busy(self) -> bool:
        """True if a delivery waits for the link or is partially sent."""

    def detour(self) -> StreamDestination | None:
        """Return another link to the same broker for a delivery that may take long; None: use this link."""

    def leave(self, stream: Any) -> None:
        """Remove a waiting delivery in pieces that was given back."""

    def reject_large(self, token: Token | None) -> None:
        """Reject a delivery that is larger than the limit."""
