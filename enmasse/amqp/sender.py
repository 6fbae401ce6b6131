"""Sender: credit, drain, and the fast way out of a message (OASIS AMQP 1.0, 2.6.7 and 2.7.5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, Any

from enmasse.amqp import errors
from enmasse.amqp.delivery import Outgoing, Piece, uint
from enmasse.amqp.encoder import encode
from enmasse.amqp.endpoint import SETTLED, U32, Link, serial_difference
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.outgoing import pump, pump_link_once
from enmasse.amqp.performatives import Flow

if TYPE_CHECKING:
    from enmasse.amqp.session import Session

MANY = 2048  # buffers of output in one turn
_U32 = Struct(">I").pack
_RUN_BYTES = 64 << 10  # a run of messages stops here, so that the socket can say when it is too much
_FAST_HEAD = Struct(">I12sI2sI2s")
# by length of the constant part: handle in one, two or five bytes
_FAST_HEADS = {n: Struct(f">I{n}sI2sI2s") for n in (12, 13, 16)}

_EMPTY: deque[Outgoing] = deque()  # of senders on which nothing ever waited: thousands of them


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
        self._queue: deque[Outgoing] = _EMPTY
        self._queued_ready = False  # in session._ready
        self._starved = False  # credit was denied for want of window, reading or settlements
        self._undecided: dict[int, dict[int, None]] = {}  # id(token) -> ids with a state, not settled
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
    def sending(self) -> bool:
        """A delivery is begun, or waits for room: those that follow on this link wait behind it."""
        return bool(self._queue)

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
            if size > 4096 or len(out) > MANY:
                connection._spill(size)
            if not connection._dirty:
                connection.wake()
            return delivery_id
        if tag is not None and not message_format and state is None and not self._queue and sent < self._gate:
            return self._send_tagged(payload, token, settled, tag)
        return self._send_slowly(payload, token, settled, tag, message_format, state)

    def send_run(self, payloads: Sequence[bytes], tokens: Sequence[Any]) -> int:
        """Send unsettled messages, up to the first that finds no credit, has to wait or needs a second frame. Returns
        how many were sent: the next one is for `credit` and `send`."""
        session = self.session
        connection = session.connection
        outgoing = session._outgoing
        delivery_id = session._next_id
        room = min(
            self._gate - self._sent,
            (session._out_stop - delivery_id) & U32,
            session._max_unsettled - len(outgoing),
            U32 - delivery_id,
        )
        if room <= 0 or connection.blocked or self.snd_settle_mode == SETTLED:
            return 0
        append = connection.out.append
        pack = self._pack
        head = self._head
        overhead = self._overhead
        frame_max = self._frame_max
        first = delivery_id
        stop = delivery_id + room
        written = 0
        for payload in payloads:
            size = len(payload) + overhead
            if delivery_id == stop or size > frame_max or written >= _RUN_BYTES:
                break
            append(pack(size, head, delivery_id, b"\xa0\x04", delivery_id, b"\x43\x42"))
            append(payload)
            written += size
            delivery_id += 1
        outgoing.update(zip(range(first, delivery_id), zip(repeat(self), tokens), strict=False))
        session._next_id = delivery_id
        self._sent += delivery_id - first
        connection._spill(written)
        if not connection._dirty:
            connection.wake()
        return delivery_id - first

    def pass_on(self, payload: bytes, token: Any) -> bool:
        """Send an unsettled message where that takes neither waiting nor a second frame: True. Otherwise nothing was
        done: ask `credit`, and `send`. What a router does for every message."""
        sent = self._sent
        session = self.session
        connection = session.connection
        delivery_id = session._next_id
        size = len(payload) + self._overhead
        if (
            sent >= self._gate
            or size > self._frame_max
            or delivery_id == session._out_stop
            or connection.blocked
            or self.snd_settle_mode == 1
        ):
            return False
        self._sent = sent + 1
        session._next_id = (delivery_id + 1) & U32
        session._outgoing[delivery_id] = (self, token)
        out = connection.out
        out.append(self._pack(size, self._head, delivery_id, b"\xa0\x04", delivery_id, b"\x43\x42"))
        out.append(payload)
        if size > 4096 or len(out) > MANY:
            connection._spill(size)
        if not connection._dirty:
            connection.wake()
        return True

    def _send_tagged(self, payload: bytes, token: Any, settled: bool, tag: bytes) -> int:
        """One frame with a tag of the caller's, as routed links need it."""
        session = self.session
        delivery_id = session._next_id
        more = len(tag) - 4
        size = len(payload) + self._overhead + more
        if more > 28 or size > self._frame_max or delivery_id == session._out_stop:
            return self._send_slowly(payload, token, settled, tag, 0, None)
        self._sent += 1
        session._next_id = (delivery_id + 1) & U32
        if settled or self.snd_settle_mode == SETTLED:
            self._done += 1
            tail = b"\x43\x41"
        else:
            session._outgoing[delivery_id] = (self, token)
            tail = b"\x43\x42"
        head = self._head
        connection = session.connection
        connection.out.append(
            b"%b%b%c%b%b\xa0%c%b%b%b"
            % (_U32(size), head[:8], head[8] + more, head[9:], _U32(delivery_id), len(tag), tag, tail, payload)
        )
        connection._spill(size)
        if not connection._dirty:
            connection.wake()
        return delivery_id

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
        if self._sent >= self._limit or self.detached or self.remote_attach is None or self.session.ended:
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
        if self._queue is _EMPTY:
            self._queue = deque()
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
            known = self._undecided.pop(id(token), {})
            while known:
                delivery_id = next(iter(known))
                del known[delivery_id]
                if delivery_id in outgoing:
                    ids.append(delivery_id)
                    break
            else:
                for delivery_id, (link, held) in outgoing.items():
                    if link is self and held is token and delivery_id not in ids:
                        ids.append(delivery_id)
                        break
            if known:
                self._undecided[id(token)] = known
        self.settle_ids(ids)

    def _decided(self, tokens: Iterable[Any]) -> None:
        """Deliveries with these tokens are settled: one each is not undecided any more."""
        for token in tokens:
            known = self._undecided.get(id(token))
            if known:
                del known[next(iter(known))]
            if known is not None and not known:
                del self._undecided[id(token)]

    def settle_ids(self, delivery_ids: Iterable[int]) -> None:
        """Settle deliveries by their ids; unknown ones are ignored. No outcome will come for them."""
        session = self.session
        for delivery_id in delivery_ids:
            entry = session._outgoing.get(delivery_id)
            if entry is not None and entry[0] is self:
                del session._outgoing[delivery_id]
                if self._undecided:
                    self._undecided.get(id(entry[1]), {}).pop(delivery_id, None)
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
                    pump_link_once(session, self)
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
            pump(session)

    def _lost(self, tokens: list[Any] | None) -> None:
        session = self.session
        self._went_dead()
        if tokens is None and self._sent > self._done:
            outgoing = session._outgoing
            ids = [i for i, entry in outgoing.items() if entry[0] is self]
            tokens = [outgoing.pop(i)[1] for i in ids]
        if tokens:
            self._done += len(tokens)
            session.connection.handler.on_outcomes(self, tokens, None, True)
