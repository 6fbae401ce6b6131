"""Links: Sender and Receiver, credit and drain (OASIS AMQP 1.0, 2.6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from enmasse.amqp import errors
from enmasse.amqp.delivery import Outgoing, Partial, Piece, uint
from enmasse.amqp.encoder import encode
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.performatives import Attach, Detach, Error, Flow

if TYPE_CHECKING:
    from enmasse.amqp.handler import Handler
    from enmasse.amqp.session import Session

U32 = 0xFFFFFFFF
NEVER = 1 << 62  # a counter never gets there
_MAX_FRAMES_PER_TURN = 8  # of one link, while others of the session wait too
UNSETTLED, SETTLED, MIXED = 0, 1, 2  # snd-settle-mode (2.8.2)
FIRST, SECOND = 0, 1  # rcv-settle-mode (2.8.3)


def serial_difference(a: int, b: int) -> int:
    """a - b in RFC 1982 arithmetic of 32 bits: from -2**31 to 2**31 - 1."""
    return ((a - b + 0x80000000) & U32) - 0x80000000


class LinkFault(AmqpError):
    """The peer broke a rule of one link: it is detached with this error."""

    def __init__(self, link: Link, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.link = link


class Link:
    """What both ends have in common. `source`, `target` and the modes are ours once attached; `remote_*` the peer's."""

    __slots__ = (
        "_attach_sent",
        "_detach_sent",
        "_over",
        "_state_size",
        "context",
        "handle",
        "max_message_size",
        "name",
        "properties",
        "rcv_settle_mode",
        "remote_attach",
        "remote_handle",
        "remote_source",
        "remote_target",
        "session",
        "snd_settle_mode",
        "source",
        "target",
    )
    is_sender = False

    def __init__(self, session: Session, name: str, handle: int) -> None:
        self.session = session
        self.name = name
        self.handle = handle  # ours, in frames we send
        self.remote_handle = -1
        self.source: Any = None
        self.target: Any = None
        self.remote_source: Any = None
        self.remote_target: Any = None
        self.remote_attach: Attach | None = None
        self.properties: dict[Any, Any] = {}
        self.snd_settle_mode = MIXED
        self.rcv_settle_mode = FIRST
        self.max_message_size = 0  # what we said in our attach; 0: no bound
        self.context: Any = None  # yours
        self._attach_sent = False
        self._detach_sent = False
        self._over = False
        self._state_size = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} handle {self.handle} of {self.session!r}>"

    @property
    def attached(self) -> bool:
        """Both ends have attached and neither has detached."""
        return self._attach_sent and self.remote_attach is not None and not self._detach_sent and not self._over

    @property
    def detached(self) -> bool:
        """Nothing can be sent on it any more: we detached, or it is over."""
        return self._detach_sent or self._over

    def accept(self, source: Any = None, target: Any = None, **fields: Any) -> None:
        """Answer the peer's attach. Termini default to the peer's own; `fields` are further ones of attach (2.7.3)."""
        if self._attach_sent or self._over:
            return
        self.source = self.remote_source if source is None else source
        self.target = self.remote_target if target is None else target
        self._send_attach(fields)
        self._went_live()

    def refuse(self, error: AmqpError) -> None:
        """Answer the peer's attach with a null terminus and a detach (2.6.3)."""
        if self._attach_sent:
            self.detach(error)
        elif not self._over:
            self.source = None if self.is_sender else self.remote_source
            self.target = self.remote_target if self.is_sender else None
            self._send_attach({})
            self.detach(error)

    def detach(self, error: AmqpError | None = None, closed: bool = True) -> None:
        """Leave. `on_detach` follows when the peer has answered; outcomes may come until then."""
        if self._detach_sent or self._over:
            return
        if not self._attach_sent:
            self.refuse(error or AmqpError(errors.DETACH_FORCED))
            return
        session = self.session
        self._went_dead()
        session._flush()  # what was settled or granted before belongs before
        self._detach_sent = True
        session._send(Detach(handle=self.handle, closed=closed, error=None if error is None else Error.of(error)))

    def _send_attach(self, fields: dict[str, Any]) -> None:
        remote = self.remote_attach
        if remote is not None:
            fields.setdefault("snd_settle_mode", remote.snd_settle_mode)
            fields.setdefault("rcv_settle_mode", remote.rcv_settle_mode)
        if self.is_sender:
            fields.setdefault("initial_delivery_count", 0)
        if self.properties:
            fields.setdefault("properties", self.properties)
        if "max_message_size" not in fields and self.max_message_size:
            fields["max_message_size"] = self.max_message_size
        self.max_message_size = fields.get("max_message_size") or 0
        attach = Attach(
            name=self.name,
            handle=self.handle,
            role=not self.is_sender,
            source=self.source,
            target=self.target,
            **fields,
        )
        self._take_modes(attach)
        self._attach_sent = True
        self.session._send(attach)

    def _take_modes(self, attach: Attach) -> None:
        self.snd_settle_mode = MIXED if attach.snd_settle_mode is None else int(attach.snd_settle_mode)
        self.rcv_settle_mode = FIRST if attach.rcv_settle_mode is None else int(attach.rcv_settle_mode)

    def _went_live(self) -> None:
        """Both attaches are here."""

    def _went_dead(self) -> None:
        """From now on the fast path must not touch the link."""

    def _on_flow(self, flow: Flow) -> None:
        raise NotImplementedError

    def _lost(self) -> None:
        """The link is over: tell what was left, before on_detach."""


def from_error(error: Error | None) -> AmqpError | None:
    """The exception for an error from the wire; None for none."""
    return None if error is None else error.exception()


class Sender(Link):
    """Our end sends. Counters are unwrapped: they start at 0 and never wrap; delivery-count is their low part."""

    __slots__ = (
        "_done",
        "_frame_max",
        "_gate",
        "_given",
        "_head",
        "_limit",
        "_overhead",
        "_pack",
        "_queue",
        "_queued_ready",
        "_sent",
        "_starved",
        "_undecided",
        "drain",
        "remote_properties",
    )
    is_sender = True

    def __init__(self, session: Session, name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.drain = False
        self._sent = 0  # deliveries sent, or credit given back
        self._done = 0  # of those: settled or given back
        self._given = 0  # credit given back
        self._limit = 0  # what the peer's credit lets _sent become
        self._gate = 0  # _limit while the fast path may be taken, else -1
        self._queue: deque[Outgoing] = deque()
        self._queued_ready = False  # in session._ready
        self._starved = False  # credit was denied for want of window, reading or settlements
        self._undecided: dict[int, list[int]] = {}  # id(token) -> ids of deliveries with a state that are not settled
        self._overhead = 0
        self._frame_max = 0
        self._head = b""
        self._pack = _FAST_HEAD.pack

    @property
    def credit(self) -> int:
        """Deliveries that may be sent now. 0 while the peer does not read, grants no window, or leaves too many
        unsettled; `on_flow` (or `on_writable`) comes when that changes."""
        left = self._limit - self._sent
        if left <= 0:
            return 0
        session = self.session
        if (
            session.connection.blocked
            or session._next_id == session._out_stop
            or len(session._outgoing) >= session._max_unsettled
            or self._gate < 0
        ):
            self._starved = session._starved = True
            return 0
        return left

    @property
    def granted(self) -> int:
        """Credit the peer has given and we have not used, whether or not it can be used now."""
        return max(0, self._limit - self._sent)

    @property
    def unsettled(self) -> int:
        """Deliveries sent and not settled."""
        return self._sent - self._done

    @property
    def deliveries(self) -> int:
        """Deliveries sent since the link was attached."""
        return self._sent - self._given

    @property
    def presettled(self) -> bool:
        """The link was negotiated to carry settled deliveries only: no outcome will come for any token."""
        return self.snd_settle_mode == SETTLED

    def send(
        self,
        payload: Piece | bytearray | Sequence[Piece],
        token: Any = None,
        *,
        settled: bool = False,
        tag: bytes | None = None,
        message_format: int = 0,
        state: Any = None,
    ) -> int:
        """Send one message; `token` comes back in on_outcomes unless the delivery goes settled.

        `payload` is the encoded message, or a list of its parts. Returns the delivery-id, or -1 where frames have to
        wait for the session's window, for the peer's reading or behind an unfinished delivery (then the id is not
        known yet). Raises AmqpError where there is no credit.
        """
        if type(payload) is not bytes:
            payload = b"".join(payload) if isinstance(payload, (list, tuple)) else bytes(payload)  # type: ignore[arg-type]
        sent = self._sent
        session = self.session
        delivery_id = session._next_id
        size = len(payload) + self._overhead
        if sent < self._gate and size <= self._frame_max and delivery_id != session._out_stop and tag is None:
            if message_format or state is not None:
                return self._send_slowly(payload, token, settled, None, message_format, state)
            self._sent = sent + 1
            session._next_id = (delivery_id + 1) & U32
            if settled or self.snd_settle_mode == 1:
                self._done += 1
                tail = b"\x43\x41"
            else:
                session._outgoing[delivery_id] = (self, token)
                tail = b"\x43\x42"
            connection = session.connection
            out = connection.out
            out.append(self._pack(size, self._head, delivery_id, b"\xa0\x04", delivery_id, tail))
            out.append(payload)
            if size > 4096 or len(out) > 1024:
                connection._spill(size)
            if not connection._dirty:
                connection.wake()
            return delivery_id
        return self._send_slowly(payload, token, settled, tag, message_format, state)

    def begin(
        self,
        token: Any = None,
        *,
        settled: bool = False,
        tag: bytes | None = None,
        message_format: int = 0,
        state: Any = None,
    ) -> Outgoing:
        """Start one delivery that is written in pieces. It uses one credit; deliveries of this link sent before it is
        finished wait behind it. Raises AmqpError where there is no credit."""
        if self._sent >= self._limit or self.detached or self.remote_attach is None:
            raise AmqpError(errors.TRANSFER_LIMIT_EXCEEDED, f"no credit on link {self.name!r}")
        if tag is not None and len(tag) > 32:
            raise AmqpError(errors.INVALID_FIELD, "a delivery-tag has at most 32 bytes")
        settled = settled or self.snd_settle_mode == SETTLED
        if tag is None:
            tag = b"s" + (self._sent & U32).to_bytes(4, "big")  # never one of the fast path's, which have four bytes
        outgoing = Outgoing(self, token, settled, tag, message_format, b"" if state is None else encode(state))
        self._sent += 1
        if settled:
            self._done += 1
        self._queue.append(outgoing)
        self._gate = -1
        return outgoing

    def _send_slowly(
        self, payload: bytes, token: Any, settled: bool, tag: bytes | None, message_format: int, state: Any
    ) -> int:
        outgoing = self.begin(token, settled=settled, tag=tag, message_format=message_format, state=state)
        if payload:
            outgoing._pieces.append(payload)
            outgoing._bytes = len(payload)
        outgoing._complete = True
        self._want_pump()
        return outgoing.delivery_id

    def settle(self, tokens: Iterable[Any]) -> None:
        """Settle deliveries by their tokens: those the peer has told a state of without settling (rcv-settle-mode
        second), or any other. For the latter the session's unsettled deliveries are searched."""
        outgoing = self.session._outgoing
        ids: list[int] = []
        for token in tokens:
            known = self._undecided.get(id(token), [])
            while known:
                delivery_id = known.pop(0)
                if delivery_id in outgoing:
                    ids.append(delivery_id)
                    break
            else:
                for delivery_id, (link, held) in outgoing.items():
                    if link is self and held is token and delivery_id not in ids:
                        ids.append(delivery_id)
                        break
            if not known:
                self._undecided.pop(id(token), None)
        self.settle_ids(ids)

    def _decided(self, tokens: Iterable[Any]) -> None:
        for token in tokens:
            known = self._undecided.get(id(token))
            if known is not None:
                del known[:1]
                if not known:
                    del self._undecided[id(token)]

    def settle_ids(self, delivery_ids: Iterable[int]) -> None:
        """Settle deliveries by their ids; unknown ones are ignored. No outcome will come for them."""
        session = self.session
        for delivery_id in delivery_ids:
            entry = session._outgoing.get(delivery_id)
            if entry is not None and entry[0] is self:
                del session._outgoing[delivery_id]
                self._done += 1
                session._sender_settled.append(delivery_id)
                session._touch()

    def drained(self) -> None:
        """Give the remaining credit back: the answer to a drain (2.6.7)."""
        if not self.drain or self._queue:
            return  # what is begun goes first; on_flow comes again after it
        self.drain = False
        left = self._limit - self._sent
        if left > 0:
            self._sent += left
            self._done += left
            self._given += left
        if not self.detached:
            self._send_flow(drain=True)

    def offer(self, available: int) -> None:
        """Tell the peer how many messages wait for its credit (2.6.7)."""
        if self.attached:
            self._send_flow(available=available)

    def _send_flow(self, drain: bool = False, available: int = 0) -> None:
        session = self.session
        session._send(
            session._flow(
                handle=self.handle,
                delivery_count=self._sent & U32,
                link_credit=max(0, self._limit - self._sent),
                available=available,
                drain=drain,
            )
        )

    def _on_flow(self, flow: Flow) -> None:
        if flow.link_credit is not None:
            seen = (
                0
                if flow.delivery_count is None
                else self._sent + serial_difference(int(flow.delivery_count), self._sent & U32)
            )
            self._limit = seen + int(flow.link_credit)
            if self._gate >= 0:
                self._gate = self._limit
        self.drain = bool(flow.drain)
        if not self._attach_sent:
            return  # accept() will tell
        if flow.echo:
            self._send_flow()
        if not self.detached:
            self.session.connection.handler.on_flow(self)

    def _went_live(self) -> None:
        session = self.session
        handle = uint(self.handle)
        head = (
            b"\x02\x00"
            + session.channel.to_bytes(2, "big")
            + b"\x00\x53\x14\xc0"
            + bytes((14 + len(handle), 5))
            + handle
            + b"\x70"
        )
        self._head = head
        self._pack = _FAST_HEADS[len(head)].pack
        self._overhead = 4 + len(head) + 12
        self._frame_max = session.connection.remote_max_frame
        self._gate = self._limit
        if self._limit > 0 or self.drain:
            session.connection.handler.on_flow(self)

    def _went_dead(self) -> None:
        """What waits to be sent is lost; a delivery whose first frames have left is aborted where that still helps."""
        self._gate = -1
        queue = self._queue
        if queue:
            session = self.session
            waiting = [o for o in queue if not o.aborted]
            queue.clear()
            begun = waiting[0] if waiting and waiting[0].delivery_id >= 0 else None
            lost = [o.token for o in waiting if not o.settled]
            self._done += len(lost)
            for outgoing in waiting:
                outgoing._cut()
            if begun is not None:
                session._outgoing.pop(begun.delivery_id, None)
                if not self._over:
                    queue.append(begun)
                    session._pump_link_once(self)
                    queue.clear()
            if lost:
                session.connection.handler.on_outcomes(self, lost, None, True)
        self._limit = self._sent

    def _want_pump(self) -> None:
        if self._queue and self._queue[0]._ready():
            session = self.session
            if not self._queued_ready:
                self._queued_ready = True
                session._ready.append(self)
            session._pump()

    def _lost(self) -> None:
        session = self.session
        self._went_dead()
        outgoing = session._outgoing
        ids = [i for i, entry in outgoing.items() if entry[0] is self]
        if ids:
            tokens = [outgoing.pop(i)[1] for i in ids]
            self._done += len(ids)
            session.connection.handler.on_outcomes(self, tokens, None, True)


_FAST_HEAD = Struct(">I12sI2sI2s")
# by length of the constant part: handle in one, two or five bytes
_FAST_HEADS = {n: Struct(f">I{n}sI2sI2s") for n in (12, 13, 16)}


OnDelivery = Callable[["Receiver", int, bool, bytes, bytes, int], None]


class Receiver(Link):
    """Our end receives. Counters are unwrapped, as a Sender's."""

    __slots__ = (
        "_due",
        "_given",
        "_limit",
        "_partial",
        "_pieces",
        "_received",
        "_remote_initial",
        "_second",
        "_settled",
        "_size",
        "_topup_at",
        "_window",
        "draining",
        "on_delivery",
        "queued",
        "streaming",
    )

    def __init__(self, session: Session, name: str, handle: int, handler: Handler) -> None:
        super().__init__(session, name, handle)
        self.on_delivery: OnDelivery = handler.on_delivery  # replace it per link to save a look-up
        self.streaming = False  # deliveries of several frames come as on_partial; set it before accept or attach
        self.queued = 0  # what the peer says waits for credit
        self.draining = False
        self._received = 0  # deliveries received, or credit given back
        self._settled = 0  # of those: settled or given back
        self._given = 0  # credit given back
        self._limit = 0  # what our credit lets _received become; -1 when dead
        self._window = 0
        self._topup_at = NEVER  # value of _settled at which credit is topped up
        self._due = False  # in session._due
        self._second = False
        self._partial: Partial | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._remote_initial = 0

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
            self._topup_at = self._settled
            self._want_flow()
        else:
            self._topup_at = NEVER

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
            self._topup_at = self._settled + (window + 1) // 2
        self._send_flow(self.draining)

    def _send_flow(self, drain: bool = False) -> None:
        session = self.session
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

    def _lost(self) -> None:
        session = self.session
        self._went_dead()
        self._partial = None
        if self._received > self._settled:
            incoming = session._incoming
            for delivery_id in [i for i, link in incoming.items() if link is self]:
                del incoming[delivery_id]

    def _drop(self, partial: Partial) -> None:
        """Forget what has come of an unfinished delivery; on a streaming link it is told as aborted."""
        self._pieces = []
        partial._release()
        if self.streaming:
            partial.aborted = partial.done = True
            self.session.connection.handler.on_partial(self, partial)
