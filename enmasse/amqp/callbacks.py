"""Callbacks of a connection, for users of the engine, and how the engine calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import RELEASED, TransactionalState
from enmasse.amqp.endpoint import Link, LinkSession
from enmasse.amqp.receiver import OnDelivery, Partial, Receiver
from enmasse.amqp.sender import Sender
from enmasse.amqp.session import Session


class Peer(Protocol):
    """A connection (connection.Connection), as its callbacks see it."""

    def sessions(self) -> list[Session]: ...
    def close(self, error: AmqpError | None = None) -> None: ...


C = TypeVar("C", bound=Peer)


class Callbacks(Generic[C]):
    """Callbacks of a connection of type C (handler.Handler). Override what is needed: everything has a default that
    behaves.

    They run inside `Connection.receive`, `tick`, `transport_closed` or the call that made them due, must not block
    and may call anything of the engine except `receive`. One that raises ends the link, session or connection that it
    was called for, and nothing else (Guard).
    """

    def on_open(self, c: C) -> None:
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

    def on_fault(self, s: LinkSession, link: Link | None, error: AmqpError) -> None:
        """The peer has broken a rule of a link, or of the session (`link` None), which is ended with `error` next."""

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """The link has ended (once per link): detached by the peer (and answered), or its session or connection
        has ended (then `closed` is False: durable subscriptions live on)."""

    def on_end(self, s: Session, error: AmqpError | None) -> None:
        """The session has ended (once per session), after its links."""

    def on_close(self, c: C, error: AmqpError | None) -> None:
        """The connection has ended (once), after its sessions. `c.transport_error` is set if the socket was lost."""

    def on_writable(self, c: C) -> None:
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
        """The peer decided on deliveries of one sender. A settled one has a terminal state: that of the peer, or the
        `default_outcome` of the sender. `state` None: the link has ended without an outcome (`link.broken`: how)."""

    def on_concluded(self, link: Sender, tokens: list[Any], state: Any) -> None:
        """The peer settled deliveries, or its link has ended, of which it has stated this outcome before. By default
        `on_outcomes`: override it where an outcome takes effect when it is stated."""
        self.on_outcomes(link, tokens, state, True)

    def on_transactional(
        self, link: Sender, tokens: list[Any], delivery_ids: Sequence[int], state: TransactionalState, settled: bool
    ) -> None:
        """Only if `link.transactional`: the outcome of these deliveries is to hold once a transaction is discharged
        (4.4.2). A settled one has no delivery-ids: no other outcome will come."""
        raise errors.no_transactions()

    def on_work_refused(self, session: LinkSession, txn_id: bytes, error: AmqpError) -> None:
        """A message or an outcome that names this transaction was not taken: refused, aborted, or for a link that has
        ended. The transaction, if it is one, can only be rolled back (4.3)."""

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        """The sending peer settled deliveries that we had not settled (the second half of rcv-settle-mode second)."""


def _ignore(failure: Exception) -> None: ...


class Guard(Generic[C]):
    """The callbacks of `handler`, none of which raises. A callback of a link that raises ends that link (`on_failed`),
    one of a session that session, one of a connection that connection.

    An AmqpError is the reason that the peer gets; any other exception is reported by `on_failure`, and the peer gets
    amqp:internal-error.
    """

    def __init__(self, handler: Callbacks[C]) -> None:
        self.handler = handler
        self.on_failure: Callable[[Exception], None] = _ignore

    def let_go(self) -> None:
        """Report no further exception."""
        self.on_failure = _ignore

    def reason(self, failure: Exception) -> AmqpError:
        """Report the exception of a callback, and return what the peer gets as the reason."""
        if isinstance(failure, AmqpError):
            return failure.with_traceback(None)  # its frames refer to the connection, which may keep the error
        self.on_failure(failure)
        return AmqpError(errors.INTERNAL_ERROR, "this met an internal error; see the log of the peer")

    def link_failed(self, link: Link, failure: Exception) -> None:
        """A callback of this link, or sending on it, has raised: the handler detaches it."""
        reason = self.reason(failure)
        try:
            self.handler.on_failed(link, reason)
        except Exception as further:
            self.reason(further)
            link.detach(reason)

    @property
    def on_delivery(self) -> OnDelivery:
        """The callback itself, for it is called most: receivers guard it."""
        return self.handler.on_delivery

    # --- of links -----------------------------------------------------------------------------------------------------

    def on_attach(self, link: Link) -> None:
        """Call `Callbacks.on_attach`; the link is refused if that raises."""
        try:
            self.handler.on_attach(link)
        except Exception as failure:
            link.refuse(self.reason(failure))

    def on_attached(self, link: Link) -> None:
        """Call `Callbacks.on_attached`."""
        try:
            self.handler.on_attached(link)
        except Exception as failure:
            self.link_failed(link, failure)

    def on_flow(self, link: Sender) -> None:
        """Call `Callbacks.on_flow`."""
        try:
            self.handler.on_flow(link)
        except Exception as failure:
            self.link_failed(link, failure)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        """Call `Callbacks.on_outcomes`."""
        try:
            self.handler.on_outcomes(link, tokens, state, settled)
        except Exception as failure:
            self.link_failed(link, failure)

    def on_concluded(self, link: Sender, tokens: list[Any], state: Any) -> None:
        """Call `Callbacks.on_concluded`."""
        try:
            self.handler.on_concluded(link, tokens, state)
        except Exception as failure:
            self.link_failed(link, failure)

    def on_transactional(
        self, link: Sender, tokens: list[Any], delivery_ids: Sequence[int], state: TransactionalState, settled: bool
    ) -> None:
        """Call `Callbacks.on_transactional`."""
        try:
            self.handler.on_transactional(link, tokens, delivery_ids, state, settled)
        except Exception as failure:
            self.on_work_refused(link.session, bytes(state.txn_id), errors.not_acknowledged())
            self.link_failed(link, failure)

    def on_work_refused(self, session: LinkSession, txn_id: bytes, error: AmqpError) -> None:
        """Call `Callbacks.on_work_refused`; what it raises is only reported."""
        try:
            self.handler.on_work_refused(session, txn_id, error)
        except Exception as failure:
            self.reason(failure)

    def on_partial(self, link: Receiver, delivery: Partial) -> None:
        """Call `Callbacks.on_partial`."""
        try:
            self.handler.on_partial(link, delivery)
        except Exception as failure:
            self.link_failed(link, failure)

    def on_drained(self, link: Receiver) -> None:
        """Call `Callbacks.on_drained`."""
        try:
            self.handler.on_drained(link)
        except Exception as failure:
            self.link_failed(link, failure)

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        """Call `Callbacks.on_settled`."""
        try:
            self.handler.on_settled(link, delivery_ids)
        except Exception as failure:
            self.link_failed(link, failure)

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """Call `Callbacks.on_detach`; what it raises is only reported."""
        try:
            self.handler.on_detach(link, error, closed)
        except Exception as failure:
            self.reason(failure)

    # --- of sessions and connections ----------------------------------------------------------------------------------

    def on_fault(self, s: LinkSession, link: Link | None, error: AmqpError) -> None:
        """Call `Callbacks.on_fault`; what it raises is only reported."""
        try:
            self.handler.on_fault(s, link, error)
        except Exception as failure:
            self.reason(failure)

    def on_begin(self, s: Session) -> None:
        """Call `Callbacks.on_begin`; the session is ended if that raises."""
        try:
            self.handler.on_begin(s)
        except Exception as failure:
            s.end(self.reason(failure))

    def on_end(self, s: Session, error: AmqpError | None) -> None:
        """Call `Callbacks.on_end`; what it raises is only reported."""
        try:
            self.handler.on_end(s, error)
        except Exception as failure:
            self.reason(failure)

    def on_open(self, c: C) -> None:
        """Call `Callbacks.on_open`; the connection is closed if that raises."""
        try:
            self.handler.on_open(c)
        except Exception as failure:
            c.close(self.reason(failure))

    def on_writable(self, c: C) -> None:
        """Call `Callbacks.on_writable`; the connection is closed if that raises."""
        try:
            self.handler.on_writable(c)
        except Exception as failure:
            c.close(self.reason(failure))

    def on_close(self, c: C, error: AmqpError | None) -> None:
        """Call `Callbacks.on_close`; what it raises is only reported."""
        try:
            self.handler.on_close(c, error)
        except Exception as failure:
            self.reason(failure)
