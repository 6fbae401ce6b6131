"""A source: the link from which a session receives, from its queue on a broker or from an address that is no topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import repeat
from typing import Any, Final

from msgspec import structs

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import RELEASED, Error, Rejected, Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import SECOND, Link, Receiver
from enmasse.amqp.messages.scan import after
from enmasse.amqp.messages.source_filters import SELECTOR
from enmasse.amqp.termini import MESSAGE_IDENTITY
from enmasse.bridge.uplink import LinkUser
from enmasse.model.sessions import Outgoing, is_address, is_contended
from enmasse.mqtt.packets import NONE, Properties
from enmasse.network.backoff import SOON_AGAIN, Backoff
from services.mqtt_gateway.amqp.exchanges import Exchanges
from services.mqtt_gateway.amqp.filters import Match, SessionFilters
from services.mqtt_gateway.amqp.gateway_state import Shared
from services.mqtt_gateway.amqp.mapping import MessageFields
from services.mqtt_gateway.amqp.message_identity import SIZE, of_message
from services.mqtt_gateway.interfaces import Delivery, Heading

EVERYTHING: Final = "1 = 1"
"""A selector: with one, a link to a queue is passed on to its broker, whose delivery-tags name the messages."""
_DELIVERY: Final = (b"\x70", b"\x71")
"""Sections header and delivery-annotations."""
FULL: Final = 256
"""A window that the client has not made smaller. After this number of messages their size is examined."""
SMALL: Final = 1024
"""Bytes. If they are not larger on average, the window is wider."""
WIDER: Final = 4
"""Factor of that: a subscriber gets at most one window in the time that credit takes to the broker and back."""


class _Kind:
    """Messages of a run that have the same sections before the body: how many so far, and their bytes."""

    __slots__ = ("bytes", "heading", "match", "messages", "qos")

    def __init__(self, match: Match, heading: Heading, qos: int) -> None:
        self.match = match
        self.heading = heading
        self.qos = qos
        self.messages = self.bytes = 0


class SessionSource(LinkUser):
    """`exchanges` and `interest`: of its session; `failed` ends that session's client, and does not raise. `window`:
    deliveries that the client takes unsettled; `v5`: its messages have properties.

    `filter`: the shared subscription whose queue it is, or by which an address is received from; None: all of the
    session's subscriptions. `topic_address` None: a queue of subscriptions, else the address that is no topic.
    `identified`: the delivery-tag is to name the message. `final`: an outcome is to be final when the broker has
    settled it (rcv-settle-mode second), which QoS 2 needs, and which costs a second settlement of each message.
    """

    __slots__ = (
        "_backoff",
        "_bytes",
        "_changing",
        "_decided",
        "_draining",
        "_exchanges",
        "_failed",
        "_interest",
        "_named",
        "_seen",
        "_shared",
        "_v5",
        "_window",
        "address",
        "closed",
        "filter",
        "final",
        "identified",
        "link",
        "multicast",
        "on_ready",
        "selective",
        "topic_address",
    )

    def __init__(
        self,
        shared: Shared,
        exchanges: Exchanges,
        interest: SessionFilters,
        address: str,
        *,
        window: int,
        v5: bool,
        failed: Callable[[Exception], None],
        filter: str | None = None,
        topic_address: str | None = None,
        identified: bool = True,
        final: bool = True,
        selective: bool = False,
        multicast: bool = False,
    ) -> None:
        self._shared = shared
        self._exchanges = exchanges
        self._interest = interest
        self._window = window
        self._v5 = v5
        self._failed = failed
        self.address = address
        self.filter = filter
        self.topic_address = topic_address
        self.identified = identified
        self.final = final
        self.selective = selective
        self.multicast = multicast
        self.link: Receiver | None = None
        self.closed = False
        self.on_ready: Callable[[], None] | None = None
        """Called when the link is attached."""
        self._backoff = Backoff(SOON_AGAIN)
        self._draining = False
        self._changing = False  # drains, to be attached as `final`
        self._seen = self._bytes = 0  # messages since their size was looked at
        self._named = False  # the delivery-tags of the link name messages
        self._decided: set[int] = set()  # accepted, and not settled by the broker yet

    def attach(self) -> None:
        """Attach the link, if there is a connection and there is no link."""
        session = self._shared.receiving
        if self.closed or self.link is not None or session is None or session.ended:
            return
        source = Source(address=self.address)
        if self.selective:
            source.filter = SELECTOR.entry(EVERYTHING)
        more: dict[str, Any] = {"rcv_settle_mode": SECOND} if self.final else {}
        if self.identified:
            more["desired_capabilities"] = (Symbol(MESSAGE_IDENTITY),)
        try:
            link = session.attach_receiver(None, source, Target(), **more)
        except AmqpError:
            self._attach_later()
            return
        link.context = self
        link.on_delivery = self.deliver
        link.keeps_tags = self.identified
        self.link = link
        self._seen = self._bytes = 0
        if self._exchanges.unsure(self.address):
            link.grant(self._window)
            self._draining = True
        else:
            link.credit_window = self._window

    def on_attached(self, link: Link) -> None:
        """As LinkUser."""
        if link is not self.link or link.remote_source is None:
            return
        self._backoff.reset()
        answer = link.remote_attach
        offered = (answer.offered_capabilities if answer is not None else None) or ()
        self._named = self.identified and MESSAGE_IDENTITY in offered
        if self.on_ready is not None:
            self.on_ready()
        if self._draining:
            self.link.drain_credit()

    def failed(self, error: Exception) -> None:
        """As LinkUser: the session ends its client."""
        self._failed(error)

    def make_final(self) -> bool:
        """From now on outcomes are to be final. False: what comes until `on_ready` is called comes without that: the
        link is drained and another one attached, by which the queue redelivers what the client has not acknowledged."""
        link = self.link
        if self.final or link is None or (link.attached and not self._named):
            self.final = True
            return True
        self.final = self._changing = True
        link.drain_credit()
        return False

    def _change(self, link: Receiver) -> None:
        self._changing = self._draining = False
        self.link = None
        self._leave(link)
        self._exchanges.lost(self.address)
        self.attach()

    def on_drained(self, link: Receiver) -> None:
        """Unless all credit was used: there may be more."""
        if link is not self.link:
            return
        if self._changing:
            self._change(link)
            return
        self._draining = False
        if link.deliveries < self._window:
            self._exchanges.drained(self.address)
        link.credit_window = self._window

    def close(self) -> None:
        """Detaches; what is not settled goes back."""
        self.closed = True
        link, self.link = self.link, None
        if link is not None and not link.detached:
            self._leave(link)

    def leave(self) -> None:
        """Close it before the session ends. Other sessions may get the messages that are returned."""
        self.close()
        self._exchanges.lost(self.address)

    def _leave(self, link: Receiver) -> None:
        link.on_delivery = _refuse
        session = self._shared.receiving
        if session is not None and session is link.session:
            _, unsettled = session.unsettled_in()
            for delivery_id in [number for number, each in unsettled.items() if each is link]:
                if delivery_id not in self._decided:
                    session.settle(delivery_id, RELEASED)
        link.detach()

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """As LinkUser. The link is attached again, unless the source is closed."""
        if link is not self.link:
            return
        self.link = None
        self._changing = False
        self._decided.clear()
        self._exchanges.lost(self.address)
        if not self.closed:
            self._attach_later()

    def _attach_later(self) -> None:
        self._shared.later(self._backoff.wait(), self.attach)

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        """As LinkUser."""
        if link is self.link:
            self._decided.difference_update(delivery_ids)
            self._exchanges.settled(self.address, delivery_ids)

    def holds(self, link: Receiver) -> bool:
        """Return whether this is the link: deliveries of an earlier one are lost."""
        return link is self.link

    def accept(self, link: Receiver, delivery_id: int) -> bool:
        """Accept a delivery of this link. Return False if the link was replaced: the message will be redelivered."""
        if link is not self.link:
            return False
        if link.second:
            self._decided.add(delivery_id)
        link.session.settle(delivery_id)
        return True

    def accept_all(self, link: Receiver, delivery_ids: Sequence[int]) -> bool:
        """`accept` of several deliveries."""
        if link is not self.link:
            return False
        if link.second:
            self._decided.update(delivery_ids)
        link.accept_all(delivery_ids)
        return True

    def _count(self, link: Receiver, count: int, size: int) -> None:
        """Widen the window while messages are small and the client takes them, but not if lost messages are to be
        found again within it."""
        self._seen += count
        self._bytes += size
        if self._seen < FULL:
            return
        small = self._bytes <= self._seen * SMALL and self._window >= FULL and not self.final
        window = self._window * WIDER if small else self._window
        self._seen = self._bytes = 0
        if link.credit_window and link.credit_window != window:
            link.credit_window = window

    # messages

    def deliver(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Take a delivery of the link: to the client if a subscription matches it, else it is accepted here."""
        shared = self._shared
        try:
            self._count(link, 1, len(payload))
            try:
                if message_format:
                    raise AmqpError("amqp:not-implemented", f"message-format {message_format} is not known")
                fields, body = shared.reader.read(payload)
                spellings = self.spellings(fields)
                if self._named and len(tag) == SIZE:
                    identity: str | None = tag.hex()
                else:
                    identity = of_message(payload) if self.final else None
            except AmqpError as error:
                shared.rejected += 1
                link.session.settle(
                    delivery_id, Rejected(error=Error(condition=Symbol(error.condition), description=error.description))
                )
                return
            match = self.match(fields, spellings)
            message = b""
            if fields.qos == 2 and identity is not None and is_contended(self.address):
                identity = f"{identity}.{_digest(payload)}"  # it is remembered longer than a broker may live
                message = payload
            expires = 0.0
            over = False
            if fields.expires or fields.ttl is not None:
                now = shared.wall()
                expires = fields.expires_at(now)
                over = expires <= now
            if match is None or over:
                # what is being sent is sent to its end (v3.1.1 MQTT-3.10.4-3; v5 MQTT-3.10.4-3, MQTT-4.3.3-7)
                begun = self._exchanges.under_way(self.address, identity) if identity is not None else 0
                if not begun:
                    if over:
                        shared.expired += 1
                    else:
                        shared.unmatched += 1
                    if not settled:
                        self.accept(link, delivery_id)
                    return
                if match is None:
                    match = Match(spellings[0], ())
                    match.qos = begun
            shared.delivered += 1
            for count in match.counts:
                count.messages += 1
                count.bytes += len(body)
            if link.on_run is None and not link.second and self._may_go_together(fields, match, settled):
                link.on_run = self.deliver_run
            if self.multicast and not settled:
                # the sender and all other receivers wait for it: not for a client that does not read or acknowledge
                self.accept(link, delivery_id)
                settled = True
            self._exchanges.arrived(
                Delivery(
                    match.topic,
                    body,
                    fields.qos if fields.qos < match.qos else match.qos,
                    self._is_retained(fields, match),
                    _properties(fields, match) if self._v5 else NONE,
                    expires,
                    identity,
                    self.address,
                    fields.again,
                    (self, None if settled else link, delivery_id, message),
                    settled,
                ),
            )
        except Exception as error:  # of one client: the connection is for all
            self._failed(error)

    def deliver_run(self, link: Receiver, first: int, payloads: list[bytes], settled: bool) -> None:
        """Take deliveries with consecutive ids. The first of them go together, if they go with one QoS, 0 or 1; for one
        alone that costs more than it saves."""
        link.bytes += sum(map(len, payloads))
        together = len(payloads) > 1 and link is self.link
        done = self._deliver_together(link, first, payloads, settled) if together else 0
        if done == len(payloads):
            return
        link.on_run = None  # until the next message that may go with others
        tags = link.tags_of_run() if link.keeps_tags else [b""] * len(payloads)
        for at in range(done, len(payloads)):
            link.on_delivery(link, first + at, settled, payloads[at], tags[at], 0)

    def _deliver_together(self, link: Receiver, first: int, payloads: list[bytes], settled: bool) -> int:
        """Return how many messages, from the first on, the client has got."""
        shared = self._shared
        read = shared.reader.read
        kinds: dict[MessageFields, _Kind] = {}
        messages: list[tuple[Heading, bytes]] = []
        qos = -1
        try:
            for payload in payloads:
                try:
                    fields, body = read(payload)
                    kind = kinds.get(fields)
                    if kind is None:
                        match = self.match(fields, self.spellings(fields))
                        if match is None or not self._may_go_together(fields, match, settled):
                            break
                        kind = kinds[fields] = _Kind(match, self._heading(fields, match), min(fields.qos, match.qos))
                except AmqpError:
                    break
                if qos < 0:
                    qos = kind.qos
                elif kind.qos != qos:
                    break
                kind.messages += 1
                kind.bytes += len(body)
                messages.append((kind.heading, body))
            if qos == 1:
                given = self._exchanges.delivered_together(self._deliveries(link, first, messages))
            else:
                given = bool(messages) and self._exchanges.arrived_together(messages)
            if not given:
                return 0
            done = len(messages)
            shared.delivered += done
            for kind in kinds.values():
                for count in kind.match.counts:
                    count.messages += kind.messages
                    count.bytes += kind.bytes
            self._count(link, done, sum(map(len, payloads[:done])))
            if not settled and not qos:
                link.settle_run(first, done)
            return done
        except Exception as error:  # of one client: the connection is for all
            self._failed(error)
            return 0

    def _deliveries(self, link: Receiver, first: int, messages: Sequence[tuple[Heading, bytes]]) -> list[Delivery]:
        """Return the first messages of a run as deliveries of QoS 1."""
        tags = link.tags_of_run() if self._named else repeat(b"")
        ids = range(first, first + len(messages))
        return [
            Delivery(
                heading.topic,
                body,
                1,
                heading.retain,
                heading.properties,
                0.0,
                tag.hex() if len(tag) == SIZE else None,
                self.address,
                False,
                (self, link, delivery_id, b""),
            )
            for delivery_id, (heading, body), tag in zip(ids, messages, tags, strict=False)
        ]

    def _may_go_together(self, fields: MessageFields, match: Match, settled: bool) -> bool:
        """Return whether a message needs no look of its own: it never expires, and goes with QoS 0, or with QoS 1 for
        the first time from a queue."""
        if fields.ttl is not None or fields.expires:
            return False
        qos = min(fields.qos, match.qos)
        return not qos or (qos == 1 and not (settled or fields.again or self.final or self.multicast))

    def _heading(self, fields: MessageFields, match: Match) -> Heading:
        properties = _properties(fields, match) if self._v5 else NONE
        return Heading(match.topic, self._is_retained(fields, match), properties)

    def _is_retained(self, fields: MessageFields, match: Match) -> bool:
        return (fields.retained_for is not None and self.topic_address is None) or (
            fields.retain and match.as_published
        )

    def spellings(self, fields: MessageFields) -> tuple[str, ...]:
        """Return the topics by which filters may match a message of this source, the most likely first."""
        address = self.topic_address
        name = fields.name
        if address is None:
            return _spellings(fields)
        if name is not None and name.startswith(address) and (len(name) == len(address) or name[len(address)] == "/"):
            return fields.spellings
        return (address,)

    def match(self, fields: MessageFields, spellings: tuple[str, ...]) -> Match | None:
        """Return the options with which a message goes to the client; None: no subscription matches it."""
        interest = self._interest
        if self.filter is not None:
            return interest.only(self.filter, fields, spellings)
        if fields.retained_for is not None and self.topic_address is None:
            return interest.only(fields.retained_for, fields, spellings)
        return interest.match(fields, spellings)


def held(shared: Shared, sent: Outgoing, source: SessionSource | None, v5: bool) -> Delivery:
    """Return a message that the subscription service holds for the client as it would come from its `source`.

    `source` None: the client is no longer subscribed to it. Raises AmqpError: MQTT cannot carry the message.
    """
    fields, body = shared.reader.read(sent.message)
    if source is not None:
        spellings = source.spellings(fields)
    else:
        spellings = (shared.topics.local(sent.source),) if is_address(sent.source) else _spellings(fields)
    match = source.match(fields, spellings) if source is not None else None
    if match is None:
        match = Match(spellings[0], ())
    return Delivery(
        match.topic,
        body,
        sent.qos,
        fields.retain and match.as_published,
        _properties(fields, match) if v5 else NONE,
        fields.expires_at(shared.wall()),
        sent.identity,
        sent.source,
        True,
        (None, None, 0, b""),
    )


def _spellings(fields: MessageFields) -> tuple[str, ...]:
    if fields.name is None:
        raise AmqpError("amqp:not-allowed", "a message that does not say to which topic it was sent")
    return fields.spellings


def _digest(payload: bytes) -> str:
    """Return the digest of a message without the sections that change when it is redelivered."""
    at, end = 0, len(payload)
    while payload[at : at + 2] == b"\0\x53" and payload[at + 2 : at + 3] in _DELIVERY:
        at = after(payload, at + 3, end)
    return blake2b(memoryview(payload)[at:], digest_size=8).hexdigest()


def _properties(fields: MessageFields, match: Match) -> Properties:
    if fields.properties is NONE:
        return match.properties
    if match.properties is NONE:
        return fields.properties
    return structs.replace(fields.properties, subscription_ids=match.properties.subscription_ids)


def _refuse(link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int) -> None:
    """Release a delivery that arrives after the session has ended."""
    if not settled:
        link.session.settle(delivery_id, RELEASED)
