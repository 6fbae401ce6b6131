"""Publishing: checks the room for a message, chooses its queues, and whether it must be on disk to be accepted."""

from __future__ import annotations

from itertools import islice, takewhile

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.scan import DATA, may_hold
from enmasse.identity.annotations import ORIGINAL_ADDRESS
from enmasse.identity.senders import SERVICE
from services.broker.core.broker import Broker
from services.broker.core.errors import BrokerError, too_many_queues
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.messages.leading_sections import (
    DUPLICATE_MARKS,
    LeadingSections,
    annotated,
    duplicate_key,
    read_sections,
    sections_of,
    without_claims,
    without_duplicate_id,
)
from services.broker.core.messages.selector_values import property_lookup
from services.broker.core.messages.stored_message import REWRITE, STORED, StoredMessage
from services.broker.core.persistence import MAX_HOLDERS
from services.broker.core.publishing.arrivals import Waiting
from services.broker.core.publishing.verdict import ACCEPT, RELEASE, WAIT, Verdict
from services.broker.core.queues.queue import Queue
from services.broker.core.routing.routes import Route
from services.broker.core.sorting import WaitingForTurn
from services.broker.core.turn_shares import LIGHT, LIGHT_SIZE
from services.broker.keys import key_of

_MOVER = b"v"
"""Sender of copies from other brokers."""
_MOVED = b"\x00v"
"""Begin of their duplicate ids."""


def publish(
    broker: Broker,
    route: Route,
    payload: bytes,
    waiting: Waiting | None,
    delivery_id: int,
    origin: str = "",
    sender: bytes = b"",
    believed: bool = False,
) -> Verdict:
    """Store and route one message from container `origin`. `sender`: for whom its duplicate id counts. `believed`: it
    keeps annotations that only brokers and the subscription service may state.

    Raises BrokerError (the message is to be rejected) and AmqpError (the message cannot be decoded).
    """
    front = read_sections(payload)
    owner = route.owner
    size = len(payload)
    ledger = broker.ledger
    if (
        owner.size >= owner.careful
        or owner.count >= owner.limit_count
        or ledger.size >= ledger.size_limit
        or ledger.disk_limits
    ):
        refusal = broker.admission.refusal(owner, front.durable, size)
        if refusal is not None:
            return refusal
    queue = route.single
    if queue is None and route.sole is not None and route.usual(payload):
        queue = route.sole
    if queue is None or not front.simple or owner.special or (not front.bare and may_hold(payload, DUPLICATE_MARKS)):
        return _publish_with_care(broker, route, front, payload, waiting, delivery_id, origin, sender, believed)
    # The usual case, one queue and nothing to look at: as short as it can be.
    ledger.add(owner, 1, size)
    store = broker.store
    if store is not None and front.durable and queue.durable:
        message = StoredMessage(
            store.add(payload, route.stored, priority=front.priority), payload, size, front.flags | STORED, 0, owner, 1
        )
        broker.arrivals.add((message,), route.targets, (payload,), size, waiting, delivery_id)
        verdict = WAIT
    else:
        message = StoredMessage(broker.next_id(), payload, size, front.flags, 0, owner, 1)
        verdict = ACCEPT
        if queue.arriving:
            broker.arrivals.add((message,), route.targets, (payload,), size, None, 0)
        else:
            queue.add(message)
            if message.refs and (ledger.resident > ledger.memory_limit or owner.size > owner.limit):
                broker.payloads.put_out(message)
    if owner.size >= owner.careful or owner.count >= owner.limit_count:
        broker.admission.after(owner, front.durable)
    return verdict


def publish_moved(
    broker: Broker, route: Route, payload: bytes, waiting: Waiting, delivery_id: int, key: bytes
) -> Verdict:
    """`publish` of a copy from another broker; `key`: by which a repeated one is recognised. Other ids of the
    message are neither compared nor remembered, as with moves within a broker."""
    front = read_sections(payload)
    refusal = broker.admission.refusal(route.owner, front.durable, len(payload), moved=True)
    if refusal is not None:
        return refusal
    key = key_of(_MOVER, _MOVED + key)
    return _publish_with_care(broker, route, front, payload, waiting, delivery_id, "", b"", True, key)


def publish_run(broker: Broker, route: Route, payloads: list[bytes], waiting: Waiting | None, first: int) -> int:
    """`publish` of deliveries with consecutive ids, up to the first one of another kind: messages to one
    queue, with nothing to look at and room for all. Returns how many were taken; the next is one for `publish`."""
    owner = route.owner
    queue = route.single
    if queue is None and route.sole is not None:
        queue = route.sole
        payloads = list(takewhile(route.usual, payloads))
    if queue is None or owner.special or not payloads:
        return 0
    front = read_sections(payloads[0])
    if not front.simple or (not front.bare and may_hold(payloads[0], DUPLICATE_MARKS)):
        return 0
    count = 1
    for payload in islice(payloads, 1, None):
        other = read_sections(payload)
        if other is not front and (other.flags != front.flags or not other.simple):
            break
        if not other.bare and may_hold(payload, DUPLICATE_MARKS):
            break
        count += 1
    if count < len(payloads):
        payloads = payloads[:count]
    size = sum(map(len, payloads))
    if not broker.ledger.has_room(owner, count, size):
        return 0
    broker.ledger.add(owner, count, size)
    flags = front.flags
    store = broker.store
    if store is not None and front.durable and queue.durable:
        flags |= STORED
        id = store.add_run(payloads, queue.id, front.priority)
    else:
        id = broker.next_id(count)
    messages = [StoredMessage(id + i, payload, len(payload), flags, 0, owner, 1) for i, payload in enumerate(payloads)]
    if flags & STORED:
        broker.arrivals.add(messages, (queue,), payloads, size, waiting, first)
        return count
    if waiting is not None:
        waiting.stored(first, count)
    if queue.arriving:
        broker.arrivals.add(messages, (queue,), payloads, size, None, 0)
        return count
    queue.add_run(messages, payloads, size)
    broker.payloads.make_room(messages)
    return count


def _publish_with_care(
    broker: Broker,
    route: Route,
    front: LeadingSections,
    payload: bytes,
    waiting: Waiting | None,
    delivery_id: int,
    origin: str,
    sender: bytes,
    believed: bool,
    key: bytes | None = None,
) -> Verdict:
    message, payload, due, key = _made(broker, route, front, payload, sender, believed, key)
    owner = route.owner
    if key is not None and _is_duplicate(broker, owner, key):
        return _repeated(broker, waiting, delivery_id)
    if owner.sorting or (not route.plain and _is_heavy(route, payload)):
        return _sort(broker, route, front, payload, message, due, waiting, delivery_id, origin, key)
    return _enter(broker, route, front, payload, message, due, waiting, delivery_id, origin, key)


def _made(
    broker: Broker,
    route: Route,
    front: LeadingSections,
    payload: bytes,
    sender: bytes,
    believed: bool,
    key: bytes | None = None,
) -> tuple[StoredMessage, bytes, int, bytes | None]:
    """Return the message, its payload, when it is due, and the key by which a copy is recognised."""
    if front.claims and not believed:
        payload = without_claims(payload)
    owner = route.owner
    if key is None:
        key = duplicate_key(payload, owner.settings.duplicates_by_message_id, sender)
        if key is not None and sender == SERVICE:
            payload = without_duplicate_id(payload)
    if route.diverted and route.is_unnamed(payload):
        payload = annotated(payload, {ORIGINAL_ADDRESS: route.name})
    message = StoredMessage(0, payload, len(payload), front.flags, 0, owner, 0)
    due = 0
    if not front.simple or owner.special:
        now = broker.now
        asked = now + front.ttl if front.ttl >= 0 else broker.from_wall(front.absolute_expiry)
        if asked or owner.expiry_rules:
            message.expires = owner.expiry(now, asked)
            message.flags |= REWRITE
        if front.delivery_time or front.delivery_delay:
            due = broker.from_wall(front.delivery_time) or now + front.delivery_delay
    return message, payload, due, key


class Posted:
    """A message that a transaction sends. Times to live and delays count from the moment in which it was sent."""

    __slots__ = ("_broker", "_due", "_front", "_key", "_message", "_origin", "_payload", "_route", "_targets", "size")

    def __init__(
        self, broker: Broker, route: Route, payload: bytes, origin: str, sender: bytes, believed: bool
    ) -> None:
        """As `publish`. Raises AmqpError (the message cannot be decoded)."""
        self._broker = broker
        self._route = route
        self._front = read_sections(payload)
        self._origin = origin
        self._message, self._payload, self._due, self._key = _made(
            broker, route, self._front, payload, sender, believed
        )
        self._targets: list[Queue] | None = None
        self.size = len(self._payload)

    @property
    def owner(self) -> BrokerAddress:
        """The address that it counts to."""
        return self._route.owner

    @property
    def durable(self) -> bool:
        """Whether it is to be stored."""
        return self._front.durable

    def prepare(self) -> int:
        """Find its queues at this moment; return how many. Raises BrokerError if it cannot go to one."""
        route = self._route
        if self._targets is None or route.stale:
            if route.stale:
                found = self._broker.catalogue.route(route.name, None)
                if found is None:
                    raise BrokerError(f"AMQ119002: target address {route.name} does not exist", "amqp:not-found")
                self._route = route = found
            self._message.owner = route.owner
            self._targets, stored = self._broker.choose(route, self._message, self._payload, self._origin)
            if len(stored) > MAX_HOLDERS:
                raise too_many_queues(route.name, len(stored))
            owner = route.owner
            kept = owner.settings.send_to_dla_on_no_route and owner.dead_letter_address is not None
            if not self._targets and not kept and "MULTICAST" not in owner.routing_types:
                raise BrokerError(f"no queue of {route.name} takes the message", "amqp:not-found")
        return len(self._targets)

    def enter(self) -> None:
        """Put it into these queues, unless it is a copy of a message that came before."""
        broker, owner = self._broker, self._route.owner
        if self._key is not None and _is_duplicate(broker, owner, self._key):
            return
        _enter(
            broker,
            self._route,
            self._front,
            self._payload,
            self._message,
            self._due,
            None,
            0,
            self._origin,
            self._key,
            self._targets,
        )


def _enter(
    broker: Broker,
    route: Route,
    front: LeadingSections,
    payload: bytes,
    message: StoredMessage,
    due: int,
    waiting: Waiting | None,
    delivery_id: int,
    origin: str,
    key: bytes | None,
    chosen: list[Queue] | None = None,
) -> Verdict:
    verdict = broker.enter(route, message, payload, origin, due, waiting, delivery_id, key, chosen)
    if verdict is RELEASE:
        return _unrouted(broker, message.owner, payload, front)
    broker.admission.after(message.owner, front.durable)
    return verdict


def _is_heavy(route: Route, payload: bytes) -> bool:
    """Return whether choosing the message's queues takes so long that others have their turns meanwhile."""
    if route.guarded and route.unmarked(payload):
        return False
    if route.weight > LIGHT or len(payload) <= LIGHT_SIZE:
        return route.weight > LIGHT
    try:
        return sections_of(payload).begin(DATA) > LIGHT_SIZE
    except AmqpError:  # it has no properties for selectors
        return False


def _sort(
    broker: Broker,
    route: Route,
    front: LeadingSections,
    payload: bytes,
    message: StoredMessage,
    due: int,
    waiting: Waiting | None,
    delivery_id: int,
    origin: str,
    key: bytes | None,
) -> Verdict:
    """Choose the queues in later turns, and answer the producer then."""
    owner = message.owner

    def finish(chosen: list[Queue] | None, error: Exception | None) -> None:
        verdict = RELEASE
        try:
            if error is not None:
                raise error
            assert chosen is not None
            if broker.catalogue.addresses.get(owner.name) is not owner:
                raise BrokerError(f"AMQ119002: target address {route.name} does not exist", "amqp:not-found")
            if key is not None and _is_duplicate(broker, owner, key):
                verdict = _repeated(broker, waiting, delivery_id)
            else:
                chosen = [queue for queue in chosen if not queue.deleted]
                verdict = _enter(broker, route, front, payload, message, due, waiting, delivery_id, origin, key, chosen)
        except (BrokerError, AmqpError) as refusal:
            if waiting is not None:
                waiting.not_taken(delivery_id, refusal)
            return
        if waiting is not None and verdict is ACCEPT:
            waiting.stored(delivery_id, 1)
        elif waiting is not None and verdict is RELEASE:
            waiting.not_taken(delivery_id, None)

    lookup = property_lookup(payload, message, broker.to_wall)
    if not broker.sorting.add(WaitingForTurn(route, lookup, origin, len(payload), finish)):
        return RELEASE
    return WAIT


def _repeated(broker: Broker, waiting: Waiting | None, delivery_id: int) -> Verdict:
    """The first copy may not be on disk yet: its sender has to wait for the same commit."""
    if broker.store is None or waiting is None:
        return ACCEPT
    broker.arrivals.add_copy(waiting, delivery_id)
    return WAIT


def _is_duplicate(broker: Broker, owner: BrokerAddress, key: bytes) -> bool:
    if broker.duplicates.seen(owner, key):
        return True
    return broker.store is not None and bool(owner.id) and broker.store.seen(owner.id, key)


def _unrouted(broker: Broker, owner: BrokerAddress, payload: bytes, front: LeadingSections) -> Verdict:
    owner.count_unrouted()
    if owner.settings.send_to_dla_on_no_route and broker.dead_letters.unrouted(
        owner, payload, durable=front.durable, priority=front.priority
    ):
        return ACCEPT
    # A topic without subscribers has done its work. A queue's address without its queue has not: the sender keeps it.
    return ACCEPT if "MULTICAST" in owner.routing_types else RELEASE
