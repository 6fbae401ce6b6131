"""The router's ends of links: where deliveries come in (InLink), where they go out (OutLink), and what lies between.

A delivery in flight is known by its token `(source, delivery_id)`: `source.settle(delivery_id, state)` settles it
towards whoever sent it, `source.update(delivery_id, state)` passes a state on without settling, `source.count(state)`
keeps the books. Sources are InLink, the copies of a multicast, a routed link. Nothing else is made per message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from enmasse.amqp import errors
from enmasse.amqp.errors import MESSAGE_SIZE_EXCEEDED, AmqpError
from enmasse.amqp.performatives import ACCEPTED, RELEASED, Accepted, Error, Modified, Rejected, Released
from enmasse.amqp.types import Symbol
from services.router.routing.annotations import stripped

if TYPE_CHECKING:
    from enmasse.amqp.delivery import Outgoing
    from enmasse.amqp.link import Receiver, Sender
    from enmasse.amqp.receiver import Partial
    from services.router.routing.address import Address
    from services.router.routing.connections import RouterConnection

WINDOWS = 16
"""Windows of credit that a broker gets for one queue, however many consumers there are, beside what consumers have got
and not settled: it bounds what waits in the router's memory."""

SHORTEST = 4
"""Bytes of a message of one empty section: some clients' libraries raise an error for less."""
NOT_A_MESSAGE = Rejected(
    error=Error(condition=Symbol("amqp:decode-error"), description="the message cannot be decoded")
)

FAILED = Modified(delivery_failed=True)
"""The state of deliveries that were on the wire when their receiver went away."""


def elsewhere(state: Modified) -> Modified:
    """What a broker is told of a message that one of several consumers of its auto-link does not take: undeliverable
    on that link it is not. Counted, so that a message that nobody takes comes to an end."""
    return Modified(delivery_failed=True, message_annotations=state.message_annotations)


class Source(Protocol):
    """Where a delivery came from; see the module's text."""

    @property
    def settle(self) -> Callable[..., None]: ...

    @property
    def update(self) -> Callable[[int, Any], None]: ...

    def count(self, state: Any) -> None: ...

    def awaits(self, delivery_id: int, sender: Sender, token: Token) -> None: ...

    def forget(self, delivery_id: int) -> None: ...


Token = tuple[Source, int]
Held = tuple[Any, Token | None, int]
"""A delivery that waits for credit: payload (bytes, or a Stream), token (None: settled already), message format."""


def _gone(delivery_id: int, state: Any = None) -> None:
    """Settles towards a sender that is no longer there."""


class InLink:
    """Deliveries come in here: the router's end of a client's sender, or of an auto-link with direction `in`."""

    __slots__ = (
        "address",
        "ahead",
        "auto",
        "capacity",
        "connection",
        "delayed1",
        "delayed10",
        "dropped",
        "identity",
        "link",
        "modified",
        "name",
        "presettled",
        "rejected",
        "released",
        "second",
        "settle",
        "slow",
        "stuck",
        "update",
        "zero_since",
    )
    direction = "in"

    def __init__(self, identity: int, connection: RouterConnection, link: Receiver, address: Address | None) -> None:
        self.identity = identity
        self.connection = connection
        self.link = link
        self.name = link.name
        self.address = address
        self.capacity = connection.link_capacity
        self.auto: Any = None
        self.ahead: OutLink | None = None  # a link of its own on which a large delivery of this link went
        self.settle: Callable[..., None] = link.session.settle
        self.update: Callable[[int, Any], None] = link.session.update
        self.second: dict[int, tuple[Sender, Token]] | None = None
        self.presettled = self.dropped = self.rejected = self.released = self.modified = 0
        self.delayed1 = self.delayed10 = self.slow = self.stuck = 0
        self.zero_since: float | None = connection.router.now()

    # Credit: only while a destination exists

    def open_gate(self) -> None:
        if self.address is not None and self in self.address.asked:
            return  # the peer is giving back the credit it has; then it gets new
        self.zero_since = None
        self._set_window()

    def _set_window(self) -> None:
        window = self.link.credit_window = self.window()
        if self.auto is not None and self.address is not None:
            self.address.share = max(1, window // max(1, len(self.address.outs)))

    def window(self) -> int:
        """Credit for the peer. A broker gets a window for each consumer there is, so that one which takes messages and
        never settles them holds up its own window and not the queue."""
        if self.auto is None or self.address is None:
            return self.capacity
        outs = self.address.outs
        if len(outs) <= WINDOWS:
            return self.capacity * max(1, len(outs))
        delivered = sum(out.sender.unsettled for out in outs)
        return min(self.capacity * len(outs), max(self.capacity * WINDOWS, delivered + self.capacity))

    def resize(self) -> None:
        """The number of consumers has changed."""
        if self.auto is not None and self.zero_since is None:
            self._set_window()

    def close_gate(self) -> None:
        if self.zero_since is None:
            self.zero_since = self.connection.router.now()
        self.link.drain_credit()

    def park(self) -> None:
        """What came was given back: nothing more comes until a consumer has credit."""
        if self.address is not None:
            self.address.park(self)

    def ask(self, wanted: int) -> None:
        """A consumer wants to hear whether there is anything: the peer is to send what it has, as far as its credit
        goes, which is at least `wanted` where the window has room for it, and to say so. `drained` follows."""
        more = min(wanted, self.window() - self.link.unsettled) - self.link.credit
        if more > 0:  # credit that is due is not given before the next flush
            self.link.grant(more)
        self.close_gate()

    def drained(self) -> None:
        """Nothing is left to be sent; credit comes with the next destination."""
        if self.address is not None and self in self.address.asked:
            self.address.answered(self)

    # Deliveries

    def forward(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Anycast: to the one consumer there is, or the one that has the least to do. The hot path."""
        try:
            section = payload[2]  # with a header of the usual encoding, the section after it counts
            if section < 0x73 and (section != 0x70 or payload[3] != 0xC0 or payload[payload[4] + 7] < 0x73):
                payload = stripped(payload)
        except IndexError:
            if len(payload) < SHORTEST:
                self.refuse(delivery_id, settled, NOT_A_MESSAGE)
                return
        address = self.address
        out = address.only or address.choose()  # type: ignore[union-attr]
        if out is None:
            self.refuse(delivery_id, settled)
        elif settled:
            self.presettled += 1
            out.offer(payload, None, message_format)
        elif message_format or not out.direct or not out.sender.pass_on(payload, (self, delivery_id)):
            out = address.ready() or out  # type: ignore[union-attr]
            out.offer(payload, (self, delivery_id), message_format)

    def forward_multicast(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """To every consumer; the sender hears one outcome when the last of them has answered."""
        try:
            section = payload[2]  # with a header of the usual encoding, the section after it counts
            if section < 0x73 and (section != 0x70 or payload[3] != 0xC0 or payload[payload[4] + 7] < 0x73):
                payload = stripped(payload)
        except IndexError:
            if len(payload) < SHORTEST:
                self.refuse(delivery_id, settled, NOT_A_MESSAGE)
                return
        outs = self.address.outs  # type: ignore[union-attr]
        if not outs:
            self.refuse(delivery_id, settled)
        elif settled:
            self.presettled += 1
            for out in outs:
                out.offer(payload, None, message_format)
        else:
            token = (Copies(self, delivery_id, len(outs)), 0)
            for out in outs:
                if message_format or not out.direct or not out.sender.pass_on(payload, token):
                    out.offer(payload, token, message_format)

    def follow(self, out: OutLink) -> None:
        """A delivery has gone by a link of its own, on which it may be under way for long: those that come after it
        follow it there, until it is through."""
        self.ahead = out
        if self.address is not None:
            self.address.bind(self)

    def way(self, address: Address) -> OutLink | None:
        """The consumer for the next delivery; one that must not overtake another goes where that went."""
        ahead = self.ahead
        return ahead if ahead is not None and ahead.address is address and ahead.busy else address.pick()

    def forward_behind(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        out, address = self.ahead, self.address
        assert address is not None
        if len(payload) < SHORTEST:
            self.refuse(delivery_id, settled, NOT_A_MESSAGE)
            return
        if out is not None and out.busy and out.address is address:
            self.presettled += settled
            out.offer(stripped(payload), None if settled else (self, delivery_id), message_format)
            return
        self.ahead = None
        address.bind(self)
        link.on_delivery(link, delivery_id, settled, payload, tag, message_format)

    def forward_internal(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """To the router itself: accepted once taken."""
        if settled:
            self.presettled += 1
        else:
            self.settle(delivery_id)
        self.address.subscriber(self.connection, payload)  # type: ignore[union-attr,misc]

    def refuse(self, delivery_id: int, settled: bool, state: Any = RELEASED) -> None:
        """There is no destination: released (or `state`), or dropped when nobody waits for the outcome."""
        if settled:
            self.presettled += 1
            self.dropped += 1
        else:
            self.settle(delivery_id, state)
            self.count(state)

    # Source

    def count(self, state: Any) -> None:
        kind = type(state)
        if kind is Released:
            self.released += 1
        elif kind is Modified:
            self.modified += 1
        elif kind is Rejected:
            self.rejected += 1

    def awaits(self, delivery_id: int, sender: Sender, token: Token) -> None:
        """The receiver told a state and has not settled: the sender's settlement will be passed on to it."""
        if self.settle is _gone:
            self._end_second(sender, token)
            return
        if self.second is None:
            self.second = {}
        self.second[delivery_id] = (sender, token)

    def sender_settled(self, delivery_ids: Sequence[int]) -> None:
        """The sender settled first: pass it on where the receiver waits for it."""
        if self.second:
            for delivery_id in delivery_ids:
                waiting = self.second.pop(delivery_id, None)
                if waiting is not None:
                    waiting[0].settle([waiting[1]])

    def forget(self, delivery_id: int) -> None:
        """The receiver has settled after all."""
        if self.second:
            self.second.pop(delivery_id, None)

    # Life

    @property
    def received(self) -> int:
        """Deliveries so far."""
        return self.link.deliveries

    def gone(self) -> None:
        """The link is no more: what it sent and is still on its way stays on its way, outcomes are dropped."""
        self.settle = _gone
        self.update = _gone
        second, self.second = self.second, None
        for sender, token in (second or {}).values():
            self._end_second(sender, token)
        if self.address is not None:
            self.address.remove_in(self)

    def _end_second(self, sender: Sender, token: Token) -> None:
        """The sender will settle no more. A broker may deliver the message again: the receiver has to know that, and
        what tells it is the end of its link with the delivery unsettled."""
        if self.auto is None:
            sender.settle([token])
            return
        out: OutLink | None = sender.context
        if out is not None:
            what = "the broker of this address went away before it had settled what this receiver accepted"
            self.connection.router.detach(out, AmqpError(errors.DETACH_FORCED, what))

    # Rows of router.link

    @property
    def unsettled(self) -> int:
        return self.link.unsettled

    @property
    def accepted(self) -> int:
        other = self.presettled + self.rejected + self.released + self.modified
        return max(0, self.link.deliveries - self.link.unsettled - other)

    @property
    def undelivered(self) -> int:
        return self.link.queued

    @property
    def credit(self) -> int:
        return self.link.credit


class OutLink:
    """Deliveries go out here: the router's end of a client's receiver, or of an auto-link with direction `out`.

    What cannot be sent for want of credit waits in `queue`; it is bounded by the credit the router gave to the senders.
    `direct`: nothing waits, nothing is half sent, and the receiver settles: a delivery may go straight to the wire.
    """

    __slots__ = (
        "accepted",
        "address",
        "auto",
        "capacity",
        "connection",
        "delayed1",
        "delayed10",
        "direct",
        "dropped",
        "extra",
        "identity",
        "limit",
        "modified",
        "name",
        "plain",
        "presettle",
        "presettled",
        "queue",
        "rejected",
        "released",
        "sender",
        "slow",
        "stream",
        "stuck",
        "two_phase",
        "zero_since",
    )
    direction = "out"

    def __init__(self, identity: int, connection: RouterConnection, sender: Sender, address: Address) -> None:
        self.identity = identity
        self.connection = connection
        self.sender = sender
        self.name = sender.name
        self.address = address
        self.capacity = connection.link_capacity
        self.auto: Any = None
        self.extra = False  # one of several of an auto-link (extras.py), and none of the address's consumers
        self.presettle = False  # the receiver wants everything settled (snd-settle-mode settled)
        self.limit = 0  # bytes that the receiver takes as one message; 0: as many as come
        self.plain = True  # nothing is to be looked at before a delivery goes
        self.direct = True
        self.queue: deque[Held] = deque()
        self.stream: Any = None
        self.two_phase = False  # this receiver tells states before it settles
        self.accepted = self.rejected = self.released = self.modified = self.presettled = self.dropped = 0
        self.delayed1 = self.delayed10 = self.slow = self.stuck = 0
        self.zero_since: float | None = None  # deliveries wait and there is no credit (set by watch.py)

    @property
    def link(self) -> Sender:
        return self.sender

    def know_limit(self) -> None:
        """Both have attached: what the receiver takes is known."""
        attach = self.sender.remote_attach
        self.limit = 0 if attach is None else int(attach.max_message_size or 0)
        frame = self.sender.session.connection.remote_max_frame
        self.plain = not self.presettle and not 0 < self.limit < frame
        self.direct = self.plain

    @property
    def busy(self) -> bool:
        """A delivery waits, or is half sent."""
        return bool(self.stream is not None or self.queue or self.sender.sending) and not self.sender.detached

    @property
    def ready(self) -> bool:
        """It can take a delivery now."""
        return self.sender.credit > 0 and self.stream is None and not self.queue

    def offer(self, payload: Any, token: Token | None, message_format: int) -> None:
        """Send now or keep until there is credit. `token` None: settled already, and dropped when too many wait."""
        if self.stream is None and not self.queue and self.sender.credit > 0:
            self._put(payload, token, message_format)
            return
        if token is None and len(self.queue) >= self.capacity:
            self._drop_settled()
        self.queue.append((payload, token, message_format))
        self.direct = False
        self.connection.waiting.add(self)

    def _put(self, payload: Any, token: Token | None, message_format: int) -> None:
        if not isinstance(payload, bytes | bytearray | memoryview):
            payload.start(self, token)
        elif 0 < self.limit < len(payload):
            self.refuse_size(token)
        elif token is None:
            self.presettled += 1
            self.sender.send(payload, None, settled=True, message_format=message_format)
        elif self.presettle:
            self.presettled += 1
            self.sender.send(payload, None, settled=True, message_format=message_format)
            token[0].settle(token[1])
        else:
            self.sender.send(payload, token, message_format=message_format)

    def refuse_size(self, token: Token | None) -> None:
        """A delivery is larger than this receiver takes."""
        if token is None:
            self.presettled += 1
            self.dropped += 1
            return
        error = AmqpError(MESSAGE_SIZE_EXCEEDED, f"a message of more than {self.limit} bytes")
        state = Rejected(error=Error.of(error))
        token[0].settle(token[1], state)
        token[0].count(state)

    def begin_stream(self, token: Token | None, partial: Partial) -> Outgoing:
        """Start a delivery that goes out in pieces."""
        settled = token is None or self.presettle
        return self.sender.begin(None if settled else token, settled=settled, message_format=partial.message_format)

    def stream_sent(self, token: Token | None) -> None:
        """A streamed delivery is on its way completely."""
        if token is None:
            self.presettled += 1
        elif self.presettle:
            self.presettled += 1
            token[0].settle(token[1])

    def _drop_settled(self) -> None:
        """The oldest delivery nobody waits for gives way to a newer one (those are not held back by credit)."""
        for i, (payload, token, _) in enumerate(self.queue):
            if token is None:
                del self.queue[i]
                self.presettled += 1
                self.dropped += 1
                if not isinstance(payload, bytes | bytearray | memoryview):
                    payload.lost(self)
                return

    def leave(self, stream: Any) -> None:
        """A stream that waited here was given back."""
        self.queue = deque(held for held in self.queue if held[0] is not stream)
        if not self.queue:
            self.connection.waiting.discard(self)
            self.direct = self.stream is None and self.plain

    def waiting_bytes(self) -> int:
        return sum(len(payload) for payload, _, _ in self.queue if isinstance(payload, bytes))

    def flow(self) -> None:
        """Credit came, or a stream ended: send what waits; answer a drain once nothing more can be sent."""
        sender = self.sender
        queue = self.queue
        self.zero_since = None
        if self.stream is not None:
            self.stream.resume(self)
        while queue and self.stream is None and sender.credit > 0:
            payload, token, message_format = queue.popleft()
            self._put(payload, token, message_format)
        if not queue:
            self.connection.waiting.discard(self)
            self.direct = self.stream is None and self.plain
            if sender.credit > 0 and self.stream is None and not self.extra:
                if len(self.address.outs) > 1:
                    self.address.relieve(self)
                if self.address.parked:
                    self.address.unpark()
                if not sender.unsettled and len(self.address.outs) > WINDOWS:
                    for producer in self.address.feeds:
                        producer.resize()
        if sender.drain and self.stream is None and not queue and not self.address.ask(self):
            sender.drained()

    def say_empty(self) -> None:
        """The peers that feed the address have given what they had: the answer to a drain."""
        sender = self.sender
        if sender.drain and self.stream is None and not self.queue and not sender.detached:
            sender.drained()
            sender.session.connection.wake()

    def take_from(self, other: OutLink) -> None:
        """Send what waits at a consumer that has no credit, oldest first, as long as this one has some."""
        queue, sender = other.queue, self.sender
        while queue and sender.credit > 0 and self.stream is None:
            payload, token, message_format = queue.popleft()
            if not isinstance(payload, bytes | bytearray | memoryview):
                payload.move(other, self)
            self._put(payload, token, message_format)
        if not queue:
            other.connection.waiting.discard(other)
            other.direct = other.stream is None and other.plain

    def outcomes(self, tokens: list[Token], state: Any, settled: bool) -> None:
        """The receiver told `state` of these deliveries: pass it to their senders."""
        if settled:
            if state is ACCEPTED and not self.two_phase:
                self.accepted += len(tokens)
                for source, delivery_id in tokens:
                    source.settle(delivery_id)
                return
            self._count(state, len(tokens))
            state = self._passed_on(state)
            for source, delivery_id in tokens:
                source.settle(delivery_id, state)
                source.count(state)
                if self.two_phase:
                    source.forget(delivery_id)
        else:
            self.two_phase = True
            sender = self.sender
            state = self._passed_on(state)
            for token in tokens:
                source, delivery_id = token
                source.awaits(delivery_id, sender, token)
                source.update(delivery_id, state)

    def _passed_on(self, state: Any) -> Any:
        """The state for the sender: what is undeliverable here may go to another consumer of a broker's queue."""
        others = len(self.address.outs) > 1 and self.address.feeds
        return elsewhere(state) if others and type(state) is Modified and state.undeliverable_here else state

    def _count(self, state: Any, n: int) -> None:
        kind = type(state)
        if kind is Released:
            self.released += n
        elif kind is Modified:
            self.modified += n
        elif kind is Rejected:
            self.rejected += n
        elif kind is Accepted:
            self.accepted += n

    @property
    def sent(self) -> int:
        return self.sender.deliveries

    def gone(self, unsettled: list[Token]) -> None:
        """The receiver is no more: what it had is modified, what still waited here is released."""
        if self.extra:
            self.address.egress += self.sent
            self.address.egress_containers += self.sent
        self.address.remove_out(self)
        self.connection.waiting.discard(self)
        self.direct = False
        if self.stream is not None:
            self.stream.lost(self)
            self.stream = None
        waiting = self.queue
        self.queue = deque()
        for token in unsettled:
            if token is not None:
                token[0].settle(token[1], FAILED)
                token[0].count(FAILED)
        for payload, held, _ in waiting:
            if held is None:
                self.presettled += 1
                self.dropped += 1
            else:
                held[0].settle(held[1], RELEASED)
                held[0].count(RELEASED)
            if not isinstance(payload, bytes | bytearray | memoryview):
                payload.lost(self)

    # Rows of router.link

    @property
    def unsettled(self) -> int:
        return self.sender.unsettled

    @property
    def undelivered(self) -> int:
        return len(self.queue)

    @property
    def credit(self) -> int:
        return self.sender.credit


_RANK = {Rejected: 3, Accepted: 2, Modified: 1, Released: 0}


class Copies:
    """The copies of one multicast delivery; the sender gets the highest of rejected, accepted, modified, released."""

    __slots__ = ("delivery_id", "left", "source", "state")

    def __init__(self, source: Source, delivery_id: int, copies: int) -> None:
        self.source = source
        self.delivery_id = delivery_id
        self.left = copies
        self.state: Any = None

    def settle(self, delivery_id: int, state: Any = ACCEPTED) -> None:
        best = self.state
        if best is None or _RANK.get(type(state), -1) > _RANK.get(type(best), -1):
            self.state = state
        self.left -= 1
        if not self.left:
            state = self.state
            self.source.settle(self.delivery_id, state)
            if state is not ACCEPTED:
                self.source.count(state)

    def update(self, delivery_id: int, state: Any) -> None:
        """A state without settlement: the copy is settled for the receiver, whose state counts."""
        if type(state) in _RANK:
            self.settle(delivery_id, state)

    def count(self, state: Any) -> None:
        """Counted once, when the last copy is done."""

    def awaits(self, delivery_id: int, sender: Sender, token: Token) -> None:
        sender.settle([token])

    def forget(self, delivery_id: int) -> None:
        """Nothing is kept per copy."""
