"""Deliveries of several frames, forwarded while they arrive (cut-through), in bounded memory.

A stream keeps the bytes that its slowest receiver has not taken; at `HIGH_WATER` it takes no further from the engine,
whose session window then blocks the sender, and with it the other links of that session. A broker's session is shared
by many queues: a stream of an auto-link that fills it and that no consumer has begun to take is given back.

A link carries one delivery at a time. So a delivery of up to `HIGH_WATER` is collected and forwarded whole. A larger
one goes to a broker over a link of its own (broker_links.py). One to a client's link is aborted if others wait for it
and its sender hardly continues. One that exceeds a receiver's limit is rejected before the receiver would detach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import RELEASED, Error, Rejected
from enmasse.amqp.delivery import Outgoing
from enmasse.amqp.messages.section_checks import check_leading_sections
from enmasse.amqp.receiver import Partial
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.addresses.deliveries import (
    FAILED,
    NOT_A_MESSAGE,
    SHORTEST,
    DeliveryCopies,
    Token,
    rejected,
)
from services.router.routing.addresses.destination import StreamDestination, Taker
from services.router.routing.configuration import MULTICAST
from services.router.routing.connection import LinkRecord
from services.router.routing.links.annotations import complete

if TYPE_CHECKING:
    from services.router.routing.links.in_link import InLink

HIGH_WATER = 128 * 1024
GATHERING = 64
"""Most deliveries of a connection that are collected at a time; further ones are forwarded while they arrive."""
TRICKLE = 64 * 1024
"""Bytes within `STALLED` seconds below which a stream that others wait for counts as stalled."""
STALLED = 5.0
"""Seconds."""
PATIENCE = 1
"""Looks (watch.py) for which a stream from a broker may fill its session while no consumer begins to take it."""
MAX_HEAD = 64 * 1024
"""Bytes that are searched for the `to` of an anonymous message and for annotations to remove."""
TOO_LONG = rejected(
    "amqp:not-allowed", f"no body begins within {MAX_HEAD} bytes: what is before it is longer, or malformed"
)
TOO_MANY = rejected(
    "amqp:not-allowed", f"the annotations of the message have more than {MAX_HEAD} bytes, or are malformed"
)


Begin = Callable[[Any, Partial], None]
"""Starts a delivery whose first piece arrived at a source."""


class _Copy:
    """Progress of one receiver: `taken` chunks of the stream's log since its start. `room`: bytes left of the
    max-message-size of its attach; None: no limit. `look`: bytes of the log with which the front of the message is
    looked at (next), before anything is sent; 0: there is nothing to look at. `front`: sent instead of the first chunk
    of the log, if given."""

    __slots__ = ("front", "look", "out", "outgoing", "room", "taken", "token")

    def __init__(self, out: Any, token: Token | None) -> None:
        self.out = out
        self.token = token
        self.outgoing: Outgoing | None = None
        self.room: int | None = None
        self.look = 0
        self.taken = 0
        self.front: bytes | None = None


class Stream:
    """One incoming delivery and its copies."""

    __slots__ = ("again", "base", "copies", "discard", "held", "log", "partial", "pumping")

    def __init__(self, partial: Partial) -> None:
        self.partial = partial
        self.copies: list[_Copy] = []
        self.log: list[bytes] = []
        self.base = 0  # number of the first chunk in the log
        self.held = 0  # bytes in the log
        self.discard = False
        self.pumping = self.again = False

    def add(self, out: Taker, token: Token | None) -> None:
        """Add a receiver of the delivery. `token` None: presettled."""
        self.copies.append(_Copy(out, token))

    def start(self, out: Taker, token: Token | None) -> None:
        """Start the delivery on `out`, whose turn it is."""
        copy = next((c for c in self.copies if c.out is out), None)
        if copy is None or self.partial.aborted:
            return
        copy.room = out.stream_limit or None
        copy.look = out.exact
        out.stream = self
        copy.outgoing = out.begin_stream(token, self.partial)
        self.pump()

    def resume(self, out: Taker) -> None:
        """Continue, because there is room again."""
        self.pump()

    def pump(self) -> None:
        """Move what can be moved. What is written may leave at once, and the engine then reports room in the middle of
        the write: that must not write the same chunk again."""
        self.again = True
        if self.pumping:
            return
        self.pumping = True
        try:
            while self.again:
                self.again = False
                self._move()
        finally:
            self.pumping = False

    def _move(self) -> None:
        partial = self.partial
        if partial.aborted:
            self._abort()
            return
        if self.discard or not self.copies:
            partial.take()
            self._over()
            return
        while True:
            if self.held < HIGH_WATER and partial.waiting:
                chunk = partial.take()
                self.log.append(chunk)
                self.held += len(chunk)
            if not self._write():
                return
            if not partial.waiting:
                return

    def _write(self) -> bool:
        """Write to every copy what it can take. Return True if the log has become shorter."""
        partial = self.partial
        end = self.base + len(self.log)
        for copy in list(self.copies):
            outgoing = copy.outgoing
            if outgoing is None:
                continue
            if outgoing.aborted:  # its link has ended or is ending
                self._drop(copy)
                continue
            if copy.look and self.held >= (0 if partial.done else copy.look):
                self._look(copy, outgoing)
            if copy.look:
                continue
            while copy.taken < end and not outgoing.blocked:
                chunk = self.log[copy.taken - self.base]
                if copy.front is not None:
                    chunk, copy.front = copy.front, None
                if copy.room is not None:
                    copy.room -= len(chunk)
                    if copy.room < 0:
                        break
                outgoing.write(chunk)
                copy.taken += 1
            if copy.room is not None and copy.room < 0:
                self._too_large(copy, outgoing)
                continue
            if partial.done and copy.taken == end and not partial.waiting:
                self.copies.remove(copy)
                if not self.copies:
                    self._over()
                outgoing.finish()
                copy.out.stream = None
                copy.out.stream_sent(copy.token)
                copy.out.flow()
        done = min((copy.taken for copy in self.copies), default=end) - self.base
        if not done:
            return False
        self.held -= sum(map(len, self.log[:done]))
        del self.log[:done]
        self.base += done
        return True

    def _too_large(self, copy: _Copy, outgoing: Outgoing) -> None:
        """Reject a delivery that exceeds this receiver's limit."""
        self.copies.remove(copy)
        self._take_back(copy, outgoing)
        if copy.token is not None:
            copy.out.reject_large(copy.token)
        if not self.copies:
            self._forget()

    def _look(self, copy: _Copy, outgoing: Outgoing) -> None:
        """Look whether this receiver finds the sections before the body that the router finds, and reject the delivery
        otherwise. While the body has not begun, more is needed: twice as much, so that small pieces are not looked at
        again and again."""
        state = TOO_LONG
        try:
            if check_leading_sections(b"".join(self.log)) or self.partial.done:
                copy.look = 0
                return
        except AmqpError as error:
            if self.partial.done:
                state = Rejected(error=Error.of(error))
        if self.held < MAX_HEAD and not self.partial.done:
            copy.look = min(2 * self.held, MAX_HEAD)
            return
        self.copies.remove(copy)
        copy.out.reject(copy.token or outgoing.token, state)  # before deliveries that wait for its end
        self._take_back(copy, outgoing)
        if not self.copies:
            self._forget()

    def _take_back(self, copy: _Copy, outgoing: Outgoing) -> None:
        outgoing.abort()
        copy.out.stream = None
        copy.out.flow()

    def _forget(self) -> None:
        """Discard the rest of the delivery."""
        self.log.clear()
        self.held = 0
        self.discard = True
        self.pump()

    def _abort(self) -> None:
        """Handle a delivery that the sender aborted, or whose sender is lost: abort started copies, forget waiting
        ones."""
        copies, self.copies = self.copies, []
        self.log.clear()
        self.held = 0
        self._over()
        for copy in copies:
            if copy.token is not None:
                copy.token[0].forget(copy.token[1])
            if copy.outgoing is not None:
                copy.outgoing.abort()
                copy.out.stream = None
            copy.out.flow()

    def _over(self) -> None:
        """Handle the end of the delivery's input."""

    def move(self, before: Taker, now: Taker) -> None:
        """Move the waiting delivery from one receiver to another, which can take it."""
        for copy in self.copies:
            if copy.out is before:
                copy.out = now

    def redirect(self, before: Any, now: Taker, token: Token | None, front: bytes | None) -> None:
        """Move the delivery that begins from a destination to the link behind it, with the link's own token. `front` is
        sent instead of the first chunk."""
        for copy in self.copies:
            if copy.out is before:
                copy.out, copy.token, copy.front = now, token, front

    def lost(self, out: Taker) -> None:
        """Handle the loss of this receiver."""
        for copy in [copy for copy in self.copies if copy.out is out]:
            self._drop(copy)
        if self.copies:
            self.pump()

    def _drop(self, copy: _Copy) -> None:
        """Stop one receiver's copy. The engine reports its outcome, unless it was presettled."""
        self.copies.remove(copy)
        if copy.outgoing is not None and copy.outgoing.settled and copy.token is not None:
            source, delivery_id = copy.token
            source.settle(delivery_id, RELEASED if source.is_queue else FAILED)
        if not self.copies:
            self._forget()


class AddressStream(Stream):
    """A stream that goes through an address.

    `seen`: it existed at the last look (watch.py); `looks`: number of looks at which it filled its session; `came` and
    `went`, (time, bytes): since then the sender has sent, or the receivers have taken, hardly anything.
    """

    __slots__ = ("came", "looks", "seen", "source", "went")

    def __init__(self, partial: Partial, source: InLink) -> None:
        super().__init__(partial)
        self.source = source
        self.seen = False
        self.looks = 0
        self.came: tuple[float, int] | None = None
        self.went: tuple[float, int] | None = None

    def start(self, out: Any, token: Token | None) -> None:
        """Start the delivery on `out`, or on an additional link to the same broker if the rest may take long."""
        if self.partial.aborted or self.partial.done or not self._by_a_link_of_its_own(out, token):
            super().start(out, token)

    def _by_a_link_of_its_own(self, out: StreamDestination, token: Token | None) -> bool:
        """Move to an additional link, because the rest may take long: other deliveries use the shared link."""
        own = out.detour() if any(copy.out is out for copy in self.copies) else None
        if own is None:
            return False
        self.move(out, own)
        self.source.follow(own)
        own.offer(self, token, self.partial.message_format)
        return True

    def _over(self) -> None:
        self.source.connection.streams.discard(self)

    def look(self, now: float, stuck: set[LinkRecord]) -> None:
        """Check once a second: give the delivery back, or abort it, if it blocks others too long."""
        if self.seen:
            stuck.add(self.source)  # only links from brokers are watched
        self.seen = True
        if self.partial.waiting and self.partial.link.session.crowded:
            self.looks += 1
            if self.looks > PATIENCE:
                self.give_back()
            if self.held_up(now):
                self.break_off()

    def stalled(self, now: float) -> bool:
        """Return True if the sender has stalled. Called once a second while others wait."""
        partial = self.partial
        end = self.base + len(self.log)
        begun = [(end if copy.look else copy.taken, copy.outgoing) for copy in self.copies if copy.outgoing is not None]
        if partial.done or partial.waiting or any(taken < end or outgoing.blocked for taken, outgoing in begun):
            self.came = None
            return False
        if self.came is None or partial.size - self.came[1] >= TRICKLE:
            self.came = (now, partial.size)
        return now - self.came[0] >= STALLED

    def held_up(self, now: float) -> bool:
        """Return True if the receivers have stalled. Called once a second."""
        gone = self.partial.size - self.partial.waiting - self.held
        if self.went is None or gone - self.went[1] >= TRICKLE:
            self.went = (now, gone)
        return now - self.went[0] >= STALLED

    def break_off(self) -> None:
        """Release a stalled delivery behind which others wait, and abort it for receivers that have begun."""
        copies, self.copies = self.copies, []
        for copy in copies:
            if copy.token is not None:
                copy.token[0].forget(copy.token[1])
            if copy.outgoing is not None:
                self._take_back(copy, copy.outgoing)
            else:
                copy.out.leave(self)
        self._release()
        self._forget()

    def give_back(self) -> None:
        """Release a delivery behind which others wait, if no receiver has begun to take it; its link then waits for a
        receiver with credit."""
        source = self.source
        if source.address is not None:
            source.address.relieve_all()
        if not self.copies or self.discard or any(copy.outgoing is not None for copy in self.copies):
            return
        for copy in self.copies:
            copy.out.leave(self)
            if copy.token is not None:
                copy.token[0].forget(copy.token[1])
        self._release()
        self.copies = []
        self._forget()
        source.park()

    def _release(self) -> None:
        """Release the delivery to its sender; a presettled one, which was counted before, is dropped."""
        if self.partial.settled:
            self.source.dropped += 1
        else:
            self.source.refuse(self.partial.delivery_id, settled=False)


def begin_or_gather(source: InLink, partial: Partial, begin: Begin | None = None) -> None:
    """Handle a piece of a delivery that has no stream yet. `begin` starts one, if it is not of the usual kind."""
    if partial.aborted:
        source.connection.gathering.discard(partial)
    elif _gather(source, partial):
        return
    elif partial.done and partial.context is None:  # the whole delivery arrived in one turn
        link = source.link
        payload = partial.take()
        link.on_delivery(link, partial.delivery_id, partial.settled, payload, partial.tag, partial.message_format)
    else:
        (begin or _begin_named)(source, partial)


def _gather(source: InLink, partial: Partial) -> bool:
    """Return True while more is collected before the delivery is forwarded. Slow senders delay no other delivery."""
    gathering = source.connection.gathering
    if (
        not partial.done
        and partial.context is None
        and partial.size < HIGH_WATER
        and (partial in gathering or len(gathering) < GATHERING)
        and not partial.link.session.crowded
    ):
        gathering.add(partial)
        return True
    gathering.discard(partial)
    return False


def start(source: InLink, address: RoutedAddress, partial: Partial, head: bytes) -> None:
    """Choose the destinations at the first piece."""
    if address.subscriber is not None:
        _collect(source, address, partial, head)
        return
    stream = partial.context = AddressStream(partial, source)
    source.stream_began(stream)
    if head:
        stream.log.append(head)
        stream.held = len(head)
    if address.treatment == MULTICAST:
        chosen = list(source.choice_in(address).outs)
    else:
        only = source.way(address)
        chosen = [only] if only is not None else []
    outs = cast(list[StreamDestination], chosen)  # only these receive large messages
    settled = partial.settled
    if not outs:
        stream.discard = True
        source.refuse(partial.delivery_id, settled)
        stream.pump()
        return
    token: Token | None = None
    if settled:
        source.presettled += 1
    elif len(outs) > 1:
        token = (DeliveryCopies(source, partial.delivery_id, len(outs)), 0)
    else:
        token = (source, partial.delivery_id)
    for out in outs:
        stream.add(out, token)
    for out in outs:
        out.offer(stream, token, partial.message_format)
    stream.pump()


def discard(partial: Partial) -> None:
    """Drop what follows of a delivery in pieces that was refused."""
    stream = partial.context = Stream(partial)
    stream.discard = True
    stream.pump()


class Head:
    """Collects the beginning of a message until it contains the annotations or, on an anonymous link, the `to`."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = b""


def _begin_named(source: InLink, partial: Partial) -> None:
    assert source.address is not None
    head = partial.context
    if head is None:
        head = partial.context = Head()
    head.data += partial.take()
    if partial.done and len(head.data) < SHORTEST:
        source.refuse(partial.delivery_id, partial.settled, NOT_A_MESSAGE)
    elif partial.done or complete(head.data):
        start(source, source.address, partial, source.strip(head.data))
    elif len(head.data) >= MAX_HEAD and source.connection.is_client:
        source.refuse(partial.delivery_id, partial.settled, TOO_MANY)
        discard(partial)
    elif len(head.data) >= MAX_HEAD:
        start(source, source.address, partial, head.data)


MAX_INTERNAL = 4 * 1024 * 1024


def _collect(source: InLink, address: RoutedAddress, partial: Partial, head: bytes) -> None:
    """Collect the whole message, because it is for the router itself."""
    kept = partial.context
    if not isinstance(kept, _Internal):
        kept = partial.context = _Internal(source, address, partial)
        kept.data.append(head)
    kept.pump()


class _Internal(Stream):
    __slots__ = ("address", "data", "source")

    def __init__(self, source: InLink, address: RoutedAddress, partial: Partial) -> None:
        super().__init__(partial)
        self.source = source
        self.address = address
        self.data: list[bytes] = []

    def pump(self) -> None:
        partial = self.partial
        if partial.aborted:
            self.data.clear()
            return
        self.data.append(partial.take())
        if not self.discard and sum(map(len, self.data)) > MAX_INTERNAL:
            self.discard = True
            self.source.refuse(partial.delivery_id, partial.settled, RELEASED)
        if self.discard:
            self.data.clear()
        elif partial.done:
            payload = b"".join(self.data)
            self.data.clear()
            if not partial.settled:
                self.source.settle(partial.delivery_id)
            if self.address.subscriber is not None:
                self.address.subscriber(self.source.connection, payload)
