"""Sessions: windows, delivery-ids, unsettled deliveries, dispositions (OASIS AMQP 1.0, 2.5 and 2.6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any

from enmasse.amqp import errors
from enmasse.amqp.disposition import by_state, send_dispositions
from enmasse.amqp.encoder import encode
from enmasse.amqp.endpoint import U32, Link, SessionFault, from_error, serial_difference
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.handler import MOST_REFUSED
from enmasse.amqp.incoming import came_settled, no_transactions
from enmasse.amqp.outgoing import pump
from enmasse.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    TransactionalState,
)
from enmasse.amqp.receiver import Receiver
from enmasse.amqp.sender import Sender

if TYPE_CHECKING:
    from enmasse.amqp.connection import Connection

MAX_WINDOW = 0x7FFFFFFF
MAX_HANDLE = 65535
_ACCEPTED = encode(ACCEPTED)
_CREDIT = Struct(">IHHIBBBIBIBIBIBIBIBI").pack

PATIENCE = 1 << 18
"""Outgoing ids a peer may have looked at without settling any; each that it settles gives it 16 more, up to this."""


class Session:
    """One session. `links` are those not yet over; `context` is yours."""

    def __init__(self, connection: Connection, channel: int) -> None:
        limits = connection.limits
        self.connection = connection
        self.channel = channel  # ours, in frames we send
        self.remote_channel = -1
        self.remote_begin: Begin | None = None
        self.context: Any = None
        self._begin_sent = False
        self._end_sent = False
        self._over = False
        # links
        self._by_handle: dict[int, Link] = {}
        self._by_remote: dict[int, Link] = {}
        self._receivers: dict[int, Receiver] = {}  # by remote handle: those the fast path may serve
        self._awaiting: dict[tuple[str, bool], Link] = {}  # attached by us, not yet by the peer
        self._next_handle = 0
        self._free_handles: list[int] = []
        self._names = 0
        self._highest_remote = -1  # handle that the peer has attached
        # outgoing: transfer-ids are delivery-ids plus _out_extra
        self._next_id = 0  # delivery-id of the next delivery
        self._out_extra = 0
        self._out_stop = 0  # the delivery-id at which the peer's window is full
        self._outgoing: dict[int, tuple[Sender, Any]] = {}
        self._patience = PATIENCE
        self._gone = 0
        self._max_unsettled = limits.max_unsettled
        self._ready: deque[Sender] = deque()
        self._pumping = False
        self._starved = False
        # incoming
        self._window = limits.incoming_window
        self._in_next = -1  # delivery-id that must come next; -1: none has come yet, or the fast path is closed
        self._in_stop = -1  # delivery-id that the fast path must not take: accounting is due
        self._in_extra = 0  # next-incoming-id is _in_next + _in_extra
        self._in_initial = 0  # next-incoming-id while _in_next is -1
        self._told = self._window & U32  # transfer-id up to which the peer may send, as we told last
        self._granted = self._told  # the furthest we ever told: a smaller window crosses what is on its way
        self._half = self._window // 2
        self._unconsumed = 0  # frames of streamed deliveries that were not taken
        self._withheld = False
        self._incoming: dict[int, Receiver] = {}
        # due at flush
        self._touched = False
        self._accepted: list[int] = []
        self._others: list[tuple[int, Any]] = []
        self._updates: list[tuple[int, Any]] = []
        self._sender_settled: list[int] = []
        self._due: list[Receiver] = []
        self._window_due = False

    def __repr__(self) -> str:
        return f"<Session {self.channel} of {self.connection!r}>"

    # --- for users ----------------------------------------------------------------------------------------------------

    @property
    def links(self) -> list[Link]:
        return list(self._by_handle.values())

    @property
    def ended(self) -> bool:
        return self._end_sent or self._over

    @property
    def crowded(self) -> bool:
        """Pieces of streamed deliveries that were not taken fill more than half of the peer's window."""
        connection = self.connection
        streamed = connection.limits.streaming_window // connection.max_frame_size
        return 2 * self._unconsumed > min(self._window, max(1, streamed))

    def unsettled_in(self) -> tuple[int, Mapping[int, Receiver]]:
        """The delivery-id that comes next (-1: none has come), and what we have not settled, the oldest first."""
        return self._in_next, self._incoming

    def unsettled_out(self) -> tuple[int, Mapping[int, tuple[Sender, Any]]]:
        """The delivery-id that goes next, and what the peer has not settled: sender and token, the oldest first."""
        return self._next_id, self._outgoing

    def attach_sender(self, name: str | None, source: Any, target: Any, **fields: Any) -> Sender:
        """Attach a link on which we send. `fields` are those of attach (2.7.3); a name is made where None is given.
        Raises AmqpError where the session has ended or has no handle left."""
        link = Sender(self, self._name(name), self._new_handle())
        self._attach(link, source, target, fields)
        return link

    def attach_receiver(self, name: str | None, source: Any, target: Any, **fields: Any) -> Receiver:
        """Attach a link on which we receive; grant credit or set `credit_window` now or later. As attach_sender; in
        addition `streaming=True` as a field makes deliveries of several frames come in pieces."""
        link = Receiver(self, self._name(name), self._new_handle(), self.connection.handler)
        link.streaming = bool(fields.pop("streaming", False))
        if not link.streaming:
            link.max_message_size = self.connection.limits.max_message_size
        self._attach(link, source, target, fields)
        return link

    def settle(self, delivery_id: int, state: Any = ACCEPTED) -> None:
        """As receiver: settle one incoming delivery. Leaves with others as a range at the next flush. Unknown ids are
        ignored (the link or session may be gone). On a link of rcv-settle-mode second this tells the state, and the
        delivery is settled when the sender has settled it."""
        link = self._incoming.pop(delivery_id, None)
        if link is None:
            return
        if link._second:
            self._incoming[delivery_id] = link
            self.update(delivery_id, state)
            return
        settled = link._settled = link._settled + 1
        if settled >= link._topup_at:
            link._want_flow()
        if state is ACCEPTED:
            self._accepted.append(delivery_id)
        else:
            self._others.append((delivery_id, state))
        if not self._touched:
            self._touch()

    def update(self, delivery_id: int, state: Any) -> None:
        """As receiver: tell a state without settling."""
        if delivery_id in self._incoming:
            self._updates.append((delivery_id, state))
            if not self._touched:
                self._touch()

    def end(self, error: AmqpError | None = None) -> None:
        """End the session; `on_end` follows when the peer has answered."""
        if self._end_sent or self._over:
            return
        self._close_links()
        self.connection._send(self.channel, End(error=None if error is None else Error.of(error)))
        self._end_sent = True

    def _close_links(self) -> None:
        """Nothing leaves on any link after this, and nothing is delivered."""
        for link in self.links:
            link._went_dead()
        self._flush()
        self._in_next = self._in_stop = -1

    def resume_senders(self) -> None:
        """`on_flow` for every sender with credit or a drain: after room has been made."""
        for link in self.links:
            if link.is_sender:
                assert isinstance(link, Sender)
                if link.attached and (link.drain or link.granted or link._queue):
                    self.connection.handler.on_flow(link)

    # --- begin and end ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        connection = self.connection
        self._begin_sent = True
        connection._send(
            self.channel,
            Begin(
                remote_channel=None if self.remote_channel < 0 else self.remote_channel,
                next_outgoing_id=0,
                incoming_window=self._window,
                outgoing_window=MAX_WINDOW,
                handle_max=MAX_HANDLE,
            ),
        )

    def _on_begin(self, begin: Begin, remote_channel: int) -> None:
        self.remote_channel = remote_channel
        self.remote_begin = begin
        self._in_initial = int(begin.next_outgoing_id)
        self._told = self._granted = (self._in_initial + self._window) & U32
        self._out_stop = (self._next_id + min(int(begin.incoming_window), MAX_WINDOW)) & U32

    def _on_end(self, end: End) -> None:
        if not self._end_sent:
            self._flush()
            self.connection._send(self.channel, End())
            self._end_sent = True
        self._finish(from_error(end.error))

    def _stop_sending(self) -> None:
        """No sender has credit any more: what comes back from one link must not go out on one that dies with it."""
        for link in self.links:
            if link.is_sender:
                assert isinstance(link, Sender)
                link._gate = -1

    def _finish(self, error: AmqpError | None) -> None:
        """The session is over: its links are, then itself."""
        if self._over:
            return
        self._over = True
        handler = self.connection.handler
        self._in_next = self._in_stop = -1
        self._stop_sending()
        lost: dict[Link, list[Any]] = {}
        for sender, token in self._outgoing.values():
            lost.setdefault(sender, []).append(token)
        self._outgoing.clear()
        self._incoming.clear()
        self._ready.clear()
        failures: list[Exception] = []  # of callbacks: the others are told all the same
        for link in self.links:
            try:
                self._link_over(link, error, False, lost.get(link))
            except Exception as failure:
                failures.append(failure)
        self._due = []
        self._receivers.clear()
        self.connection._forget_session(self)
        handler.on_end(self, error)
        if failures:
            raise failures[0]

    def _send(self, p: Any) -> None:
        if not self._end_sent and not self._over:
            self.connection._send(self.channel, p)

    # --- links --------------------------------------------------------------------------------------------------------

    def _name(self, name: str | None) -> str:
        if name is not None:
            return name
        self._names += 1
        return f"{self.connection.open_fields.container_id}-{self.channel}-{self._names}"

    def _new_handle(self) -> int:
        if self._end_sent or self._over:
            raise AmqpError(errors.ILLEGAL_STATE, "the session has ended")
        if self._free_handles:
            return self._free_handles.pop()
        handle = self._next_handle
        highest = U32 if self.remote_begin is None else int(self.remote_begin.handle_max)
        if handle > highest:
            raise AmqpError(errors.RESOURCE_LIMIT_EXCEEDED, f"the peer allows {highest + 1} links in a session")
        self._next_handle += 1
        return handle

    def _attach(self, link: Link, source: Any, target: Any, fields: dict[str, Any]) -> None:
        link.source = source
        link.target = target
        link.properties = fields.pop("properties", None) or {}
        self._by_handle[link.handle] = link
        self._awaiting[(link.name, link.is_sender)] = link
        self.connection._link_count += 1
        try:
            link._send_attach(fields)
        except Exception:  # it does not fit into the peer's frames, or has no AMQP form
            link._over = True
            del self._by_handle[link.handle], self._awaiting[(link.name, link.is_sender)]
            self._free_handles.append(link.handle)
            self.connection._link_count -= 1
            raise

    def _on_attach(self, attach: Attach, size: int) -> None:
        connection = self.connection
        handle = int(attach.handle)
        if handle > MAX_HANDLE:
            raise AmqpError(errors.FRAMING_ERROR, f"handle {handle} is beyond handle-max")
        if handle in self._by_remote:
            raise SessionFault(
                errors.HANDLE_IN_USE, f"handle {handle} is attached to link {self._by_remote[handle].name!r}"
            )
        key = (attach.name, bool(attach.role))
        link = self._awaiting.pop(key, None)
        if link is not None:
            self._took(link, attach, handle, size)
            self._answered(link)
            return
        beyond = connection._link_count - connection.limits.max_links
        if beyond >= MOST_REFUSED:
            raise SessionFault(errors.RESOURCE_LIMIT_EXCEEDED, f"more than {connection.limits.max_links} links")
        if connection._link_state + size > connection.limits.max_link_state:
            raise SessionFault(errors.RESOURCE_LIMIT_EXCEEDED, "the links of this connection carry too much state")
        try:
            local = self._new_handle()
        except AmqpError as error:
            raise SessionFault(error.condition, error.description) from None
        stolen = connection._names.get(key)
        if attach.role:
            link = Sender(self, attach.name, local)
        else:
            link = Receiver(self, attach.name, local, connection.handler)
            link.max_message_size = connection.limits.max_message_size
        self._by_handle[local] = link
        connection._link_count += 1
        self._took(link, attach, handle, size)
        if stolen is not None and stolen is not link and not stolen.detached:
            stolen.detach(AmqpError(errors.STOLEN, f"link {attach.name!r} has been attached anew"))
        try:
            if beyond >= 0:
                raise AmqpError(
                    errors.RESOURCE_LIMIT_EXCEEDED,
                    f"a connection may have {connection.limits.max_links} links here; detach some, or use another one",
                )
            connection.handler.on_attach(link)
        except AmqpError as error:
            link.refuse(error)

    def _took(self, link: Link, attach: Attach, handle: int, size: int) -> None:
        link.remote_handle = handle
        link.remote_attach = attach
        link.remote_source = attach.source
        link.remote_target = attach.target
        link._state_size = size
        self._by_remote[handle] = link
        if handle > self._highest_remote:
            self._highest_remote = handle
        self.connection._link_state += size
        self.connection._names[(link.name, link.is_sender)] = link

    def _answered(self, link: Link) -> None:
        """The peer's answer to an attach of ours."""
        if link._detach_sent:
            return
        attach = link.remote_attach
        assert attach is not None
        link.snd_settle_mode = int(attach.snd_settle_mode)
        if link.is_sender:  # 2.7.3: the receiver's is the mode in use, the sender's only a wish
            link.rcv_settle_mode = int(attach.rcv_settle_mode)
        terminus = attach.target if link.is_sender else attach.source
        if terminus is not None:
            link._went_live()
        self.connection.handler.on_attached(link)

    def _on_detach(self, detach: Detach) -> None:
        link = self._by_remote.get(int(detach.handle))
        if link is None:
            if detach.handle <= self._highest_remote:
                return  # a second one: some clients answer a refused attach with it, and nothing is attached any more
            raise SessionFault(errors.UNATTACHED_HANDLE, f"detach of handle {detach.handle}, which is not attached")
        self._flush()
        if not link._detach_sent:
            if not link._attach_sent:
                link.source = link.target = None
                link._send_attach({})
            link._detach_sent = True
            self._send(Detach(handle=link.handle, closed=bool(detach.closed)))
        self._link_over(link, from_error(detach.error), bool(detach.closed))

    def _link_over(self, link: Link, error: AmqpError | None, closed: bool, lost: list[Any] | None = None) -> None:
        """`lost`: tokens of the link that are known to be without an outcome already."""
        if link._over:
            return
        link._over = True
        connection = self.connection
        self._by_handle.pop(link.handle, None)
        self._by_remote.pop(link.remote_handle, None)
        self._free_handles.append(link.handle)
        key = (link.name, link.is_sender)
        if connection._names.get(key) is link:
            del connection._names[key]
        if self._awaiting.get(key) is link:
            del self._awaiting[key]
        connection._link_count -= 1
        connection._link_state -= link._state_size
        try:
            link._lost(lost)
        finally:
            try:
                connection.handler.on_detach(link, error, closed)
            finally:
                link._let_go()

    # --- flow ---------------------------------------------------------------------------------------------------------

    def _on_flow(self, flow: Flow) -> None:
        seen = 0 if flow.next_incoming_id is None else int(flow.next_incoming_id)
        behind = serial_difference(self._next_outgoing_id(), seen)
        if behind < 0:
            raise SessionFault(errors.INVALID_FIELD, f"next-incoming-id {seen} has not been sent yet")
        room = max(0, min(int(flow.incoming_window) - behind, MAX_WINDOW))
        was_full = self._out_stop == self._next_id
        self._out_stop = (self._next_id + room) & U32
        if flow.handle is not None:
            link = self._by_remote.get(int(flow.handle))
            if link is None:
                raise SessionFault(errors.UNATTACHED_HANDLE, f"flow for handle {flow.handle}, which is not attached")
            if not link._detach_sent:
                link._on_flow(flow)
        elif flow.echo:
            self._send(self._flow())
        if was_full and room:
            pump(self)
        if self._starved:
            self._resume_starved()

    def _resume_starved(self) -> None:
        """Room has come back: tell the senders that were denied credit for want of it."""
        if (
            self._next_id == self._out_stop
            or self.connection.blocked
            or len(self._outgoing) > self._max_unsettled // 2
            or self._over
        ):
            return
        self._starved = False
        for link in self.links:
            if link.is_sender:
                assert isinstance(link, Sender)
                if link._starved:
                    link._starved = False
                    if link.attached and (link.granted or link._queue):
                        self.connection.handler.on_flow(link)

    def _next_outgoing_id(self) -> int:
        return (self._next_id + self._out_extra) & U32

    def _next_incoming_id(self) -> int:
        return self._in_initial if self._in_next < 0 else (self._in_next + self._in_extra) & U32

    def _restore_window(self) -> int:
        """What a flow is to say as incoming-window; it holds from now on."""
        next_incoming_id = self._next_incoming_id()
        window = self._window
        if self._unconsumed:
            connection = self.connection
            streamed = max(1, connection.limits.streaming_window // connection.max_frame_size)
            window = max(0, min(window, streamed) - self._unconsumed)
        self._told = (next_incoming_id + window) & U32
        if serial_difference(self._told, self._granted) > 0:
            self._granted = self._told
        self._half = window // 2
        self._withheld = window < self._window
        self._window_due = False
        self._set_stop()
        return window

    def _flow(self, **link_fields: Any) -> Flow:
        """A flow with this session's state, which restores the peer's window."""
        window = self._restore_window()
        return Flow(
            next_incoming_id=None if self.remote_begin is None else self._next_incoming_id(),
            incoming_window=window,
            next_outgoing_id=self._next_outgoing_id(),
            outgoing_window=MAX_WINDOW,
            **link_fields,
        )

    def _send_credit(self, handle: int, delivery_count: int, credit: int) -> None:
        """The flow that is sent most, made by one pack. The peer has begun."""
        window = self._restore_window()
        if not self._end_sent and not self._over:
            self.connection._put(
                _CREDIT(
                    49, 0x0200, self.channel, 0x005313C0, 36, 7,
                    0x70, self._next_incoming_id(), 0x70, window, 0x70, self._next_outgoing_id(), 0x70, MAX_WINDOW,
                    0x70, handle, 0x70, delivery_count, 0x70, credit,
                )
            )  # fmt: skip

    def _set_stop(self) -> None:
        """Where the fast path must hand over: at half of the window, at its end once a flow is due, at the wrap."""
        if self._in_next >= 0:
            if self._window_due:
                left = serial_difference(self._granted, self._next_incoming_id())
            else:
                left = serial_difference(self._told, self._next_incoming_id()) - self._half - 1
            self._in_stop = min(self._in_next + max(0, left), U32)

    def _count_frame(self) -> None:
        """One transfer frame has come; call it after the ids have advanced."""
        next_incoming_id = self._next_incoming_id()
        if serial_difference(self._granted, next_incoming_id) < 0:
            raise SessionFault(errors.WINDOW_VIOLATION, "more transfers than the incoming window allows")
        if serial_difference(self._told, next_incoming_id) <= self._half and not self._window_due:
            self._want_window()
        self._set_stop()

    def _want_window(self) -> None:
        self._window_due = True
        self._touch()

    def _consumed(self, frames: int) -> None:
        """Pieces of streamed deliveries were taken."""
        self._unconsumed -= frames
        if self._withheld and not self._window_due and not self._over:
            self._want_window()

    # --- dispositions -------------------------------------------------------------------------------------------------

    def _on_disposition(self, d: Disposition) -> None:
        first = int(d.first)
        last = first if d.last is None else int(d.last)
        count = serial_difference(last, first) + 1
        if count < 1:
            raise SessionFault(errors.INVALID_FIELD, f"disposition from {first} to {last}")
        if d.role and type(d.state) is TransactionalState:
            for delivery_id in self._known(self._outgoing, first, count):
                raise no_transactions(self._outgoing[delivery_id][0])
        elif d.role:
            self._outcomes(first, count, bool(d.settled), d.state)
        elif d.settled:
            self._sender_has_settled(first, count)

    def _known(self, held: dict[int, Any], first: int, count: int) -> Iterable[int]:
        """Ids of a range that are in `held`, without walking a range that a peer made up."""
        if count <= 2 * len(held) + 16:
            return [i for i in ((first + n) & U32 for n in range(count)) if i in held]
        return sorted((i for i in held if (i - first) & U32 < count), key=lambda i: (i - first) & U32)

    def _outcomes(self, first: int, count: int, settled: bool, state: Any) -> None:
        """Deliver a range to on_outcomes, one call per run of one sender."""
        outgoing = self._outgoing
        run: list[Any] = []
        sender: Sender | None = None
        # A few bytes may name every unsettled delivery, and do so again and again.
        known = list(self._known(outgoing, first, count))
        gone = (self._next_id - len(outgoing)) & U32  # deliveries that are settled, on whichever path
        self._patience = min(PATIENCE, self._patience + 16 * ((gone - self._gone) & U32)) - min(count, len(outgoing))
        self._gone = gone
        if self._patience < 0:
            raise SessionFault(errors.RESOURCE_LIMIT_EXCEEDED, "too many dispositions that settle nothing")
        for delivery_id in known:
            entry = outgoing.pop(delivery_id, None) if settled else outgoing.get(delivery_id)
            if entry is None:
                continue  # a callback has settled it meanwhile
            link, token = entry
            if link is not sender:
                if sender is not None:
                    self._tell(sender, run, state, settled)
                sender, run = link, []
            run.append(token)
            if not settled:
                link._undecided.setdefault(id(token), {})[delivery_id] = None
        if sender is not None:
            self._tell(sender, run, state, settled)

    def _tell(self, sender: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        if settled:
            sender._done += len(tokens)
            if sender._undecided:
                sender._decided(tokens)
        self.connection.handler.on_outcomes(sender, tokens, state, settled)
        if self._starved:
            self._resume_starved()

    def _sender_has_settled(self, first: int, count: int) -> None:
        incoming = self._incoming
        run: list[int] = []
        receiver: Receiver | None = None
        for delivery_id in self._known(incoming, first, count):
            link = incoming.pop(delivery_id, None)
            if link is None:
                continue
            if link is not receiver:
                if receiver is not None:
                    self.connection.handler.on_settled(receiver, run)
                receiver, run = link, []
            run.append(delivery_id)
            came_settled(self, link)
        if receiver is not None:
            self.connection.handler.on_settled(receiver, run)

    # --- what leaves at flush -----------------------------------------------------------------------------------------

    def _touch(self) -> None:
        """Something is due at the next flush."""
        if not self._touched:
            self._touched = True
            connection = self.connection
            connection._touched.append(self)
            if not connection._dirty:
                connection.wake()

    def _flush(self) -> None:
        """Send the dispositions and flows that are due."""
        self._touched = False
        if self._end_sent or self._over:
            return
        if self._accepted:
            ids, self._accepted = self._accepted, []
            send_dispositions(self, ids, True, True, _ACCEPTED)
        if self._others:
            others, self._others = self._others, []
            for state, ids in by_state(others):
                send_dispositions(self, ids, True, True, state)
        if self._updates:
            updates, self._updates = self._updates, []
            for state, ids in by_state(updates):
                send_dispositions(self, ids, True, False, state)
        if self._sender_settled:
            ids, self._sender_settled = self._sender_settled, []
            send_dispositions(self, ids, False, True, b"\x40")
        if self._due:
            due, self._due = self._due, []
            for link in due:
                link._top_up()
        if self._window_due:
            self._send(self._flow())
