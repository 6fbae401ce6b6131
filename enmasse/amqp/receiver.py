"""Receiver: credit given by hand or by a window, drain, deliveries in pieces (AMQP 1.0, 2.6.7, 2.6.12, 2.6.14)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Error, Flow, Rejected, TransactionalState, Transfer
from enmasse.amqp.codec.serial import U32, serial_difference
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.endpoint import SECOND, Link, LinkFault, LinkSession, SessionFault
from enmasse.amqp.held_bytes import HeldBytes
from enmasse.amqp.incoming import IncomingWindow

NEVER = 1 << 62  # a counter never gets there
_NO_RUN = (b"", 0, 0)
_NOT_TAKEN = AmqpError(errors.TRANSACTION_ROLLBACK, "a message of it was refused")
_NOT_WHOLE = AmqpError(errors.TRANSACTION_ROLLBACK, "a message of it has not come to its end")
_SIZE_OF_HANDLE = {0x43: 0, 0x52: 1, 0x70: 4}  # behind its code
PIECE_COST = 64  # what a received piece costs beside its bytes
OnDelivery = Callable[["Receiver", int, bool, bytes, bytes, int], None]
OnTransactional = Callable[["Receiver", int, bool, bytes, bytes, int, TransactionalState], None]
"""As OnDelivery, with the state: the message is work of a transaction (4.4.1)."""
OnRun = Callable[["Receiver", int, list[bytes], bool], None]


class Partial:
    """One delivery that comes in several frames on a streaming link. Fields are as of the last piece.

    `done`: the last piece is here. `aborted`: the sender took it back, or the link was lost: forget it.
    """

    __slots__ = (
        "_cost",
        "_discard",
        "_frames",
        "_pieces",
        "_reported",
        "aborted",
        "context",
        "delivery_id",
        "done",
        "link",
        "message_format",
        "settled",
        "size",
        "tag",
        "transaction",
    )

    def __init__(self, link: Receiver, delivery_id: int, tag: bytes, message_format: int, settled: bool) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.settled = settled
        self.done = False
        self.aborted = False
        self.size = 0
        self.context: Any = None
        self.transaction: TransactionalState | None = None
        self._pieces: list[bytes] = []
        self._cost = 0  # of what was not taken, as counted in Held
        self._frames = 0
        self._discard = False
        self._reported = False  # on_partial was called

    @property
    def waiting(self) -> int:
        """Bytes that have come and were not taken."""
        return sum(map(len, self._pieces))

    def take(self) -> bytes:
        """Return the bytes received since the last call. The peer may then send as many again: do not call it to hold
        the peer back."""
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._release()
        return data

    def _add(self, piece: bytes) -> int:
        """A piece has come; returns what it costs."""
        cost = len(piece) + PIECE_COST
        self._pieces.append(piece)
        self._cost += cost
        return cost

    def _release(self) -> None:
        """Forget what waits and give its share of what the connection keeps, and of the session's window, back."""
        cost, frames = self._cost, self._frames
        self._pieces = []
        self._cost = self._frames = 0
        self.link.released(cost, frames)


class ReceiverCallbacks(Protocol):
    """Callbacks of a link that receives (callbacks.Guard). None raises but `on_delivery`."""

    @property
    def on_delivery(self) -> OnDelivery: ...

    def on_drained(self, link: Receiver) -> None: ...
    def on_partial(self, link: Receiver, delivery: Partial) -> None: ...
    def on_work_refused(self, session: LinkSession, txn_id: bytes, error: AmqpError) -> None: ...
    def link_failed(self, link: Link, failure: Exception) -> None: ...


class Receiver(Link):
    """Our end receives. Counters are unwrapped, as a Sender's.

    `received`, `settled`, `limit`, `topup_at` and `second` are for the engine: `Session.settle` and the reader count
    by them. Users ask `credit`, `unsettled` and `deliveries`.
    """

    __slots__ = (
        "_asking",
        "_credit_due",
        "_discarded",
        "_expected",
        "_given",
        "_handler",
        "_held",
        "_partial",
        "_remote_initial",
        "_run",
        "_topped",
        "_window",
        "bytes",
        "draining",
        "further",
        "incoming",
        "keeps_tags",
        "limit",
        "on_delivery",
        "on_run",
        "on_transactional",
        "queued",
        "received",
        "second",
        "settled",
        "streaming",
        "topup_at",
    )

    def __init__(
        self,
        session: LinkSession,
        name: str,
        handle: int,
        handler: ReceiverCallbacks,
        incoming: IncomingWindow[Receiver],
        held: HeldBytes,
    ) -> None:
        super().__init__(session, name, handle)
        self._handler = handler
        self.incoming = incoming
        self._held = held
        self.on_delivery: OnDelivery = handler.on_delivery  # replace it per link; callers guard it (`failed`)
        self.keeps_tags = False  # on_run may ask for `tags_of_run`
        self._run = _NO_RUN  # bytes read, where the first frame begins in them, deliveries
        # (link, first id, payloads, settled): those of format 0 that came together, either all settled or none
        self.on_run: OnRun | None = None
        self.on_transactional: OnTransactional | None = None  # None: work of transactions is refused
        self.streaming = False  # deliveries of several frames come as on_partial; set it before accept or attach
        self.queued: int | None = None  # messages that wait for credit at the peer; None: its last flow stated none
        self._asking = False
        self.draining = False
        self.received = 0  # deliveries received, or credit given back
        self.bytes = 0  # of the messages received; those of runs are for `on_run` to add, which may know their sizes
        self.settled = 0  # of those: settled or given back
        self._given = 0  # credit given back
        self.limit = 0  # what our credit lets `received` become; -1 when dead
        self._window = 0
        self.further = 0  # deliveries that may be unsettled beyond the window, while no more than that is granted
        self.topup_at = NEVER  # value of `settled` at which credit is topped up
        self.second = False  # rcv-settle-mode second: the sender settles
        self._topped = 0  # value of `settled` when it was topped up last
        self._expected = 0  # unsettled deliveries that are not expected to be settled soon
        self._credit_due = False  # in incoming.credit_due
        self._partial: Partial | None = None
        self._remote_initial = 0
        self._discarded = 0  # deliveries that came after we had detached

    @property
    def credit(self) -> int:
        """Return how many messages the peer may still send."""
        return max(0, self.limit - self.received)

    @property
    def unsettled(self) -> int:
        """Deliveries received and not settled."""
        return self.received - self.settled

    @property
    def deliveries(self) -> int:
        """Deliveries received since the link was attached."""
        return self.received - self._given

    @property
    def credit_window(self) -> int:
        """Deliveries that may be outstanding: granted and not received, or received and not settled. Credit is topped
        up at half of it, when the connection is flushed. 0: credit is granted by hand."""
        return self._window

    @credit_window.setter
    def credit_window(self, window: int) -> None:
        self._window = window
        if window > 0:
            self.draining = False  # there is use for credit again
            self.topup_at = self.settled
            self.want_flow()
        else:
            self.topup_at = NEVER

    def expect(self, held: int) -> None:
        """Note that `held` unsettled deliveries will not be settled soon: credit is topped up at half of the rest of
        `credit_window`. Otherwise a peer would wait for credit that only they could give."""
        self._expected = held
        if self.topup_at != NEVER:
            self.topup_at = self._topped + self._step()
            if self.settled >= self.topup_at:
                self.want_flow()

    def _step(self) -> int:
        """Settlements from one top-up to the next."""
        room = min(self._window, self._window + self.further - self._expected)
        return max(1, (room + 1) // 2)

    def pass_further(self, further: int) -> None:
        """Grant credit for what was received before it is settled, as long as no more than `further` deliveries beyond
        `credit_window` are outstanding. The credit itself stays within that window."""
        self.further = further
        step = self._step()
        if (
            further
            and self.limit - self.received <= step
            and self.settled + self._window + further - self.limit >= step
            and self._window
        ):
            self.want_flow()

    def grant(self, n: int) -> None:
        """Let the peer send n deliveries more."""
        if self.limit >= 0 and not self.detached:
            self.limit += n
            self.want_flow()

    def ask_queued(self) -> None:
        """Ask the peer for its view of the link: one that knows how many messages wait for credit states that, and
        `queued` is that number."""
        self._asking = True
        self.want_flow()

    def drain_credit(self) -> None:
        """Ask for what there is, and the rest of the credit back; `on_drained` follows (at once if there is no
        credit). Sets `credit_window` to 0."""
        self.credit_window = 0
        if self.detached or self.limit - self.received <= 0:
            self._handler.on_drained(self)
            return
        self.draining = True
        self.want_flow()

    def settle_run(self, first: int, count: int) -> None:
        """`accept_all` of consecutive deliveries."""
        self.accept_all(range(first, first + count))

    def accept_all(self, delivery_ids: Iterable[int]) -> None:
        """`session.settle` with accepted for deliveries of this link."""
        incoming = self.incoming
        if self.second:
            self.session.update_all(delivery_ids, ACCEPTED)
            return
        pop = incoming.unsettled.pop
        ids = [delivery_id for delivery_id in delivery_ids if pop(delivery_id, None) is not None]
        if not ids:
            return
        self.settled += len(ids)
        if self.settled >= self.topup_at:
            self.want_flow()
        incoming.accepted += ids
        self.session.touch()

    def take_run(self, first: int, payloads: list[bytes], settled: bool, data: bytes, at: int) -> None:
        """Give whole deliveries with consecutive ids, from `first` on, to `on_run`: all of them came settled, or none.
        The frame of the first begins at `at` in `data`; between the frames are at most dispositions."""
        on_run = self.on_run
        if on_run is not None and self.limit >= 0:
            if self.keeps_tags:
                self._run = (data, at, len(payloads))
            try:
                on_run(self, first, payloads, settled)
            except Exception as failure:
                self.failed(failure)
            if self.keeps_tags:
                self._run = _NO_RUN

    def tags_of_run(self) -> list[bytes]:
        """Return the delivery-tags of the deliveries that `on_run` has been given, if the link `keeps_tags`. They are
        looked for in the bytes read, because the tags of almost all messages are of no interest."""
        data, at, count = self._run
        tags: list[bytes] = []
        while len(tags) < count:
            if data[at + 10] == 0x14:  # transfer: a list8 or list32 of handle, delivery-id, delivery-tag, …
                handle = at + (14 if data[at + 11] == 0xC0 else 20)
                size_at = handle + 7 + _SIZE_OF_HANDLE[data[handle]]
                tags.append(data[size_at + 1 : size_at + 1 + data[size_at]])
            at += int.from_bytes(data[at : at + 4])
        return tags

    def want_flow(self) -> None:
        """Send a flow with credit at the next flush."""
        self.topup_at = NEVER  # asked for: `top_up` sets it again
        if self.attach_sent and self.remote_attach is not None and not self.detached and not self._credit_due:
            self._credit_due = True
            self.incoming.credit_due.append(self)
            self.session.touch()

    # --- for the session and its window -------------------------------------------------------------------------------

    def count_settled(self, count: int = 1) -> None:
        """Count further deliveries that are settled."""
        self.settled += count
        if self.settled >= self.topup_at:
            self.want_flow()

    def top_up(self) -> None:
        """At flush: compute the credit that is due and send it."""
        self._credit_due = False
        if self.detached or self.limit < 0:
            return
        window = self._window
        if window > 0:
            limit = self.settled + window
            if self.further:
                limit = min(limit + self.further, max(limit, self.received + window))
            if limit > self.limit:
                self.limit = limit
            self._topped = self.settled
            self.topup_at = self.settled + self._step()
        self._send_flow(self.draining)

    def _send_flow(self, drain: bool = False) -> None:
        count, credit = (self.received + self._remote_initial) & U32, max(0, self.limit - self.received)
        if drain or self._asking:
            echo, self._asking = self._asking, False
            self.session.send_flow(handle=self.handle, delivery_count=count, link_credit=credit, drain=drain, echo=echo)
        else:
            self.session.send_credit(self.handle, count, credit)

    def take_flow(self, flow: Flow) -> None:
        """The sender's view: it may have used up credit (drain) or report what it has."""
        if flow.available is not None or not flow.drain:  # the answer to a drain does not state it
            self.queued = flow.available
        if flow.delivery_count is not None and self.limit >= 0:
            ahead = serial_difference(int(flow.delivery_count), (self.received + self._remote_initial) & U32)
            if ahead > 0:
                given = min(ahead, self.limit - self.received)
                self.received += given
                self.settled += given
                self._given += given
                if self.settled >= self.topup_at:
                    self.want_flow()
        if self.attach_sent and not self.detached:
            if self.draining and self.received >= self.limit:
                self.draining = False
                self._handler.on_drained(self)
            elif flow.echo:
                self._send_flow(self.draining)

    def went_live(self) -> None:
        """Both attaches are here: let the fast path serve the link, and grant credit."""
        attach = self.remote_attach
        self._remote_initial = int(attach.initial_delivery_count or 0) if attach is not None else 0
        self.second = self.rcv_settle_mode == SECOND
        self.incoming.receivers[self.remote_handle] = self
        if self.limit > 0 or self._window > 0:
            self.want_flow()

    def went_dead(self) -> None:
        """Close the link to the fast path and discard an unfinished delivery."""
        self.limit = -1
        self.topup_at = NEVER
        self.incoming.receivers.pop(self.remote_handle, None)
        partial = self._partial
        if partial is not None and not partial._discard:
            partial._discard = True
            self._drop(partial)

    def lose(self, tokens: list[Any] | None) -> None:
        """End the link: its deliveries are no longer unsettled here."""
        self.went_dead()
        self._partial = None
        if self.received > self.settled:
            unsettled = self.incoming.unsettled
            for delivery_id in [i for i, link in unsettled.items() if link is self]:
                del unsettled[delivery_id]

    def let_go(self) -> None:
        """Release the callbacks of the user, which refer to the link."""
        self.on_delivery = self._handler.on_delivery
        self.on_run = None
        self.on_transactional = None

    def _drop(self, partial: Partial) -> None:
        """Forget what has come of an unfinished delivery; on a streaming link it is reported as aborted."""
        partial._release()
        self._refuse_work(partial.transaction, _NOT_WHOLE)
        if partial._reported:
            partial.aborted = partial.done = True
            self._handler.on_partial(self, partial)

    # --- transfers that come by the tables ----------------------------------------------------------------------------

    def take_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take a transfer that the fast path left over: first ids, pieces, aborts, odd encodings, dead links. Raises
        LinkFault and SessionFault."""
        partial = self._partial
        if partial is None:
            partial = self._first_frame(transfer)
            if type(transfer.state) is TransactionalState and not partial._discard:
                if self.on_transactional is None:
                    self._partial = partial if transfer.more else None
                    self._refuse_work(transfer.state, errors.no_transactions())
                    raise no_transactions(self)
                partial.transaction = transfer.state
        else:
            self._further_frame(partial, transfer)
        if transfer.aborted:
            self._aborted(partial)
        elif partial._discard:
            self._partial = partial if transfer.more else None
        else:
            self._piece(partial, payload, bool(transfer.more))
        if self.limit >= 0:
            if self._partial is None:
                self.incoming.receivers[self.remote_handle] = self
            else:
                self.incoming.receivers.pop(self.remote_handle, None)

    def _first_frame(self, transfer: Transfer) -> Partial:
        if transfer.delivery_id is None or transfer.delivery_tag is None:
            missing = "delivery-id" if transfer.delivery_id is None else "delivery-tag"
            raise SessionFault(
                errors.INVALID_FIELD, f"the first transfer of a delivery on {self.name!r} has no {missing}"
            )
        delivery_id, settled = int(transfer.delivery_id), bool(transfer.settled)
        self.incoming.first_frame(delivery_id)
        partial = Partial(self, delivery_id, bytes(transfer.delivery_tag), int(transfer.message_format or 0), settled)
        if self.limit < 0 or not self.attach_sent:  # detached here, the peer did not know yet
            self._refuse_work(transfer.state, _NOT_TAKEN)
            partial._discard = True
            self._partial = partial
            if not self.detached:
                raise LinkFault(self, errors.TRANSFER_LIMIT_EXCEEDED, "a transfer before the attach was answered")
            self._discarded += 1
            if self._discarded > self.incoming.size:
                raise SessionFault(errors.ERRANT_LINK, f"link {self.name!r} has been detached and is used on")
            return partial
        self._partial = partial
        if self.received >= self.limit:
            self._refuse_work(transfer.state, _NOT_TAKEN)
            partial._discard = bool(transfer.more)
            self._partial = partial if transfer.more else None
            raise LinkFault(self, errors.TRANSFER_LIMIT_EXCEEDED, f"link {self.name!r} has no credit")
        self.received += 1
        if settled:
            self.count_settled()
        else:
            self.incoming.unsettled[delivery_id] = self
        return partial

    def _further_frame(self, partial: Partial, transfer: Transfer) -> None:
        self.incoming.further_frame()
        if transfer.delivery_id is not None and transfer.delivery_id != partial.delivery_id:
            raise SessionFault(
                errors.INVALID_FIELD,
                f"delivery {transfer.delivery_id} begins within {partial.delivery_id} on link {self.name!r}",
            )
        tag, message_format = transfer.delivery_tag, transfer.message_format
        other_tag = tag is not None and bytes(tag) != partial.tag
        if other_tag or (message_format is not None and int(message_format) != partial.message_format):
            what = "delivery-tag" if other_tag else "message-format"
            raise SessionFault(
                errors.INVALID_FIELD,
                f"a further transfer of delivery {partial.delivery_id} on link {self.name!r} has another {what}",
            )
        if transfer.settled and not partial.settled:
            partial.settled = True
            if self.incoming.unsettled.pop(partial.delivery_id, None) is not None:
                self.count_settled()

    def _aborted(self, partial: Partial) -> None:
        if self.incoming.unsettled.pop(partial.delivery_id, None) is not None:
            self.count_settled()
        self._partial = None
        if not partial._discard:
            self._drop(partial)

    def _piece(self, partial: Partial, payload: bytes, more: bool) -> None:
        if not partial.size and not more and not partial._frames:
            self._partial = None
            self._deliver(partial, payload)
        elif not partial.settled and partial.delivery_id not in self.incoming.unsettled:
            self._discard(partial, more)  # settled by us before it was complete: the rest is of no interest
        elif self.streaming:
            self.stream(partial, payload, more)
        else:
            self._assemble(partial, payload, more)

    def stream(self, partial: Partial, payload: bytes, more: bool) -> None:
        """Take a piece for on_partial."""
        if payload:
            self.bytes += len(payload)
            partial.size += len(payload)
            partial._frames += 1
            self.incoming.hold_frame()
            self._held.add(partial._add(payload), True)
        if not more:
            self._partial = None
            partial.done = True
        if not payload and not partial._reported:
            return  # nothing has come of it yet: it may still become a delivery of one frame
        partial._reported = True
        self._handler.on_partial(self, partial)
        incoming = self.incoming
        if partial._frames and not incoming.withheld and not incoming.due:
            incoming.want_restored()

    def _assemble(self, partial: Partial, payload: bytes, more: bool) -> None:
        """A piece of a message that is delivered whole."""
        fits = True
        if payload:
            partial.size += len(payload)
            fits = self._held.add(partial._add(payload), False)
        if 0 < self.max_message_size < partial.size:
            text = f"a message of more than {self.max_message_size} bytes"
            raise self._rejected(partial, more, errors.MESSAGE_SIZE_EXCEEDED, text)
        if not fits:
            text = f"unfinished deliveries of more than {self._held.limits.max_partial} bytes on one connection"
            raise self._rejected(partial, more, errors.RESOURCE_LIMIT_EXCEEDED, text)
        if not more:
            self._partial = None
            self._deliver(partial, partial.take())

    def _deliver(self, partial: Partial, message: bytes) -> None:
        id, settled, tag, message_format = partial.delivery_id, partial.settled, partial.tag, partial.message_format
        if partial.transaction is not None:
            self.take_work(id, settled, message, tag, message_format, partial.transaction)
            return
        self.bytes += len(message)
        try:
            self.on_delivery(self, id, settled, message, tag, message_format)
        except Exception as failure:
            self.failed(failure)

    def take_work(
        self,
        delivery_id: int,
        settled: bool,
        message: bytes,
        tag: bytes,
        message_format: int,
        state: TransactionalState,
    ) -> None:
        """Give a whole message of a transaction to `on_transactional`."""
        self.bytes += len(message)
        try:
            if self.on_transactional is None:  # the link has ended since its first frame
                raise no_transactions(self)
            self.on_transactional(self, delivery_id, settled, message, tag, message_format, state)
        except Exception as failure:
            self._refuse_work(state, _NOT_TAKEN)
            self.failed(failure)

    def _refuse_work(self, state: object, error: AmqpError) -> None:
        """Report a delivery that is not taken, if it is work of a transaction."""
        if type(state) is TransactionalState:
            self._handler.on_work_refused(self.session, bytes(state.txn_id), error)

    def failed(self, failure: Exception) -> None:
        """A callback for a delivery of this link has raised."""
        self._handler.link_failed(self, failure)

    def _discard(self, partial: Partial, more: bool) -> None:
        """Discard the received and the further pieces of a delivery."""
        partial._discard = True
        partial._release()
        self._refuse_work(partial.transaction, _NOT_TAKEN)
        self._partial = partial if more else None

    def _rejected(self, partial: Partial, more: bool, condition: Symbol, text: str) -> LinkFault:
        """Return the fault of the link for a delivery of which too much has come. The delivery is rejected, so that
        its sender, behind a router too, knows that it was not taken."""
        self._discard(partial, more)
        fault = LinkFault(self, condition, text)
        self.session.settle(partial.delivery_id, Rejected(error=Error.of(fault)))
        return fault

    def released(self, cost: int, frames: int) -> None:
        """Pieces of a delivery were taken or forgotten. (Its Partial calls this.)"""
        self._held.remove(cost, frames > 0)
        if frames:
            self.incoming.consumed(frames)


def no_transactions(link: Link) -> LinkFault:
    """Return the fault for a transactional transfer: transactions are not supported."""
    error = errors.no_transactions()
    return LinkFault(link, error.condition, error.description)
