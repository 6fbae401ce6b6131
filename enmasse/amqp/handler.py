"""What a user of the engine supplies: callbacks (Handler) and bounds (Limits)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from enmasse.amqp import errors
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.performatives import RELEASED

if TYPE_CHECKING:
    from enmasse.amqp.connection import Connection
    from enmasse.amqp.delivery import Partial
    from enmasse.amqp.link import Link, Receiver, Sender
    from enmasse.amqp.session import Session


MOST_REFUSED = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what one connection may make this process hold. Sizes in bytes, times in milliseconds."""

    max_sessions: int = 256
    """Sessions at a time; channel-max is one less (2.7.1)."""
    max_links: int = 1024
    """Links at a time over all sessions. A further one is refused; a peer that makes `MOST_REFUSED` more without
    taking note of it loses the session."""
    max_link_state: int = 8 * 1024 * 1024
    """Encoded size of all attach frames that are remembered."""
    max_message_size: int = 100 * 1024 * 1024
    """A message of several frames on a link that is not streaming (2.7.3)."""
    max_partial: int = 256 * 1024 * 1024
    """All begun and unfinished messages of the connection together."""
    max_streamed: int = 8 * 1024 * 1024
    """Pieces that came on streaming links and were not taken: beyond it the socket is not read."""
    max_buffered: int = 16 * 1024 * 1024
    """Output the peer does not read: beyond it the connection is dropped."""
    max_unsettled: int = 65536
    """Sent and unsettled deliveries per session: at it `Sender.credit` is 0."""
    incoming_window: int = 2048
    """Transfer frames a peer may send per session before it hears from us (2.5.6)."""
    streaming_window: int = 4 * 1024 * 1024
    """The same in bytes while a streamed delivery is under way and its pieces are not taken."""
    max_sasl_frame: int = 8192
    """A SASL frame; the specification wants 512 (5.3.1), tokens are longer."""
    handshake_timeout_ms: int = 20_000
    """From the first byte to the peer's open."""
    close_timeout_ms: int = 5_000
    """From our close to the peer's, before the socket is dropped."""


INNER_LIMITS = Limits(max_links=65536, max_link_state=64 << 20)
"""Between a router and a broker, or two routers: one connection carries the links of all clients, and two for each
queue."""


class Handler:
    """Callbacks of a connection. Override what is needed: everything has a default that behaves.

    They run inside `Connection.receive`, `tick`, `transport_closed` or the call that made them due, must not block
    and may call anything of the engine except `receive`.
    """

    def on_open(self, c: Connection) -> None:
        """The peer's open is in `c.remote_open`. A server may set `c.open_fields` or call `c.close(error)` first."""

    def on_begin(self, s: Session) -> None:
        """The peer began a session (it has been answered), or answered one that we began."""

    def on_attach(self, link: Link) -> None:
        """The peer attached a link. Call `link.accept(...)` or `link.refuse(error)`, now or later."""
        link.refuse(AmqpError(errors.NOT_IMPLEMENTED, "nothing is served here"))

    def on_attached(self, link: Link) -> None:
        """The peer answered our attach. A null terminus where it should name one: a detach with the reason follows."""

    def on_flow(self, link: Sender) -> None:
        """Credit, drain or room changed for a sender of ours. By default a drain is answered."""
        if link.drain:
            link.drained()

    def on_drained(self, link: Receiver) -> None:
        """The credit of a drain has been used up or given back."""

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """The link is over (once per link): detached by the peer (it has been answered), or its session or connection
        has gone (then `closed` is False: durable subscriptions live on)."""

    def on_end(self, s: Session, error: AmqpError | None) -> None:
        """The session is over (once per session), after its links."""

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        """The connection is over (once), after its sessions. `c.transport_error` is set where the socket was lost."""

    def on_writable(self, c: Connection) -> None:
        """The peer reads again. By default `on_flow` for every sender that has credit."""
        for session in c.sessions():
            session.resume_senders()

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """A whole message. By default it is released, so that nothing is lost."""
        if not settled:
            link.session.settle(delivery_id, RELEASED)

    def on_partial(self, link: Receiver, delivery: Partial) -> None:
        """Only where `link.streaming`: a piece of a delivery of several frames. Fetch it with `delivery.take()`."""
        delivery.take()

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        """The peer decided on deliveries of one sender. `state` None: settled without a word, or the link was lost."""

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        """The sending peer settled deliveries that we had not settled (the second half of rcv-settle-mode second)."""
