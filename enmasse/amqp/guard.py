"""Guard: calls a handler's callbacks, and bounds what an exception of one of them ends.

A callback of a link that raises ends that link, one of a session that session, one of a connection that connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from enmasse.amqp import errors
from enmasse.amqp.errors import AmqpError

if TYPE_CHECKING:
    from enmasse.amqp.connection import Connection
    from enmasse.amqp.endpoint import Link
    from enmasse.amqp.handler import Handler
    from enmasse.amqp.receiver import Partial, Receiver
    from enmasse.amqp.sender import Sender
    from enmasse.amqp.session import Session


def _ignore(failure: Exception) -> None: ...


class Guard:
    """The callbacks of `handler`, none of which raises.

    An AmqpError is the reason that the peer gets; any other exception is reported by `on_failure`, and the peer gets
    amqp:internal-error.
    """

    def __init__(self, handler: Handler) -> None:
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

    # --- of links -----------------------------------------------------------------------------------------------------

    def on_attach(self, link: Link) -> None:
        try:
            self.handler.on_attach(link)
        except Exception as failure:
            link.refuse(self.reason(failure))

    def on_attached(self, link: Link) -> None:
        try:
            self.handler.on_attached(link)
        except Exception as failure:
            self.link_failed(link, failure)

    def on_flow(self, link: Sender) -> None:
        try:
            self.handler.on_flow(link)
        except Exception as failure:
            self.link_failed(link, failure)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        try:
            self.handler.on_outcomes(link, tokens, state, settled)
        except Exception as failure:
            self.link_failed(link, failure)

    def on_partial(self, link: Receiver, delivery: Partial) -> None:
        try:
            self.handler.on_partial(link, delivery)
        except Exception as failure:
            self.link_failed(link, failure)

    def on_drained(self, link: Receiver) -> None:
        try:
            self.handler.on_drained(link)
        except Exception as failure:
            self.link_failed(link, failure)

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        try:
            self.handler.on_settled(link, delivery_ids)
        except Exception as failure:
            self.link_failed(link, failure)

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        try:
            self.handler.on_detach(link, error, closed)
        except Exception as failure:
            self.reason(failure)

    # --- of sessions and connections ----------------------------------------------------------------------------------

    def on_begin(self, s: Session) -> None:
        try:
            self.handler.on_begin(s)
        except Exception as failure:
            s.end(self.reason(failure))

    def on_end(self, s: Session, error: AmqpError | None) -> None:
        try:
            self.handler.on_end(s, error)
        except Exception as failure:
            self.reason(failure)

    def on_open(self, c: Connection) -> None:
        try:
            self.handler.on_open(c)
        except Exception as failure:
            c.close(self.reason(failure))

    def on_writable(self, c: Connection) -> None:
        try:
            self.handler.on_writable(c)
        except Exception as failure:
            c.close(self.reason(failure))

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        try:
            self.handler.on_close(c, error)
        except Exception as failure:
            self.reason(failure)
