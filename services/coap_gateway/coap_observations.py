"""Observations (RFC 7641): the links of clients that observe topics and multicast addresses.

A notification is confirmable, and one of an observation is on its way at a time. A message of a topic is settled when
the client has acknowledged it, its last block if it comes in several; one of a multicast address when it comes, because
its sender and all other receivers wait for that.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from functools import partial
from typing import Any, Final, NamedTuple

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import RELEASED, Error, Rejected, Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import Link, Receiver
from enmasse.bridge.uplink import LinkUser
from enmasse.identity.shared_room import SharedRoom
from enmasse.model.topic_map import TopicOwner
from enmasse.network.backoff import SOON_AGAIN, Backoff
from enmasse.wire_formats.coap_messages import (
    BLOCK2,
    CON,
    EMPTY,
    ETAG,
    OBSERVE,
    SIZE2,
    CoapBlock,
    block_option,
    code,
    encoded,
    uint,
)
from services.coap_gateway.coap_answers import CoapAnswer, of_condition
from services.coap_gateway.coap_mapping import to_coap
from services.coap_gateway.coap_memory import CoapEndpoint, CoapExchange, CoapMemory
from services.coap_gateway.coap_visitors import CoapVisitor

MOST: Final = 10_000
"""Observations of a gateway."""
OF_ENDPOINT: Final = 100
UNPROVEN: Final = 128
"""Observations whose clients have not proved their address; from half of it on they prove it first."""
WINDOW: Final = 16
"""Messages on their way to an observation and waiting in it."""
WINDOW_BYTES: Final = 256 << 10
BEHIND: Final = 256 << 10
"""Bytes that wait for an observer of a multicast address before the oldest are dropped."""
FIRST: Final = 16 << 10
"""Bytes that a message is taken to have before the first has come."""
PATIENCE: Final = 30.0
"""Seconds in which the link has to be attached for the first time."""
BLOCKS: Final = 60.0
"""Seconds without a request in which the client has to ask for the next block."""
SILENT: Final = 900.0
"""Seconds in which nothing has come from a client, after which it is asked whether it is there."""
LOOK: Final = 10.0
"""Seconds between two looks for silent clients."""
CONTENT: Final = code("2.05")
_NOT_YET: Final = frozenset(("qd:no-route-to-dest", "qd:routed-link-lost", "amqp:connection:forced"))


class _Waiting(NamedTuple):
    """A message that was not sent. `delivery_id`: -1: it is settled."""

    delivery_id: int
    payload: bytes


class _Current:
    """The message that a notification is on its way of."""

    def __init__(self, message: _Waiting, options: list[tuple[int, bytes]], body: bytes, etag: bytes) -> None:
        self.message = message
        self.options = options
        self.body = body
        self.etag = etag
        self.timer: asyncio.TimerHandle | None = None


class CoapObservation(LinkUser):
    """`exchange`: the request, which is answered once the link is there; `exponent`: of the size of blocks; `whole`:
    notifications are messages with all of their fields, as JSON."""

    def __init__(
        self,
        observations: CoapObservations,
        exchange: CoapExchange,
        visitor: CoapVisitor,
        local: str,
        owner: TopicOwner,
        exponent: int,
        whole: bool,
    ) -> None:
        self.endpoint = exchange.endpoint
        self.token = exchange.token
        self.visitor = visitor
        self.local = local
        self.owner = owner
        self.exponent = exponent
        self.whole = whole
        self.sent = self.sent_bytes = self.dropped = 0
        self.bytes = 0
        """Bytes of messages that wait."""
        self.closed = False
        self.confirmed = False
        """The client has its answer."""
        self._observations = observations
        self._exchange = exchange
        self._stored = owner.traits.stored
        self._waiting: deque[_Waiting] = deque()
        self._current: _Current | None = None
        self._sequence = 1
        self._average = float(FIRST)
        self._backoff = Backoff(SOON_AGAIN)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = self._loop.call_later(PATIENCE, self._late)
        self._ready = False
        self.link: Receiver | None = None

    # the link

    def attach(self) -> None:
        """Attach the link, if there is a connection."""
        self._timer = None
        session = self.visitor.lanes.receiving
        if self.closed or self.link is not None:
            return
        if session is None or session.ended:
            self._attach_later()
            return
        try:
            link = session.attach_receiver(None, Source(address=self.owner.wire), Target())
        except AmqpError:
            self._attach_later()
            return
        link.context = self
        link.on_delivery = self._deliver
        self.link = link
        if not self._stored:
            link.credit_window = WINDOW

    def _attach_later(self) -> None:
        if not self.closed and self._timer is None:
            self._timer = self._loop.call_later(self._backoff.wait(), self.attach)

    def _late(self) -> None:
        self.end(CoapAnswer("5.03", "the router is not reached", retry=5))

    def on_attached(self, link: Link) -> None:
        """As LinkUser."""
        if link is not self.link or link.remote_source is None:
            return
        self._backoff.reset()
        if self._deadline is not None:
            self._deadline.cancel()
        if not self._ready:
            self._ready = True
            self.answer(self._exchange)
        self._ask()

    def answer(self, exchange: CoapExchange) -> None:
        """Answer the request to observe."""
        if exchange.answered or not self._ready:
            return
        options = ((OBSERVE, uint(self._sequence)),)
        if self.endpoint.proven:
            exchange.answer(CONTENT, options)
            self._proved(True)
        else:
            exchange.answer(CONTENT, options, done=self._proved)

    def _proved(self, done: bool) -> None:
        self._observations.proved(self)
        if not done:
            self.end()
        elif not self.confirmed:
            self.confirmed = True
            self._next()

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """As LinkUser. The link is attached again, unless it was refused."""
        if link is not self.link:
            return
        self.link = None
        self._count(-self.bytes)
        self._waiting.clear()
        condition = "" if error is None else error.condition
        if error is None or condition in _NOT_YET:
            self._attach_later()
        else:
            text = self.visitor.lanes.topics.relative(error.description or condition)
            self.end(of_condition(condition, text, "5.03"))

    def failed(self, error: Exception) -> None:
        """As LinkUser: the observation ends."""
        self._observations.failed(self, error)

    # messages

    def _deliver(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        try:
            size = len(payload)
            self._average += (size - self._average) / 8
            if not self._stored and not settled:
                link.session.settle(delivery_id)
            self._waiting.append(_Waiting(-1 if settled or not self._stored else delivery_id, payload))
            self._count(size)
            while not self._stored and len(self._waiting) > 1 and self.bytes > BEHIND:
                self._count(-len(self._waiting.popleft().payload))
                self.dropped += 1
                self._observations.counts["dropped"] += 1
            self._next()
        except Exception as error:  # of one client: the connection is for all
            self._observations.failed(self, error)

    def _count(self, size: int) -> None:
        self.bytes += size
        self._observations.count(size)

    def _ask(self) -> None:
        """Grant credit for as much as may wait."""
        link = self.link
        if link is None or not self._stored:
            return
        window = max(1, min(WINDOW, int(WINDOW_BYTES / max(1.0, self._average))))
        missing = window - link.credit - len(self._waiting) - (self._current is not None)
        if missing > window // 2:
            link.grant(missing)

    def _next(self) -> None:
        while self.confirmed and self._current is None and self._waiting and not self.closed:
            message = self._waiting.popleft()
            self._count(-len(message.payload))
            try:
                options, body = to_coap(message.payload, whole=self.whole)
            except AmqpError as error:
                self._observations.counts["rejected"] += 1
                self._settle(message, Rejected(error=Error(condition=Symbol(error.condition), description=str(error))))
                continue
            self._notify(message, options, body)
        self._ask()

    def _notify(self, message: _Waiting, options: list[tuple[int, bytes]], body: bytes) -> None:
        self._sequence = (self._sequence + 1) & 0xFF_FFFF
        current = self._current = _Current(message, options, body, self._sequence.to_bytes(3, "big"))
        made = self._part(current, CoapBlock(0, False, self.exponent))
        made[0].append((OBSERVE, uint(self._sequence)))
        endpoint = self.endpoint
        data = encoded(CON, CONTENT, endpoint.next_id(), self.token, *made)
        self._observations.memory.confirm(endpoint, data, partial(self._notified, current))

    def _part(self, current: _Current, block: CoapBlock) -> tuple[list[tuple[int, bytes]], bytes]:
        """Return options and payload of a block of the message."""
        begin, end = block.number * block.size, (block.number + 1) * block.size
        options, body = list(current.options), current.body
        if begin or end < len(body):
            options.append((BLOCK2, block_option(block._replace(more=end < len(body)))))
            options.append((ETAG, current.etag))
            if not begin:
                options.append((SIZE2, uint(len(body))))
        return options, body[begin:end]

    def _notified(self, current: _Current, done: bool) -> None:
        if self.closed or current is not self._current:
            return
        if not done:
            self._observations.counts["not acknowledged"] += 1
            self.end()
        elif len(current.body) <= CoapBlock(0, False, self.exponent).size:
            self._finish()
        elif current.timer is None:  # libcoap asks for the next block before it acknowledges
            self._wait_for_blocks(current)

    def _wait_for_blocks(self, current: _Current) -> None:
        if current.timer is not None:
            current.timer.cancel()
        current.timer = self._loop.call_later(BLOCKS, self._notified, current, False)

    def serve(self, exchange: CoapExchange, block: CoapBlock) -> bool:
        """Answer a request for a block of the message; return whether there is one."""
        current = self._current
        if current is None or block.number * block.size >= len(current.body):
            return False
        options, payload = self._part(current, block)
        last = (block.number + 1) * block.size >= len(current.body)
        self._wait_for_blocks(current)
        exchange.answer(CONTENT, options, payload, done=partial(self._had_last, current) if last else None)
        return True

    def _had_last(self, current: _Current, done: bool) -> None:
        if self.closed or current is not self._current:
            return
        if current.timer is not None:
            current.timer.cancel()
        if done:
            self._finish()
        else:
            self._notified(current, False)

    def _finish(self) -> None:
        current, self._current = self._current, None
        assert current is not None
        self.sent += 1
        self.sent_bytes += len(current.body)
        self.endpoint.messages_out += 1
        self._observations.counts["sent"] += 1
        self._settle(current.message, None)
        self._next()

    def _settle(self, message: _Waiting, state: Any) -> None:
        if self.link is None or message.delivery_id < 0:
            return
        if state is None:
            self.link.session.settle(message.delivery_id)
        else:
            self.link.session.settle(message.delivery_id, state)

    # the end

    def end(self, answer: CoapAnswer | None = None) -> None:
        """End it. What the client has not acknowledged goes back. `answer`: for the client, the reason."""
        if self.closed:
            return
        self.closed = True
        current, link = self._current, self.link
        self._current = self.link = None
        for timer in (self._timer, self._deadline, None if current is None else current.timer):
            if timer is not None:
                timer.cancel()
        if link is not None and not link.detached:
            link.on_delivery = _release
            waiting = [*([] if current is None else [current.message]), *self._waiting]
            for each in reversed([each for each in waiting if each.delivery_id >= 0]):
                link.session.settle(each.delivery_id, RELEASED)
            link.detach(closed=True)
        self._count(-self.bytes)
        self._waiting.clear()
        self._observations.ended(self, self._exchange, answer)


def _release(link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int) -> None:
    """Return a message of an observation that has ended."""
    if not settled:
        link.session.settle(delivery_id, RELEASED)


class CoapObservations:
    """All observations of a gateway. `most`: bytes that wait for observers; the observation that has most ends."""

    def __init__(self, memory: CoapMemory, most: int, log: Any) -> None:
        self.memory = memory
        self.all: set[CoapObservation] = set()
        self.counts: Counter[str] = Counter()
        """`sent`, `dropped`, `rejected`, `not acknowledged` → notifications."""
        self.kept = 0
        self._room = SharedRoom()
        self._most = most
        self._unproven: set[CoapObservation] = set()
        self._look_at = 0.0
        self._asked: dict[CoapEndpoint, float] = {}
        self._log = log

    @property
    def pressed(self) -> bool:
        """Clients prove their address first."""
        return len(self._unproven) >= UNPROVEN // 2

    def begin(
        self,
        exchange: CoapExchange,
        visitor: CoapVisitor,
        local: str,
        owner: TopicOwner,
        exponent: int,
        *,
        whole: bool,
        alone: bool,
    ) -> None:
        """Observe an address. `alone`: there are no other address spaces. Raises CoapAnswer."""
        endpoint = exchange.endpoint
        found = endpoint.observations.get(exchange.token)
        if found is not None:
            if (found.local, found.whole) == (local, whole) and found.confirmed:
                found.answer(exchange)
                return
            found.end()
        if not alone and self._room.is_full(visitor.user, MOST):
            raise CoapAnswer("5.03", "the address space has too many observers", retry=5)
        if len(self.all) >= MOST or (not endpoint.proven and len(self._unproven) >= UNPROVEN):
            raise CoapAnswer("5.03", "the gateway has too many observers", retry=5)
        if len(endpoint.observations) >= OF_ENDPOINT:
            raise CoapAnswer("4.29", f"a client has at most {OF_ENDPOINT} observations: end some first", retry=5)
        made = CoapObservation(self, exchange, visitor, local, owner, exponent, whole)
        self.all.add(made)
        self._room.add(visitor.user)
        if not endpoint.proven:
            self._unproven.add(made)
        endpoint.observations[exchange.token] = made
        made.attach()

    def proved(self, observation: CoapObservation) -> None:
        """The client of an observation has answered, or has not."""
        self._unproven.discard(observation)

    def ended(self, observation: CoapObservation, exchange: CoapExchange, answer: CoapAnswer | None) -> None:
        """Forget an observation, and tell its client why it has ended."""
        endpoint = observation.endpoint
        if observation in self.all:
            self.all.discard(observation)
            self._room.add(observation.visitor.user, -1)
        self._unproven.discard(observation)
        if endpoint.observations.get(observation.token) is observation:
            del endpoint.observations[observation.token]
        if answer is not None:
            told = code(answer.code), answer.options, answer.text.encode("utf-8", "replace")
            if not exchange.answered:
                exchange.answer(*told)
            else:
                data = encoded(CON, told[0], endpoint.next_id(), observation.token, *told[1:])
                self.memory.confirm(endpoint, data, lambda done: None)
        self.memory.release(endpoint)

    def failed(self, observation: CoapObservation, error: Exception) -> None:
        """End an observation after an unexpected error; does not raise."""
        self._log.error("coap-gateway.observation.failed", peer=observation.endpoint.name, exc_info=error)
        observation.end(CoapAnswer("5.00", "an unexpected error of the gateway, which is in its log"))

    def count(self, size: int) -> None:
        """Count bytes that wait."""
        self.kept += size
        if size > 0 and self.kept > self._most:
            most = max(self.all, key=lambda each: each.bytes)
            most.end(CoapAnswer("5.03", "the gateway has too many messages that wait for slow clients", retry=5))

    def review(self, visitor: CoapVisitor) -> None:
        """End observations for which the visitor no longer has the permission."""
        for each in [each for each in self.all if each.visitor is visitor]:
            if visitor.ended:
                each.end(CoapAnswer("4.01", visitor.ended))
            elif not visitor.may("recv", each.local):
                each.end(CoapAnswer("4.03", f"no longer a permission to receive from {each.local[:100]!r}"))

    def tick(self) -> None:
        """Ask clients that have been silent for long whether they are there: they refuse what they do not know."""
        if self.memory.now() < self._look_at:
            return
        self._look_at = self.memory.now() + LOOK
        before = self.memory.now() - SILENT
        silent = {each.endpoint for each in self.all if each.endpoint.heard < before}
        self._asked = {each: at for each, at in self._asked.items() if each in silent}
        for endpoint in silent - self._asked.keys():
            self._asked[endpoint] = before
            ping = encoded(CON, EMPTY, endpoint.next_id())
            self.memory.confirm(endpoint, ping, partial(self._answered, endpoint, endpoint.heard))

    def _answered(self, endpoint: CoapEndpoint, heard: float, acknowledged: bool) -> None:
        if endpoint.heard == heard:
            for each in list(endpoint.observations.values()):
                each.end()

    def close(self) -> None:
        """End all: the gateway ends."""
        for each in list(self.all):
            each.end(CoapAnswer("5.03", "the gateway ends: observe again", retry=1))
