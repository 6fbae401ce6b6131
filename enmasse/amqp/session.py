"""Sessions: begin and end, attach and detach, and which frame goes to which part (OASIS AMQP 1.0, 2.5 and 2.6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, ClassVar, Protocol

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Terminal,
    TransactionalState,
    Transfer,
)
from enmasse.amqp.codec.serial import U32, serial_difference
from enmasse.amqp.endpoint import FIRST, SECOND, Link, LinkConnection, SessionFault, from_error
from enmasse.amqp.held_bytes import HeldBytes
from enmasse.amqp.incoming import IncomingWindow
from enmasse.amqp.limits import Limits
from enmasse.amqp.linktable import LinkNames, LinkTable
from enmasse.amqp.outgoing import MAX_WINDOW, OutgoingWindow
from enmasse.amqp.output import Output
from enmasse.amqp.receiver import Receiver, ReceiverCallbacks, no_transactions
from enmasse.amqp.sender import Sender, SenderCallbacks

MAX_HANDLE = 65535
_CREDIT = Struct(">IHHIBBBIBIBIBIBIBIBI").pack


class SessionCallbacks(SenderCallbacks, ReceiverCallbacks, Protocol):
    """Callbacks of a session and its links (callbacks.Guard)."""

    def reason(self, failure: Exception) -> AmqpError: ...
    def on_attach(self, link: Link) -> None: ...
    def on_attached(self, link: Link) -> None: ...
    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None: ...
    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None: ...
    def on_end(self, s: Session, error: AmqpError | None) -> None: ...


class SessionConnection(LinkConnection, Protocol):
    """The connection of a session (connection.Connection), as the session sees it."""

    max_frame_size: int
    open_fields: Open
    output: Output
    held: HeldBytes
    names: LinkNames

    @property
    def limits(self) -> Limits: ...
    @property
    def handler(self) -> SessionCallbacks: ...

    def forget_session(self, session: Session) -> None: ...


class Session:
    """One session. `links` are those not yet over; `context` is yours.

    What comes in is `incoming`, what goes out `outgoing`, which links there are its table's; here is what concerns all.
    """

    sender_type: ClassVar[type[Sender]] = Sender
    receiver_type: ClassVar[type[Receiver]] = Receiver
    """Classes of its links."""

    def __init__(self, connection: SessionConnection, channel: int) -> None:
        limits = connection.limits
        self.connection = connection
        self.channel = channel  # ours, in frames we send
        self.remote_channel = -1
        self.remote_begin: Begin | None = None
        self.context: Any = None
        self.end_sent = False
        self.incoming: IncomingWindow[Receiver] = IncomingWindow(
            connection.output,
            channel,
            limits.incoming_window,
            limits.streaming_window // connection.max_frame_size,
        )
        self.precedence = 0
        """Sessions with a higher one send first what has waited because the peer did not read."""
        self.outgoing: OutgoingWindow[Sender] = OutgoingWindow(connection.output, channel, limits.max_unsettled)
        self._table = LinkTable(connection.names)
        self._made_names = 0
        self._over = False
        self._touched = False

    def __repr__(self) -> str:
        return f"<Session {self.channel} of {self.connection!r}>"

    # --- for users ----------------------------------------------------------------------------------------------------

    @property
    def links(self) -> list[Link]:
        """All links of the session that have not ended."""
        return self._table.all()

    @property
    def link_count(self) -> int:
        """Return the number of links, attached or attaching."""
        return len(self._table)

    @property
    def ended(self) -> bool:
        """Return True if nothing can be sent on it: it is ended locally, or has ended."""
        return self.end_sent or self._over

    @property
    def crowded(self) -> bool:
        """Pieces of streamed deliveries that were not taken fill more than half of the peer's window."""
        return self.incoming.crowded

    def unsettled_in(self) -> tuple[int, Mapping[int, Receiver]]:
        """The delivery-id that comes next (-1: none has come), and what we have not settled, the oldest first."""
        return self.incoming.next_id, self.incoming.unsettled

    def unsettled_out(self) -> tuple[int, Mapping[int, tuple[Sender, Any]]]:
        """The delivery-id that goes next, and what the peer has not settled: sender and token, the oldest first."""
        return self.outgoing.next_id, self.outgoing.unsettled

    def attach_sender(self, name: str | None, source: Any, target: Any, **fields: Any) -> Sender:
        """Attach a link on which we send. `fields` are those of attach (2.7.3); a name is made if None is given.
        Raises AmqpError if the session has ended or has no handle left."""
        link = self._sender(self._name(name))
        self._attach(link, source, target, fields)
        return link

    def attach_receiver(self, name: str | None, source: Any, target: Any, **fields: Any) -> Receiver:
        """Attach a link on which we receive; grant credit or set `credit_window` now or later. As attach_sender; in
        addition `streaming=True` as a field makes deliveries of several frames come in pieces."""
        link = self._receiver(self._name(name))
        link.streaming = bool(fields.pop("streaming", False))
        if not link.streaming:
            link.max_message_size = self.connection.limits.max_message_size
        self._attach(link, source, target, fields)
        return link

    def settle(self, delivery_id: int, state: Any = ACCEPTED) -> None:
        """As receiver: settle one incoming delivery. Leaves with others as a range at the next flush. Unknown ids are
        ignored (the link or session may be gone). On a link of rcv-settle-mode second this states the outcome, and the
        delivery is settled when the sender has settled it."""
        incoming = self.incoming
        link = incoming.unsettled.pop(delivery_id, None)
        if link is None:
            return
        if link.second:
            incoming.unsettled[delivery_id] = link
            self.update(delivery_id, state)
            return
        settled = link.settled = link.settled + 1
        if settled >= link.topup_at:
            link.want_flow()
        if state is ACCEPTED:
            incoming.accepted.append(delivery_id)
        else:
            incoming.others.append((delivery_id, state))
        if not self._touched:
            self.touch()

    def update(self, delivery_id: int, state: Any) -> None:
        """As receiver: state an outcome without settling."""
        self.update_all((delivery_id,), state)

    def update_all(self, delivery_ids: Iterable[int], state: Any) -> list[int]:
        """`update` of several deliveries; return those that are not settled. The others are ignored."""
        unsettled, updates = self.incoming.unsettled, self.incoming.updates
        known = [each for each in delivery_ids if each in unsettled]
        for each in known:
            if not isinstance(updates.get(each), Terminal):
                updates[each] = state
        if known:
            self.touch()
        return known

    def end(self, error: AmqpError | None = None) -> None:
        """End the session; `on_end` follows when the peer has answered."""
        if self.ended:
            return
        self.close_links()
        self.send(End(error=None if error is None else Error.of(error)))
        self._end_is_sent()

    def resume_senders(self) -> None:
        """`on_flow` for every sender with credit or a drain: after room has been made."""
        for link in self.links:
            if isinstance(link, Sender) and link.attached and (link.drain or link.granted or link.sending):
                self.connection.handler.on_flow(link)

    # --- for links ----------------------------------------------------------------------------------------------------

    def send(self, performative: Any) -> None:
        """A frame of this session, as long as it has not ended."""
        if not self.end_sent and not self._over:
            self.connection.output.send(self.channel, performative)

    def send_flow(self, **link_fields: Any) -> None:
        """A flow with this session's state, which restores the peer's window."""
        window = self.incoming.restore()
        self.send(
            Flow(
                next_incoming_id=None if self.remote_begin is None else self.incoming.next_transfer_id,
                incoming_window=window,
                next_outgoing_id=self.outgoing.next_transfer_id,
                outgoing_window=MAX_WINDOW,
                **link_fields,
            )
        )

    def send_credit(self, handle: int, delivery_count: int, credit: int) -> None:
        """The flow that is sent most, made by one pack. The peer has begun."""
        window = self.incoming.restore()
        if not self.end_sent and not self._over:
            self.connection.output.put(
                _CREDIT(
                    49, 0x0200, self.channel, 0x005313C0, 36, 7,
                    0x70, self.incoming.next_transfer_id, 0x70, window, 0x70, self.outgoing.next_transfer_id,
                    0x70, MAX_WINDOW, 0x70, handle, 0x70, delivery_count, 0x70, credit,
                )
            )  # fmt: skip

    def touch(self) -> None:
        """Something is due at the next flush."""
        if not self._touched:
            self._touched = True
            self.connection.output.touch(self.channel)

    def flush(self) -> None:
        """Send the dispositions and flows that are due."""
        self._touched = False
        if self.end_sent or self._over:
            return
        self.incoming.flush()
        self.outgoing.flush()
        self.incoming.flush_credit()
        if self.incoming.due:
            self.send_flow()

    # --- for the connection: begin and end ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Send our begin."""
        self.connection.output.send(
            self.channel,
            Begin(
                remote_channel=None if self.remote_channel < 0 else self.remote_channel,
                next_outgoing_id=0,
                incoming_window=self.incoming.size,
                outgoing_window=MAX_WINDOW,
                handle_max=MAX_HANDLE,
            ),
        )

    def take_begin(self, begin: Begin, remote_channel: int) -> None:
        """Take the peer's begin: its channel and windows."""
        self.remote_channel = remote_channel
        self.remote_begin = begin
        self.incoming.begin(int(begin.next_outgoing_id))
        self.outgoing.grant(self.outgoing.next_transfer_id, int(begin.incoming_window))

    def take_end(self, end: End) -> None:
        """Take the peer's end and answer it."""
        error = from_error(end.error)
        broken = error is not None and not self.end_sent
        if not self.end_sent:
            self.flush()
            self.send(End())
            self._end_is_sent()
        self.finish(error, broken)

    def _end_is_sent(self) -> None:
        self.end_sent = self.outgoing.shut = True

    def close_links(self) -> None:
        """Stop sending and delivering on all links. Does not raise."""
        for link in self.links:
            try:
                link.went_dead()
            except Exception as failure:
                self.connection.handler.reason(failure)
        self.flush()
        self.incoming.shut()

    def stop_sending(self) -> None:
        """Take the credit of all senders."""
        for link in self.links:
            if isinstance(link, Sender):
                link.stop()

    def finish(self, error: AmqpError | None, broken: bool) -> None:
        """End the links, then the session. `broken`: the peer has not ended it in order. Does not raise."""
        if self._over:
            return
        self._over = True
        self.stop_sending()
        lost = self.outgoing.close()
        self.incoming.close()
        for link in self.links:
            try:
                link.broken = broken
                self._link_over(link, error, False, lost.get(link) if isinstance(link, Sender) else None)
            except Exception as failure:
                self.connection.handler.reason(failure)
        self.incoming.let_go()
        self.connection.forget_session(self)
        self.connection.handler.on_end(self, error)

    # --- attach and detach --------------------------------------------------------------------------------------------

    def _name(self, name: str | None) -> str:
        if name is not None:
            return name
        self._made_names += 1
        return f"{self.connection.open_fields.container_id}-{self.channel}-{self._made_names}"

    def _new_handle(self) -> int:
        if self.ended:
            raise AmqpError(errors.ILLEGAL_STATE, "the session has ended")
        return self._table.new_handle(U32 if self.remote_begin is None else int(self.remote_begin.handle_max))

    def _sender(self, name: str) -> Sender:
        connection = self.connection
        return self.sender_type(self, name, self._new_handle(), connection.handler, self.outgoing, connection.output)

    def _receiver(self, name: str) -> Receiver:
        connection = self.connection
        return self.receiver_type(self, name, self._new_handle(), connection.handler, self.incoming, connection.held)

    def _attach(self, link: Link, source: Any, target: Any, fields: dict[str, Any]) -> None:
        link.source = source
        link.target = target
        link.properties = fields.pop("properties", None) or {}
        self._table.add(link, awaiting=True)
        try:
            link.send_attach(fields)
        except Exception:  # it does not fit into the peer's frames, or has no AMQP form
            link.over = True
            self._table.remove(link)
            raise

    def take_attach(self, attach: Attach, size: int) -> None:
        """The peer's attach, of `size` bytes. Raises SessionFault."""
        connection = self.connection
        handle = int(attach.handle)
        if handle > MAX_HANDLE:
            raise AmqpError(errors.FRAMING_ERROR, f"handle {handle} is beyond handle-max")
        present = self._table.by_remote(handle)
        if present is not None:
            raise SessionFault(errors.HANDLE_IN_USE, f"handle {handle} is attached to link {present.name!r}")
        key = (attach.name, bool(attach.role))
        link = self._table.answered(key)
        if link is not None:
            self._bind(link, attach, size)
            self._answered(link, attach)
            return
        beyond = connection.names.beyond(size)
        try:
            link = self._sender(attach.name) if attach.role else self._receiver(attach.name)
        except AmqpError as error:
            raise SessionFault(error.condition, error.description) from None
        if not link.is_sender:
            link.max_message_size = connection.limits.max_message_size
        stolen = connection.names.get(key)
        self._table.add(link, awaiting=False)
        self._bind(link, attach, size)
        if stolen is not None and stolen is not link and not stolen.detached:
            stolen.detach(AmqpError(errors.STOLEN, f"link {attach.name!r} has been attached again"))
        try:
            if beyond >= 0:
                raise AmqpError(
                    errors.RESOURCE_LIMIT_EXCEEDED,
                    f"a connection may have {connection.limits.max_links} links here; detach some, or use another one",
                )
            connection.handler.on_attach(link)
        except AmqpError as error:
            link.refuse(error)

    def _bind(self, link: Link, attach: Attach, size: int) -> None:
        link.remote_attach = attach
        link.remote_source = attach.source
        link.remote_target = attach.target
        self._table.bind(link, int(attach.handle), size)

    def _answered(self, link: Link, attach: Attach) -> None:
        """The peer's answer to an attach of ours."""
        if link.detach_sent:
            return
        link.snd_settle_mode = int(attach.snd_settle_mode)
        if link.is_sender:  # 2.7.3: the receiver's is the mode in use, the sender's only what it would like
            link.rcv_settle_mode = int(attach.rcv_settle_mode)
        elif int(attach.rcv_settle_mode) != SECOND:
            link.rcv_settle_mode = FIRST  # a sender that does not know `second` never settles: we do it first
        terminus = attach.target if link.is_sender else attach.source
        if terminus is not None:
            link.went_live()
        self.connection.handler.on_attached(link)

    def take_detach(self, detach: Detach) -> None:
        """Take the peer's detach and answer it. Raises SessionFault for an unknown handle."""
        handle = int(detach.handle)
        if self._table.by_remote(handle) is None and self._table.was_attached(handle):
            return  # a second one: some clients answer a refused attach with it, and no link is attached
        link = self._table.remote(handle, "detach of")
        self.flush()
        if not link.detach_sent:
            link.broken = detach.error is not None
            if not link.attach_sent:
                link.source = link.target = None
                link.send_attach({})
            link.detach_sent = True
            self.send(Detach(handle=link.handle, closed=bool(detach.closed)))
        self._link_over(link, from_error(detach.error), bool(detach.closed))

    def _link_over(self, link: Link, error: AmqpError | None, closed: bool, lost: list[Any] | None = None) -> None:
        """`lost`: tokens of the link that are known to be without an outcome already."""
        if link.over:
            return
        link.over = True
        handler = self.connection.handler
        self._table.remove(link)
        try:
            link.lose(lost)
        finally:
            try:
                handler.on_detach(link, error, closed)
            finally:
                link.let_go()

    # --- flow, transfer, disposition ----------------------------------------------------------------------------------

    def take_flow(self, flow: Flow) -> None:
        """Take the peer's flow for the session and, with a handle, for a link. Raises SessionFault for an unknown
        handle."""
        outgoing = self.outgoing
        was_full = outgoing.full
        outgoing.grant(0 if flow.next_incoming_id is None else int(flow.next_incoming_id), int(flow.incoming_window))
        if flow.handle is not None:
            link = self._table.remote(int(flow.handle), "flow for")
            if not link.detach_sent:
                link.take_flow(flow)
        elif flow.echo:
            self.send_flow()
        if was_full and not outgoing.full:
            outgoing.pump()
        if outgoing.starved or outgoing.halted:
            outgoing.resume()

    def take_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Pass a transfer to its receiver. Raises SessionFault for an unknown handle or one of a sender."""
        link = self._table.remote(int(transfer.handle), "transfer on")
        if not isinstance(link, Receiver):
            raise SessionFault(errors.NOT_ALLOWED, f"transfer on link {link.name!r}, whose sender is here")
        link.take_transfer(transfer, payload)

    def take_disposition(self, d: Disposition) -> None:
        """Take outcomes from a receiving peer, settlements from a sending one. Raises SessionFault for an invalid
        range."""
        first = int(d.first)
        last = first if d.last is None else int(d.last)
        count = serial_difference(last, first) + 1
        if count < 1:
            raise SessionFault(errors.INVALID_FIELD, f"disposition from {first} to {last}")
        if d.role and type(d.state) is TransactionalState:
            links, on_refused = self.outgoing.senders_of(first, count), self.connection.handler.on_work_refused
            if not links:
                on_refused(self, bytes(d.state.txn_id), errors.not_acknowledged())
            for link in links:
                if not link.transactional:
                    on_refused(self, bytes(d.state.txn_id), errors.no_transactions())
                    raise no_transactions(link)
        if d.role:
            self.outgoing.outcomes(first, count, bool(d.settled), d.state)
        elif d.settled:
            self.incoming.settled_by_sender(first, count, self.connection.handler.on_settled)
