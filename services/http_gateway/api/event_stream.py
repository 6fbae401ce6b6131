"""EventStream: the link of one stream of events, what waits to be written to its client, and what is settled when.

Three kinds of links. At multicast addresses a message is settled when it comes, because its sender and all other
receivers wait for that; a client that is behind loses the oldest ones, and learns how many. Of a topic it is settled
when it was written; what the client does not read waits at the broker. Of a subscription with a name it is settled when
the client's host has acknowledged its bytes and it is not one of the newest: until then it is redelivered, and
`Last-Event-ID` says where the client was. What the host has acknowledged the client may not have read: the newest are
to be more than the host, or a proxy in between, keeps for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from hashlib import blake2b
from itertools import count
from typing import Any, Final, NamedTuple

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import RELEASED
from enmasse.amqp.link import Link, Receiver
from enmasse.amqp.messages.scan import PROPERTIES
from enmasse.amqp.messages.sections import Sections
from enmasse.amqp.termini import MESSAGE_IDENTITY
from enmasse.bridge.uplink import LinkUser
from services.http_gateway.api.stream_shares import StreamShare

WINDOW: Final = 64
"""Messages on their way to a client and waiting for it."""
WINDOW_BYTES: Final = 256 << 10
"""Bytes of them, by the size of those that came last; one message may have more."""
FIRST: Final = 32 << 10
"""Bytes that a message is taken to have before the first has come."""
BEHIND: Final = 1 << 20
"""Bytes that wait for a client of a multicast address before the oldest are dropped."""
NEWEST: Final = 64
MOST_NEWEST: Final = 1024
"""Messages of a subscription that are not settled, because the client may not have read them, if they were written in
the last `RECENT` seconds: `NEWEST` whatever their size, and up to `MOST_NEWEST` of `UNREAD` bytes."""
ALL_NEWEST: Final = 16384
"""Messages of all streams together that are not settled so, unless each has only `NEWEST`. A session, which they share
with the other clients of the address space, gets no more messages at four times as many (`Limits.max_unsettled`)."""
UNREAD: Final = 1 << 20
"""Bytes that a host keeps for a client which does not read, as a rule."""
RECENT: Final = 30.0
UNCONFIRMED: Final = 448
"""Messages beside the newest that were written and that the client's host may not have acknowledged."""
STEP: Final = 576
"""Deliveries of which the ids are asked for at once, to find the place of a client."""
STEPS: Final = -(-(MOST_NEWEST + UNCONFIRMED + WINDOW) // STEP)
"""Steps that pass all that a stream before may have had."""
_numbers: Final = count(1)
IDENTITY: Final = 8
"""Bytes of a delivery-tag that names the message."""


class StreamKind(Enum):
    """Kind of a stream's link, on which depends when a message is settled."""

    MULTICAST = auto()
    TOPIC = auto()
    SUBSCRIPTION = auto()


class UnwrittenEvent(NamedTuple):
    """A message that is not written yet."""

    delivery_id: int
    payload: bytes
    tag: bytes


class _Written(NamedTuple):
    """A message of a subscription that was written: `position` behind it in the bytes of the connection, and when."""

    delivery_id: int
    position: int
    at: float


class EventStream(LinkUser):
    """`kind`: of its link. `share`: of its user. `kept` is called with each change of the bytes that wait."""

    def __init__(self, kind: StreamKind, share: StreamShare, kept: Any) -> None:
        self.kind = kind
        self.share = share
        self.number = next(_numbers)
        """Different for each stream of the process."""
        self.client = self.stated = self.names = ""
        """Name of its client; the address as its request has it, and by its full name."""
        self.address = ""
        """Full name of the configured address."""
        self.sent = self.sent_bytes = 0
        self.link: Receiver | None = None
        self.attached = False
        self.ended: AmqpError | None = None
        """Why the link has ended."""
        self.changed = asyncio.Event()
        self.waiting: deque[UnwrittenEvent] = deque()
        self.bytes = 0
        self.dropped = 0
        """Messages of a multicast address that the client was too slow for, and that no event has counted yet."""
        self.passed: list[tuple[int, str]] | None = None
        """While the place of the client is looked for: deliveries, with the ids of their events."""
        self.drained = False
        self._kept = kept
        self._average = float(FIRST)
        self._named = False
        self._written: deque[_Written] = deque()
        self._newest = NEWEST
        self._asked = 0

    def attached_by(self, link: Receiver) -> None:
        """Use this link."""
        self.link = link
        link.context = self
        link.on_delivery = self._on_delivery
        if self.kind is StreamKind.MULTICAST:
            link.credit_window = WINDOW

    # LinkUser

    def on_attached(self, link: Link) -> None:
        """As LinkUser."""
        if link is not self.link or link.remote_source is None:
            return
        answer = link.remote_attach
        self._named = MESSAGE_IDENTITY in ((answer.offered_capabilities if answer is not None else None) or ())
        self.attached = True
        self.changed.set()

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """As LinkUser."""
        if link is not self.link:
            return
        self.link = None
        self.ended = error or AmqpError("amqp:link:detach-forced", "the link was lost")
        self.changed.set()

    def on_drained(self, link: Receiver) -> None:
        """As LinkUser."""
        self.drained = True
        self.changed.set()

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        """Do nothing: the peer settles first of nothing that is awaited."""

    def failed(self, error: Exception) -> None:
        """As LinkUser: this stream ends."""
        self.ended = AmqpError("amqp:internal-error", str(error))
        self.changed.set()

    # messages

    def _on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        if self.passed is not None:
            self.passed.append((delivery_id, self.event_id(payload, tag)))
            return
        size = len(payload)
        self._average += (size - self._average) / 8
        self.waiting.append(UnwrittenEvent(-1 if settled else delivery_id, payload, tag))
        self._count(size)
        if self.kind is StreamKind.MULTICAST:
            if not settled:
                link.session.settle(delivery_id)
            while len(self.waiting) > 1 and self._is_behind():
                self._count(-len(self.waiting.popleft().payload))
                self.dropped += 1
        self.changed.set()

    def _is_behind(self) -> bool:
        return self.bytes > BEHIND or len(self.waiting) > 4 * WINDOW or self.share.full

    def _count(self, size: int) -> None:
        self.bytes += size
        self.share.bytes += size
        self._kept(size)

    def event_id(self, payload: bytes, tag: bytes) -> str:
        """Return the id of a message's event: by the delivery-tag, if that names it, else by what does not change when
        it is redelivered. Empty: it has none."""
        if self._named and len(tag) == IDENTITY:
            return tag.hex()
        try:
            begin = Sections(payload).begin(PROPERTIES)
        except AmqpError:
            return ""
        return blake2b(memoryview(payload)[begin:], digest_size=IDENTITY).hexdigest()

    def take(self) -> UnwrittenEvent:
        """Return the next message."""
        found = self.waiting.popleft()
        self._count(-len(found.payload))
        return found

    def put_back(self, messages: list[UnwrittenEvent]) -> None:
        """Messages could not be written: they are returned with those that wait."""
        self.waiting.extendleft(reversed(messages))
        self._count(sum(len(each.payload) for each in messages))

    def ask(self) -> None:
        """Grant credit for as much as the client may have waiting."""
        link = self.link
        if link is None or self.kind is StreamKind.MULTICAST or self.unsure:
            return
        window = max(1, min(WINDOW, int(self.share.window(WINDOW_BYTES) / max(1.0, self._average))))
        missing = window - link.credit - len(self.waiting)
        if missing > window // 2:
            link.grant(missing)

    def refuse(self, message: UnwrittenEvent, state: Any) -> None:
        """State an outcome of a message that cannot be written."""
        if self.link is not None and message.delivery_id >= 0 and self.kind is not StreamKind.MULTICAST:
            self.link.session.settle(message.delivery_id, state)

    def written(self, messages: list[UnwrittenEvent], position: int, now: float) -> None:
        """Messages were written; `position`: bytes of the connection behind them."""
        for message in messages:
            self.sent += 1
            self.sent_bytes += len(message.payload)
            if message.delivery_id < 0 or self.link is None:
                continue
            if self.kind is StreamKind.TOPIC:
                self.link.session.settle(message.delivery_id)
            elif self.kind is StreamKind.SUBSCRIPTION:
                self._written.append(_Written(message.delivery_id, position, now))

    @property
    def unsure(self) -> bool:
        """As many messages were written and not settled as may be."""
        return len(self._written) >= self._newest + UNCONFIRMED

    def settle(self, confirmed: int, now: float, streams: int) -> None:
        """Settle what the client's host has, `confirmed` bytes of the connection, but for the newest messages.
        `streams`: how many share `ALL_NEWEST`."""
        written, link = self._written, self.link
        self._newest = max(NEWEST, min(MOST_NEWEST, ALL_NEWEST // max(1, streams)))
        while link is not None and written and written[0].position <= confirmed:
            if now - written[0].at < RECENT and self._may_be_unread(len(written)):
                return
            link.session.settle(written.popleft().delivery_id)

    def _may_be_unread(self, count: int) -> bool:
        """Return whether the client may not have read the oldest of the `count` messages written last."""
        if count <= NEWEST:
            return True
        return count <= self._newest and self._written[-1].position - self._written[0].position < UNREAD

    # the place of a client

    def look(self) -> None:
        """Ask for the next deliveries that another stream may have written before: only their ids are kept."""
        if self.passed is None:
            self.passed = []
        self.drained = False
        self._asked += STEP
        assert self.link is not None
        self.link.grant(STEP)
        self.link.drain_credit()

    def seen(self, last: str) -> bool:
        """Return whether the place of the client is known: by the event that it had last, or because no delivery is
        left."""
        passed = self.passed or []
        return len(passed) < self._asked or any(id == last for _, id in passed)

    def found(self, last: str) -> int:
        """Settle the deliveries up to the one whose event the client had last, and return the others. Return how many
        were settled."""
        passed, self.passed = self.passed or [], None
        at = next((n for n, (_, id) in enumerate(passed, 1) if id == last), 0)
        link = self.link
        if link is not None:
            for delivery_id, _ in passed[:at]:
                link.session.settle(delivery_id)
            for delivery_id, _ in reversed(passed[at:]):  # each goes to the head of its queue
                link.session.settle(delivery_id, RELEASED)
        return at

    def close(self, *, for_good: bool = False) -> None:
        """End the link. What the client may not have goes back; a subscription stays unless it ends `for_good`."""
        link, self.link = self.link, None
        self._count(-self.bytes)
        if link is not None and not link.detached:
            link.on_delivery = _release
            if self.kind is not StreamKind.MULTICAST:
                ids = [each.delivery_id for each in self._written]
                ids += [each.delivery_id for each in self.waiting if each.delivery_id >= 0]
                for delivery_id in reversed(ids):
                    link.session.settle(delivery_id, RELEASED)
            link.detach(closed=for_good or self.kind is not StreamKind.SUBSCRIPTION)
        self.waiting.clear()
        self._written.clear()


def _release(link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int) -> None:
    """Release a delivery that comes after the end."""
    if not settled:
        link.session.settle(delivery_id, RELEASED)
