"""Sender: credit, drain, and the fast way out of a message (OASIS AMQP 1.0, 2.6.7 and 2.7.5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import groupby, repeat
from operator import itemgetter
from struct import Struct
from typing import Any, Protocol

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.frames import HEADER, pack_u32, uint
from enmasse.amqp.codec.performatives import (
    ACCEPTED,
    RELEASED,
    Coordinator,
    Declared,
    Flow,
    Released,
    Terminal,
    TransactionalState,
)
from enmasse.amqp.codec.serial import U32, serial_difference
from enmasse.amqp.delivery import Outgoing, Piece
from enmasse.amqp.endpoint import SETTLED, Link, LinkSession
from enmasse.amqp.outgoing import OutgoingWindow
from enmasse.amqp.output import MANY, Output

MAX_TAG = 32  # bytes of a delivery-tag (2.8.7)
_RUN_BYTES = 64 << 10  # a run of messages stops here, so that the socket can block when it is too much
_FRAMES_PER_TURN = 8  # of one link, while other links of the session wait too
_FAST_HEAD = Struct(">I12sI2sI2s")
# by length of the constant part: handle in one, two or five bytes
_FAST_HEADS = {n: Struct(f">I{n}sI2sI2s") for n in (12, 13, 16)}


@cache
def _marked(head: int, mark: int) -> Callable[..., bytes]:
    """Return `pack` for tags with a mark at their end."""
    return Struct(f">I{head}sI2sI{mark + 2}s").pack


_EMPTY: deque[Outgoing] = deque()  # of senders on which nothing ever waited: thousands of them


class SenderCallbacks(Protocol):
    """Callbacks of a link that sends (callbacks.Guard), none of which raises."""

    def on_flow(self, link: Sender) -> None: ...
    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None: ...
    def on_concluded(self, link: Sender, tokens: list[Any], state: Any) -> None: ...
    def on_transactional(
        self, link: Sender, tokens: list[Any], delivery_ids: Sequence[int], state: TransactionalState, settled: bool
    ) -> None: ...
    def link_failed(self, link: Link, failure: Exception) -> None: ...


class Sender(Link):
    """Our end sends. Counters are unwrapped: they start at 0 and never wrap; delivery-count is their low part."""

    __slots__ = (
        "_done",
        "_frame_max",
        "_gate",
        "_given",
        "_handler",
        "_head",
        "_limit",
        "_overhead",
        "_pack",
        "_queue",
        "_queued_ready",
        "_sent",
        "_stated",
        "_tag_code",
        "_tag_head",
        "_tag_pack",
        "_tag_size",
        "_window",
        "_work",
        "_work_tail",
        "available",
        "bytes",
        "drain",
        "output",
        "remote_properties",
        "transactional",
    )
    is_sender = True

    def __init__(
        self,
        session: LinkSession,
        name: str,
        handle: int,
        handler: SenderCallbacks,
        window: OutgoingWindow[Sender],
        output: Output,
    ) -> None:
        super().__init__(session, name, handle)
        self._handler = handler
        self._window = window
        self.output = output
        self.drain = False
        self.available: Callable[[], int | None] | None = None  # messages that wait for credit (2.6.7), if known
        self._sent = 0  # deliveries sent, or credit given back
        self.bytes = 0  # of the messages sent; of large ones with the heads of their frames
        self._done = 0  # of those: settled or given back
        self._given = 0  # credit given back
        self._limit = 0  # what the peer's credit lets _sent become
        self._gate = 0  # _limit while the fast path may be taken, else -1
        self._queue: deque[Outgoing] = _EMPTY
        self._queued_ready = False  # in window.ready
        self.transactional = False  # outcomes of transactions come as on_transactional; otherwise they are refused
        self._stated: dict[int, dict[int, Any]] = {}  # id(token) -> states by delivery-id, not settled
        self._overhead = 0
        self._frame_max = 0
        self._head = b""
        self._pack = _FAST_HEAD.pack
        # the same for tags of the caller's, as long as the last one was
        self._tag_size = -1
        self._tag_head = self._tag_code = b""
        self._tag_pack = _FAST_HEAD.pack
        self._work: Any = None  # the state that was sent last: a transaction's messages have the same one
        self._work_tail = b""

    def _room(self) -> int:
        """Return how many deliveries may leave at once; not positive if none may. Every way to send asks here: credit,
        the peer's window and reading, `max_unsettled`, and that nothing waits on this link."""
        window = self._window
        if self.output.blocked:
            return 0
        room = self._gate - self._sent
        left = (window.stop - window.next_id) & U32
        if left < room:
            room = left
        left = window.max_unsettled - len(window.unsettled)
        return left if left < room else room

    @property
    def credit(self) -> int:
        """Deliveries that the peer's credit allows. 0 while none may be sent, because the peer does not read, grants no
        window or leaves too many unsettled; `on_flow` (or `on_writable`) is called when that changes."""
        left = self._limit - self._sent
        if left <= 0:
            return 0
        if self._room() <= 0:
            self._window.starved[self] = None
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

    def is_sending(self, transaction: bytes) -> bool:
        """Return whether a delivery of a transaction is begun, or waits for room; then `on_flow` is called when that
        may have changed."""
        found = any(transaction in each.state for each in self._queue)
        if found:
            self._window.halted[self] = None
        return found

    @property
    def unsettled(self) -> int:
        """Deliveries sent and not settled."""
        return self._sent - self._done

    @property
    def decided(self) -> int:
        """Unsettled deliveries for which the peer has stated an outcome (rcv-settle-mode second)."""
        return sum(map(len, self._stated.values()))

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
        """Send one message; `token` is returned in on_outcomes unless the delivery goes settled.

        `payload` is the encoded message, or a list of its parts. Returns the delivery-id, or -1 if frames have to
        wait for the session's window, for the peer's reading or behind an unfinished delivery (then the id is not
        known yet). Raises AmqpError if there is no credit.
        """
        if type(payload) is not bytes:
            payload = b"".join(payload) if isinstance(payload, (list, tuple)) else bytes(payload)  # type: ignore[arg-type]  # any other buffer
        if not message_format:
            delivery_id = self._window.next_id
            at_once = settled or self.snd_settle_mode == SETTLED
            if self.pass_on(payload, token, tag, at_once, state):
                return delivery_id
        outgoing = self.begin(token, settled=settled, tag=tag, message_format=message_format, state=state)
        outgoing.fill(payload)
        self.want_pump()
        return outgoing.delivery_id

    def send_run(self, payloads: Sequence[bytes], tokens: Sequence[Any] | None, mark: bytes = b"") -> int:
        """Send messages that arrived together, up to the first that would have to wait or needs a second frame.
        `tokens` None: settled. Their delivery-tags end with `mark`. Return how many were sent: the next one is for
        `credit` and `send`. Does not raise."""
        room = self._room()
        if room <= 0 or (self.snd_settle_mode == SETTLED and tokens is not None):
            return 0
        window = self._window
        output = self.output
        append = output.buffers.append
        pack = self._pack
        head = self._head
        overhead = self._overhead
        frame_max = self._frame_max
        if not mark:
            tag_code = b"\xa0\x04"
            tail = b"\x43\x41" if tokens is None else b"\x43\x42"
        else:
            more = len(mark)
            pack = _marked(len(head), more)
            head = b"%b%c%b" % (head[:8], head[8] + more, head[9:])
            tag_code = b"\xa0%c" % (4 + more)
            tail = mark + (b"\x43\x41" if tokens is None else b"\x43\x42")
            overhead += more
        first = delivery_id = window.next_id
        stop = min(first + room, U32)
        written = 0
        for payload in payloads:
            size = len(payload) + overhead
            if delivery_id == stop or size > frame_max or written >= _RUN_BYTES:
                break
            append(pack(size, head, delivery_id, tag_code, delivery_id, tail))
            append(payload)
            written += size
            delivery_id += 1
        if tokens is None:
            self._done += delivery_id - first
        else:
            window.unsettled.update(zip(range(first, delivery_id), zip(repeat(self), tokens), strict=False))
        window.next_id = delivery_id
        self._sent += delivery_id - first
        self.bytes += written - overhead * (delivery_id - first)
        output.spill(written)
        if not output.dirty:
            output.wake()
        return delivery_id - first

    def pass_on(
        self, payload: bytes, token: Any, tag: bytes | None = None, settled: bool = False, state: Any = None
    ) -> bool:
        """Send one message if that takes neither waiting nor a second frame, and return True. Otherwise do nothing and
        return False: ask `credit`, and `send`. A run of one would cost twice as much. Does not raise."""
        if self._room() <= 0 or (self.snd_settle_mode == 1 and not settled):
            return False
        window = self._window
        delivery_id = window.next_id
        size = len(payload) + self._overhead
        tail = b"\x43\x41" if settled else b"\x43\x42"
        if state is not None:
            frame = self._frame_of_work(len(payload), delivery_id, tag, tail, state)
            size = len(frame) + len(payload)
            if not frame:
                return False
        elif tag is None:
            frame = self._pack(size, self._head, delivery_id, b"\xa0\x04", delivery_id, tail)
        else:
            tag_size = len(tag)
            if tag_size != self._tag_size:
                self._fit_tags(tag_size)
                if tag_size != self._tag_size:
                    return False
            size += tag_size - 4
            frame = self._tag_pack(size, self._tag_head, delivery_id, self._tag_code, tag, tail)
        if size > self._frame_max:
            return False
        self._sent += 1
        self.bytes += len(payload)
        window.next_id = (delivery_id + 1) & U32
        if settled:
            self._done += 1
        else:
            window.unsettled[delivery_id] = (self, token)
        output = self.output
        buffers = output.buffers
        buffers.append(frame)
        buffers.append(payload)
        if size > 4096 or len(buffers) > MANY:
            output.spill(size)
        if not output.dirty:
            output.wake()
        return True

    def _frame_of_work(self, size: int, delivery_id: int, tag: bytes | None, tail: bytes, state: Any) -> bytes:
        """Return the head of a transfer with a state, before a payload of `size` bytes. Empty: it does not have the
        usual form."""
        if state is not self._work:
            end = b"\x42\x40" + encode(state)  # more and rcv-settle-mode before it
            if len(end) > 255:  # of a peer that states more than an id: it is not kept
                return b""
            self._work, self._work_tail = state, end
        number = pack_u32(delivery_id)
        if tag is None:
            tag = number
        head, more = self._head, len(tag) - 4 + len(self._work_tail)
        if not 0 < len(tag) <= MAX_TAG or head[8] + more > 255:
            return b""
        return b"%b%b%c\x08%b%b\xa0%c%b%b%b" % (
            pack_u32(size + self._overhead + more),
            head[:8],
            head[8] + more,
            head[10:],
            number,
            len(tag),
            tag,
            tail,
            self._work_tail,
        )

    def _fit_tags(self, size: int) -> None:
        """Note that tags have `size` bytes now."""
        head = self._head
        if 0 < size <= MAX_TAG and head:
            self._tag_size = size
            self._tag_head = b"%b%c%b" % (head[:8], head[8] + size - 4, head[9:])
            self._tag_code = b"\xa0%c" % size
            self._tag_pack = Struct(f">I{len(head)}sI2s{size}s2s").pack

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
        finished wait behind it. Raises AmqpError if there is no credit."""
        if self._sent >= self._limit or self.detached or self.remote_attach is None or self.session.ended:
            raise AmqpError(errors.TRANSFER_LIMIT_EXCEEDED, f"no credit on link {self.name!r}")
        if tag is not None and len(tag) > MAX_TAG:
            raise AmqpError(errors.INVALID_FIELD, f"a delivery-tag has at most {MAX_TAG} bytes")
        settled = settled or self.snd_settle_mode == SETTLED
        if tag is None:
            tag = b"s" + (self._sent & U32).to_bytes(4, "big")  # never one of the fast path's, which have four bytes
        outgoing = Outgoing(
            self.want_pump, self.held_back, token, settled, tag, message_format, b"" if state is None else encode(state)
        )
        self._sent += 1
        if settled:
            self._done += 1
        if self._queue is _EMPTY:
            self._queue = deque()
        self._queue.append(outgoing)
        self._gate = -1
        return outgoing

    def settle(self, tokens: Iterable[Any]) -> None:
        """Settle deliveries by their tokens: those the peer has stated an outcome of without settling (rcv-settle-mode
        second), or any other. For the latter the session's unsettled deliveries are searched."""
        unsettled = self._window.unsettled
        ids: list[int] = []
        for token in tokens:
            known = self._stated.pop(id(token), {})
            while known:
                delivery_id = next(iter(known))
                del known[delivery_id]
                if delivery_id in unsettled:
                    ids.append(delivery_id)
                    break
            else:
                for delivery_id, (link, held) in unsettled.items():
                    if link is self and held is token and delivery_id not in ids:
                        ids.append(delivery_id)
                        break
            if known:
                self._stated[id(token)] = known
        self.settle_ids(ids)

    @property
    def default_outcome(self) -> Any:
        """Outcome of a delivery that the peer settles without a terminal state (3.5.3): that of the source, or released
        by our choice, so that nothing is lost and nothing is in limbo."""
        outcome = getattr(self.source, "default_outcome", None)
        return outcome if isinstance(outcome, Terminal) else RELEASED

    @property
    def blames(self) -> bool:
        """True if the oldest delivery without an outcome counts as a failed one: the link has ended because the peer
        was lost, which it may have done for this message, and its source does not ask for released (3.5.3)."""
        return self.broken and not isinstance(getattr(self.source, "default_outcome", None), Released)

    def holds(self, delivery_id: int) -> bool:
        """Return whether a delivery of this link is unsettled."""
        entry = self._window.unsettled.get(delivery_id)
        return entry is not None and entry[0] is self

    def stated(self, tokens: Iterable[Any]) -> list[int]:
        """Return the deliveries with these tokens of which the peer has stated an outcome last, for `settle_ids`."""
        known = (self._stated.get(id(token)) for token in tokens)
        return [next(reversed(ids)) for ids in known if ids]

    def _is_first(self, token: Any, delivery_id: int, outcome: Any) -> bool:
        """Note an outcome that comes without settlement. False: there was one, which is final (3.4)."""
        known = self._stated.setdefault(id(token), {})
        if delivery_id in known:
            return False
        known[delivery_id] = outcome
        return True

    def _conclude(self, tokens: Sequence[Any], ids: Sequence[int] = ()) -> list[Any]:
        """Report the end of deliveries of which the peer has stated an outcome before, by this outcome; return the
        others. Without `ids` a token is that of its oldest delivery."""
        if not self._stated:
            return list(tokens)
        concluded: list[tuple[Any, Any]] = []
        others: list[Any] = []
        for at, token in enumerate(tokens):
            known = self._stated.get(id(token), {})
            delivery_id = ids[at] if ids else next(iter(known), -1)
            if delivery_id not in known:
                others.append(token)
                continue
            concluded.append((known.pop(delivery_id), token))
            if not known:
                del self._stated[id(token)]
        for state, run in groupby(concluded, itemgetter(0)):
            self._handler.on_concluded(self, [token for _, token in run], state)
        return others

    def settle_ids(self, delivery_ids: Iterable[int]) -> None:
        """Settle deliveries by their ids; unknown ones are ignored. No outcome will come for them."""
        window, stated = self._window, self._stated
        unsettled = window.unsettled
        ids: list[int] = []
        for delivery_id in delivery_ids:
            entry = unsettled.get(delivery_id)
            if entry is not None and entry[0] is self:
                del unsettled[delivery_id]
                ids.append(delivery_id)
                known = stated.get(id(entry[1]))
                if known is not None:
                    known.pop(delivery_id, None)
                    if not known:
                        del stated[id(entry[1])]
        if ids:
            self._done += len(ids)
            window.settle(ids)

    def drained(self) -> None:
        """Give the remaining credit back: the answer to a drain (2.6.7). Do nothing while the peer grants no window or
        does not read: the answer would say that no message waits, while messages may wait for room."""
        if not self.drain or self._queue:
            return  # begun deliveries are sent first; on_flow is called again after them
        left = self._limit - self._sent
        if left > 0 and (self._window.full or self.output.blocked) and not self.detached:
            self._window.halted[self] = None
            return  # on_flow is called again when there is room
        self.drain = False
        if left > 0:
            self._sent += left
            self._done += left
            self._given += left
        if not self.detached:
            self._send_flow(drain=True)

    def answer_drain(self, nothing_waits: bool) -> None:
        """Answer a drain if there is one and its credit is used up, or no message waits for it."""
        if self.drain and (nothing_waits or not self.granted):
            self.drained()

    def _send_flow(self, drain: bool = False, available: int | None = None) -> None:
        self.session.send_flow(
            handle=self.handle,
            delivery_count=self._sent & U32,
            link_credit=max(0, self._limit - self._sent),
            available=available,
            drain=drain,
        )

    # --- for the session and its window -------------------------------------------------------------------------------

    def take_flow(self, flow: Flow) -> None:
        """Take credit and drain from the peer's flow."""
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
        if not self.attach_sent:
            return  # accept() calls on_flow
        if flow.echo:
            self._send_flow(available=None if self.available is None else self.available())
        if not self.detached:
            self._handler.on_flow(self)

    def went_live(self) -> None:
        """Both attaches are here: prepare the head of transfer frames, and begin to send."""
        handle = uint(self.handle)
        head = (
            b"\x02\x00"
            + self.session.channel.to_bytes(2, "big")
            + b"\x00\x53\x14\xc0"
            + bytes((14 + len(handle), 5))
            + handle
            + b"\x70"
        )
        self._head = head
        self._pack = _FAST_HEADS[len(head)].pack
        self._tag_size = -1
        self._overhead = 4 + len(head) + 12
        self._frame_max = self.output.max_frame
        self._gate = self._limit
        if self._limit > 0 or self.drain:
            self._handler.on_flow(self)

    def went_dead(self) -> None:
        """Discard deliveries that wait; one whose first frames were sent is aborted if that is still possible."""
        lost = self._cut()
        if lost:
            self._done += len(lost)
            self._handler.on_outcomes(self, lost, None, True)

    def _cut(self) -> list[Any]:
        """Discard deliveries that wait; return their tokens, except of a begun one that is settled or is reported with
        its session."""
        self._gate = -1
        lost: list[Any] = []
        queue = self._queue
        if queue:
            waiting = [o for o in queue if not o.aborted]
            queue.clear()
            begun = waiting[0] if waiting and waiting[0].delivery_id >= 0 else None
            for outgoing in waiting:
                outgoing.cut()
            if begun is not None:
                window = self._window
                known = window.unsettled.pop(begun.delivery_id, None)
                if not (self.over or window.full or window.shut or self.output.blocked):
                    self.send_frame(begun)
                if known is None:
                    waiting.remove(begun)
            lost = [o.token for o in waiting if not o.settled]
        self._limit = self._sent
        return lost

    def stop(self) -> None:
        """Send nothing more: messages returned by one link must not be sent on another one that ends with it."""
        self._gate = -1

    def held_back(self, waiting: bool) -> bool:
        """Return whether no more is welcome: something of a delivery is `waiting`, or the peer does not read."""
        if waiting or self.output.blocked:
            self._window.halted[self] = None
            return True
        return False

    def want_pump(self) -> None:
        """Send what waits on this link, if a frame can be made of it."""
        if self._queue and self._queue[0].ready:
            window = self._window
            if not self._queued_ready:
                self._queued_ready = True
                window.ready.append(self)
            window.pump()

    def pump(self) -> bool:
        """Send what waits, as far as it may leave now. True: more is ready. Raises AmqpError as `send_frame`."""
        self._queued_ready = False
        if self.detached:
            return False
        self._pump()
        if not self._queue or not self._queue[0].ready or self._queued_ready:
            return False
        self._queued_ready = True
        return True

    def _pump(self) -> None:
        """Frames of what waits, a few at most, until the window or the peer's reading ends it."""
        window, output, queue = self._window, self.output, self._queue
        for _ in range(_FRAMES_PER_TURN):
            if not queue or not queue[0].ready or window.next_id == window.stop or output.blocked:
                break
            outgoing = queue[0]
            if outgoing.aborted and outgoing.delivery_id < 0:  # nothing of it has left: as if it had never been
                queue.popleft()
                self._sent -= 1
                self._done -= outgoing.settled
            elif self.send_frame(outgoing):
                queue.popleft()
                if outgoing.aborted and window.unsettled.pop(outgoing.delivery_id, None) is not None:
                    self._done += 1
        if self.detached:
            return
        if not queue:
            self._gate = self._limit
        if (not queue or not queue[0].waiting) and (self in window.halted or self in window.starved or self.drain):
            window.halted.pop(self, None)
            window.starved.pop(self, None)
            self._handler.on_flow(self)

    def send_frame(self, outgoing: Outgoing) -> bool:
        """Send the next frame of a delivery; True: it was the last one. Raises AmqpError if the peer's frames cannot
        hold it."""
        window, output = self._window, self.output
        first = outgoing.delivery_id < 0
        if first:
            outgoing.delivery_id = window.next_id
        try:
            buffers, size, last = outgoing.next_frame(uint(self.handle), output.max_frame - 8)
        except AmqpError:
            if first:
                outgoing.delivery_id = -1
            raise
        if not first:
            window.extra = (window.extra + 1) & U32
            window.stop = (window.stop - 1) & U32
        else:
            window.next_id = (window.next_id + 1) & U32
            if not outgoing.settled:
                window.unsettled[outgoing.delivery_id] = (self, outgoing.token)
        output.buffers.append(HEADER(size + 8, 2, 0, window.channel))
        output.buffers.extend(buffers)
        self.bytes += size
        output.spill(size)
        if not output.dirty:
            output.wake()
        return last

    def failed(self, failure: Exception) -> None:
        """Detach the link, on which sending has raised."""
        self._handler.link_failed(self, failure)

    def room_again(self) -> None:
        """Report room that was denied before."""
        if self.attached and (self.granted or self._queue):
            self._handler.on_flow(self)

    def outcomes(self, tokens: list[Any], state: Any, settled: bool, ids: Sequence[int] = ()) -> None:
        """Report the peer's outcome of deliveries; without settlement `ids` are theirs, to be remembered."""
        stated = self._stated
        if not settled:
            if isinstance(state, Terminal):
                tokens = [token for token, each in zip(tokens, ids, strict=True) if self._is_first(token, each, state)]
            if type(state) is TransactionalState:
                self._handler.on_transactional(self, tokens, ids, state, False)
            elif tokens:
                self._handler.on_outcomes(self, tokens, state, False)
        else:
            self._done += len(tokens)
            if stated:
                tokens = self._conclude(tokens, ids)
            if type(state) is TransactionalState:
                self._handler.on_transactional(self, tokens, (), state, True)
            elif tokens:
                terminal = state is ACCEPTED or isinstance(state, Terminal) or self._is_declared(state)
                self._handler.on_outcomes(self, tokens, state if terminal else self.default_outcome, True)
        if self._window.starved or self._window.halted:
            self._window.resume()

    def _is_declared(self, state: Any) -> bool:
        """Return whether this is the answer of a coordinator to a declare."""
        return type(state) is Declared and isinstance(self.target, Coordinator)

    def lose(self, tokens: list[Any] | None) -> None:
        """End the link: report its unsettled deliveries, the oldest first, with what the peer has stated of them, else
        without an outcome (`on_outcomes` with state None)."""
        waiting = self._cut()
        self._window.starved.pop(self, None)
        self._window.halted.pop(self, None)
        if tokens is None and self._sent > self._done:
            unsettled = self._window.unsettled
            ids = [i for i, entry in unsettled.items() if entry[0] is self]
            tokens = [unsettled.pop(i)[1] for i in ids]
        tokens = [*(tokens or ()), *waiting]
        self._done += len(tokens)
        tokens = self._conclude(tokens)
        if tokens:
            self._handler.on_outcomes(self, tokens, None, True)
        self._stated.clear()
