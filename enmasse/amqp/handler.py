"""Callbacks of a connection, for users of the engine; each has a valid default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from enmasse.amqp import errors
from enmasse.amqp.connection import Connection
from enmasse.amqp.endpoint import Link
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.performatives import RELEASED
from enmasse.amqp.receiver import Partial, Receiver
from enmasse.amqp.sender import Sender
from enmasse.amqp.session import Session


class Handler:
    """Callbacks of a connection. Override what is needed: everything has a default that behaves.

    They run inside `Connection.receive`, `tick`, `transport_closed` or the call that made them due, must not block
    and may call anything of the engine except `receive`. One that raises ends the link, session or connection that it
    was called for, and nothing else (guard.py).
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

    def on_failed(self, link: Link, error: AmqpError) -> None:
        """A callback of this link has raised an exception, or what waits on it cannot be sent. By default the link is
        detached with `error`, which is the exception if that was an AmqpError, else amqp:internal-error."""
        link.detach(error)

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """The link has ended (once per link): detached by the peer (and answered), or its session or connection
        has ended (then `closed` is False: durable subscriptions live on)."""

    def on_end(self, s: Session, error: AmqpError | None) -> None:
        """The session has ended (once per session), after its links."""

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        """The connection has ended (once), after its sessions. `c.transport_error` is set if the socket was lost."""

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
        """Only if `link.streaming`: a piece of a delivery of several frames. Fetch it with `delivery.take()`."""
        delivery.take()

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        """The peer decided on deliveries of one sender. `state` None: settled without a word, or the link was lost."""

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        """The sending peer settled deliveries that we had not settled (the second half of rcv-settle-mode second)."""
