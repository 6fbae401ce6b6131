"""What happens to a message that arrives: is there room, who gets it, must it be on disk before it is accepted."""

from __future__ import annotations

from enum import IntEnum

from services.broker.core import errors
from services.broker.core.arrivals import Waiting
from services.broker.core.broker import Broker
from services.broker.core.broker_address import UNLIMITED, BrokerAddress
from services.broker.core.front import Front, duplicate_id, may_be_marked, read_front
from services.broker.core.properties import property_lookup
from services.broker.core.routes import Route
from services.broker.core.stored_message import PARTLY, REWRITE, STORED, StoredMessage

_HARD_LIMIT_SLACK = 1 << 20


class Verdict(IntEnum):
    """ACCEPT: settle now. WAIT: `Waiting.stored` or `not_stored` will be called. RELEASE: nobody can take it now."""

    ACCEPT = 0
    WAIT = 1
    RELEASE = 2


ACCEPT, WAIT, RELEASE = Verdict.ACCEPT, Verdict.WAIT, Verdict.RELEASE


def publish(
    broker: Broker,
    route: Route,
    payload: bytes,
    waiting: Waiting | None,
    delivery_id: int,
    origin: str = "",
) -> Verdict:
    """Stores and routes one message from container `origin`.

    Raises BrokerError (to be told as rejected) and AmqpError (the message cannot be decoded).
    """
    front = read_front(payload)
    owner = route.owner
    size = len(payload)
    if (
        owner.size >= owner.limit
        or owner.count >= owner.limit_count
        or broker.size >= broker.size_limit
        or broker.disk_full
    ) and (refusal := _refusal(broker, owner, front, size)) is not None:
        return refusal
    queue = route.single
    if queue is None or not front.simple or owner.special or (not front.bare and may_be_marked(payload)):
        return _publish_with_care(broker, route, front, payload, waiting, delivery_id, origin)
    # The usual case, one queue and nothing to look at: as short as it can be.
    owner.size += size
    owner.count += 1
    owner.routed += 1
    broker.size += size
    broker.resident += size
    store = broker.store
    if store is not None and front.durable and queue.durable:
        message = StoredMessage(
            store.add(payload, route.stored, priority=front.priority), payload, size, front.flags | STORED, 0, owner, 1
        )
        broker.arrivals.add(message, route.targets, payload, waiting, delivery_id)
        verdict = WAIT
    else:
        message = StoredMessage(broker.next_id(), payload, size, front.flags, 0, owner, 1)
        verdict = ACCEPT
        if queue.arriving:
            broker.arrivals.add(message, route.targets, payload, None, 0)
        else:
            queue.add(message)
            if message.refs and (broker.resident > broker.memory_limit or owner.size > owner.limit):
                broker.put_out(message)
    if (owner.size >= owner.limit or owner.count >= owner.limit_count) and _blocks(broker, owner, front):
        broker.block(owner)
    return verdict


def publish_run(broker: Broker, route: Route, payloads: list[bytes], waiting: Waiting, first: int) -> int:
    """`publish` of unsettled deliveries with consecutive ids, as far as they are alike: messages to one queue, with
    nothing to look at and room for all. Returns how many were taken; the next is one for `publish`."""
    owner = route.owner
    queue = route.single
    if queue is None or owner.special or broker.disk_full:
        return 0
    front = read_front(payloads[0])
    if not front.simple:
        return 0
    count = 0
    for payload in payloads:
        other = read_front(payload)
        if other is not front and (other.flags != front.flags or not other.simple):
            break
        if not other.bare and may_be_marked(payload):
            break
        count += 1
    if count < len(payloads):
        payloads = payloads[:count]
    size = sum(map(len, payloads))
    if (
        count == 0
        or owner.size + size >= owner.limit
        or owner.count + count >= owner.limit_count
        or broker.size + size >= broker.size_limit
    ):
        return 0
    owner.size += size
    owner.count += count
    owner.routed += count
    broker.size += size
    broker.resident += size
    flags = front.flags
    store = broker.store
    if store is not None and front.durable and queue.durable:
        flags |= STORED
        id = store.add_run(payloads, queue.id, front.priority)
    else:
        id = broker.next_id(count)
    messages = [StoredMessage(id + i, payload, len(payload), flags, 0, owner, 1) for i, payload in enumerate(payloads)]
    if flags & STORED:
        broker.arrivals.add_run(messages, queue, payloads, size, waiting, first)
        return count
    waiting.stored(first, count)
    if queue.arriving:
        broker.arrivals.add_run(messages, queue, payloads, size, None, 0)
        return count
    queue.add_run(messages, payloads, size)
    if broker.resident > broker.memory_limit:
        for message in messages:
            if message.refs:
                broker.put_out(message)
    return count


def _publish_with_care(
    broker: Broker,
    route: Route,
    front: Front,
    payload: bytes,
    waiting: Waiting | None,
    delivery_id: int,
    origin: str,
) -> Verdict:
    owner = route.owner
    store = broker.store
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
    key = duplicate_id(payload, owner.settings.duplicates_by_message_id)
    if key is not None and _is_duplicate(broker, owner, key):
        # The first copy may not be on disk yet: its sender has to wait for the same commit.
        if store is None or waiting is None:
            return ACCEPT
        broker.arrivals.add_copy(waiting, delivery_id)
        return WAIT
    targets, stored = (
        (route.targets, route.stored)
        if route.plain
        else route.choose(property_lookup(payload, message, broker.to_wall), origin)
    )
    if not targets:
        return _unrouted(broker, owner, payload, front)
    verdict = ACCEPT
    if front.durable and stored and store is not None:
        message.id = store.add(
            payload,
            stored,
            priority=front.priority,
            expiry=broker.to_wall(message.expires),
            not_before=broker.to_wall(due),
            duplicate=(owner.id, key) if key is not None and owner.id else None,
        )
        message.flags |= STORED if len(stored) == len(targets) else STORED | PARTLY
        verdict = WAIT
    else:
        message.id = broker.next_id()
        if key is not None:
            broker.duplicates.add(owner, key)
    if verdict is WAIT:
        broker.enqueue(message, payload, targets, due, waiting, delivery_id)
    else:
        broker.enqueue(message, payload, targets, due)
    if (owner.size >= owner.limit or owner.count >= owner.limit_count) and _blocks(broker, owner, front):
        broker.block(owner)
    return verdict


def _can_page(broker: Broker, front: Front) -> bool:
    return broker.pager is not None or (front.durable and broker.store is not None)


def _blocks(broker: Broker, owner: BrokerAddress, front: Front) -> bool:
    policy = owner.settings.full_policy
    return policy == "BLOCK" or (policy == "PAGE" and not _can_page(broker, front))


def _refusal(broker: Broker, owner: BrokerAddress, front: Front, size: int) -> Verdict | None:
    """What the address's policy says now that it (or the broker, or the disk) is full. None: there is room all the
    same; ACCEPT: drop the message. Raises BrokerError where it is to be rejected."""
    if broker.disk_full and front.durable:
        raise errors.no_space()
    beyond = broker.size + size > broker.capacity
    if not beyond and not broker.is_full(owner):
        return None
    settings = owner.settings
    policy = settings.full_policy
    if policy == "PAGE" and _can_page(broker, front):
        if beyond:
            policy = broker.capacity_policy
        elif 0 <= settings.page_limit_bytes <= owner.size:
            policy = settings.page_full_policy or "FAIL"
        else:
            return None
    if policy == "DROP":
        return ACCEPT
    if policy == "FAIL":
        raise errors.address_full(owner.name)
    # BLOCK: senders get no more credit; what they had was granted before, and is honoured up to a hard limit.
    broker.block(owner)
    if 0 <= settings.reject_threshold < owner.size + size:
        raise errors.address_full(owner.name)
    limit = min(broker.capacity, broker.global_max_size if broker.global_max_size >= 0 else UNLIMITED)
    if owner.size + size > 2 * owner.limit + _HARD_LIMIT_SLACK or broker.size + size > 2 * limit + _HARD_LIMIT_SLACK:
        return RELEASE
    return None


def full_policy(broker: Broker, owner: BrokerAddress) -> str:
    """What would become of the next durable message: FAIL, BLOCK or DROP as the address is full, DISK where the disk
    is; empty: it is taken. The same rules as `_refusal`'s, without their effects.
    """
    if broker.disk_full and broker.store is not None:
        return "DISK"
    beyond = broker.size >= broker.capacity
    if not beyond and not broker.is_full(owner):
        return ""
    settings = owner.settings
    policy = settings.full_policy
    if policy == "PAGE" and (broker.pager is not None or broker.store is not None):
        if beyond:
            policy = broker.capacity_policy
        elif 0 <= settings.page_limit_bytes <= owner.size:
            policy = settings.page_full_policy or "FAIL"
        else:
            policy = ""
    return "BLOCK" if policy == "PAGE" else policy


def _is_duplicate(broker: Broker, owner: BrokerAddress, key: bytes) -> bool:
    if broker.duplicates.seen(owner, key):
        return True
    return broker.store is not None and bool(owner.id) and broker.store.seen(owner.id, key)


def _unrouted(broker: Broker, owner: BrokerAddress, payload: bytes, front: Front) -> Verdict:
    owner.unrouted += 1
    settings = owner.settings
    if settings.send_to_dla_on_no_route and settings.dead_letter_address not in (None, owner.name):
        assert settings.dead_letter_address is not None
        if broker.put(settings.dead_letter_address, payload, durable=front.durable, priority=front.priority):
            return ACCEPT
    # A topic without subscribers has done its work. A queue's address without its queue has not: the sender keeps it.
    return ACCEPT if "MULTICAST" in owner.routing_types else RELEASE
