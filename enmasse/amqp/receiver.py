"""Receiver: credit given by hand or by a window, drain (OASIS AMQP 1.0, 2.6.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.amqp.delivery import Partial
from enmasse.amqp.endpoint import SECOND, U32, Link, serial_difference
from enmasse.amqp.performatives import Flow

if TYPE_CHECKING:
    from enmasse.amqp.handler import Handler
    from enmasse.amqp.session import Session

NEVER = 1 << 62  # a counter never gets there
OnDelivery = Callable[["Receiver", int, bool, bytes, bytes, int], None]
OnRun = Callable[["Receiver", int, list[bytes]], None]


class Receiver(Link):
    """Our end receives. Counters are unwrapped, as a Sender's."""

    __slots__ = (
        "_discarded",
        "_due",
        "_given",
        "_held",
        "_limit",
        "_partial",
        "_pieces",
        "_received",
        "_remote_initial",
        "_second",
        "_settled",
        "_size",
        "_topped",
        "_topup_at",
        "_window",
        "draining",
        "on_delivery",
        "on_run",
        "queued",
        "streaming",
    )

    def __init__(self, session: Session, name: str, handle: int, handler: Handler) -> None:
        super().__init__(session, name, handle)
        self.on_delivery: OnDelivery = handler.on_delivery  # replace it per link to save a look-up
        self.on_run: OnRun | None = None  # (link, first id, payloads): unsettled ones of format 0 that came together
        self.streaming = False  # deliveries of several frames come as on_partial; set it before accept or attach
        self.queued = 0  # what the peer says waits for credit
        self.draining = False
        self._received = 0  # deliveries received, or credit given back
        self._settled = 0  # of those: settled or given back
        self._given = 0  # credit given back
        self._limit = 0  # what our credit lets _received become; -1 when dead
        self._window = 0
        self._topup_at = NEVER  # value of _settled at which credit is topped up
        self._topped = 0  # value of _settled when it was topped up last
        self._held = 0  # unsettled deliveries that are not expected to be settled soon
        self._due = False  # in session._due
        self._second = False
        self._partial: Partial | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._remote_initial = 0
        self._discarded = 0  # deliveries that came after we had detached

    @property
    def credit(self) -> int:
        """What the peer may still send."""
        return max(0, self._limit - self._received)

    @property
    def unsettled(self) -> int:
        """Deliveries received and not settled."""
        return self._received - self._settled

    @property
    def deliveries(self) -> int:
        """Deliveries received since the link was attached."""
        return self._received - self._given

    @property
    def credit_window(self) -> int:
        """How many deliveries may be outstanding: granted and not come, or come and not settled. Credit is topped up at
        half of it, when the connection is flushed. 0: credit is granted by hand."""
        return self._window

    @credit_window.setter
    def credit_window(self, window: int) -> None:
        self._window = window
        if window > 0:
            self.draining = False  # there is use for credit again
            self._topup_at = self._settled
            self._want_flow()
        else:
            self._topup_at = NEVER

    def expect(self, held: int) -> None:
        """So many unsettled deliveries are not expected to be settled soon: credit is topped up at half of what is left
        of `credit_window` without them. Else a peer would wait for credit that only they could give."""
        self._held = held
        if self._topup_at != NEVER:
            self._topup_at = self._topped + self._step()
            if self._settled >= self._topup_at:
                self._want_flow()

    def _step(self) -> int:
        """Settlements from one top-up to the next."""
        return max(1, (self._window - self._held + 1) // 2)

    def grant(self, n: int) -> None:
        """Let the peer send n deliveries more."""
        if self._limit >= 0 and not self.detached:
            self._limit += n
            self._want_flow()

    def drain_credit(self) -> None:
        """Ask for what there is, and the rest of the credit back; `on_drained` follows (at once where there is no
        credit). Sets `credit_window` to 0."""
        self.credit_window = 0
        if self.detached or self._limit - self._received <= 0:
            self.session.connection.handler.on_drained(self)
            return
        self.draining = True
        self._want_flow()

    def settle_run(self, first: int, count: int) -> None:
        """`session.settle` with accepted for consecutive deliveries of this link."""
        session = self.session
        if self._second:
            for delivery_id in range(first, first + count):
                session.settle(delivery_id)
            return
        pop = session._incoming.pop
        ids = [delivery_id for delivery_id in range(first, first + count) if pop(delivery_id, None) is not None]
        if not ids:
            return
        self._settled += len(ids)
        if self._settled >= self._topup_at:
            self._want_flow()
        session._accepted += ids
        if not session._touched:
            session._touch()

    def _tell_run(self, first: int, payloads: list[bytes]) -> None:
        on_run = self.on_run
        if on_run is not None and self._limit >= 0:
            on_run(self, first, payloads)

    def _want_flow(self) -> None:
        self._topup_at = NEVER  # asked for: _flush sets it again
        if self._attach_sent and self.remote_attach is not None and not self.detached:
            session = self.session
            if not self._due:
                self._due = True
                session._due.append(self)
                session._touch()

    def _top_up(self) -> None:
        """At flush: compute the credit that is due and send it."""
        self._due = False
        if self.detached or self._limit < 0:
            return
        window = self._window
        if window > 0:
            limit = self._settled + window
            if limit > self._limit:
                self._limit = limit
            self._topped = self._settled
            self._topup_at = self._settled + self._step()
        self._send_flow(self.draining)

    def _send_flow(self, drain: bool = False) -> None:
        session = self.session
        if not drain:
            count = (self._received + self._remote_initial) & U32
            session._send_credit(self.handle, count, max(0, self._limit - self._received))
            return
        session._send(
            session._flow(
                handle=self.handle,
                delivery_count=(self._received + self._remote_initial) & U32,
                link_credit=max(0, self._limit - self._received),
                drain=drain,
            )
        )

    def _on_flow(self, flow: Flow) -> None:
        """The sender's view: it may have used up credit (drain) or tell what it has."""
        if flow.available is not None:
            self.queued = int(flow.available)
        if flow.delivery_count is not None and self._limit >= 0:
            ahead = serial_difference(int(flow.delivery_count), (self._received + self._remote_initial) & U32)
            if ahead > 0:
                given = min(ahead, self._limit - self._received)
                self._received += given
                self._settled += given
                self._given += given
                if self._settled >= self._topup_at:
                    self._want_flow()
        if self._attach_sent and not self.detached:
            if self.draining and self._received >= self._limit:
                self.draining = False
                self.session.connection.handler.on_drained(self)
            elif flow.echo:
                self._send_flow(self.draining)

    def _went_live(self) -> None:
        attach = self.remote_attach
        self._remote_initial = int(attach.initial_delivery_count or 0) if attach is not None else 0
        self._second = self.rcv_settle_mode == SECOND
        self.session._receivers[self.remote_handle] = self
        if self._limit > 0 or self._window > 0:
            self._want_flow()

    def _went_dead(self) -> None:
        self._limit = -1
        self._topup_at = NEVER
        self.session._receivers.pop(self.remote_handle, None)
        partial = self._partial
        if partial is not None and not partial._discard:
            partial._discard = True
            self._drop(partial)

    def _lost(self, tokens: list[Any] | None) -> None:
        session = self.session
        self._went_dead()
        self._partial = None
        if self._received > self._settled:
            incoming = session._incoming
            for delivery_id in [i for i, link in incoming.items() if link is self]:
                del incoming[delivery_id]

    def _let_go(self) -> None:
        self.on_delivery = self.session.connection.handler.on_delivery
        self.on_run = None

    def _drop(self, partial: Partial) -> None:
        """Forget what has come of an unfinished delivery; on a streaming link it is told as aborted."""
        self._pieces = []
        partial._release()
        if partial._told:
            partial.aborted = partial.done = True
            self.session.connection.handler.on_partial(self, partial)
