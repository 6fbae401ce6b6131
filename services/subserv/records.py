"""Stored form of sessions, subscriptions and retained messages: tables, keys, values (MessagePack). Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from enmasse.identity.authors import Author
from enmasse.model.sessions import NEVER, Outgoing
from enmasse.stores import Change

SESSIONS = "subserv-sessions"
"""client → SessionRecord"""
FILTERS = "subserv-filters"
"""Length of the client, blank, client, filter → its Subscription."""
PACKETS = "subserv-packets"
"""`in` or `out`, packet id, client, joined by blanks → the duplicate id, or an OutgoingRecord."""
HELD = "subserv-held"
"""packet id, client, joined by a blank → the AMQP message of an exchange, until the client has it."""
ENDED = "subserv-ended"
"""identity, source, joined by a blank → nothing: a message that one session has had, and the broker may still have."""
RETURNED = "subserv-returned"
"""identity, source, joined by a blank → an AMQP message that goes back to its queue."""
AMQP = "subserv-subscriptions"
"""subscription id → AmqpRecord"""
RETAINED = "subserv-retained"
"""name on AMQP → RetainedRecord"""
DELETED = "subserv-deleted"
"""name on AMQP → broker from which the deletion of its retained message came, while older ones may come from others."""
STATE = "subserv-state"
"""`lives`, `earlier-shares` (MessagePack) and `number` (decimal): see services/subserv/suite_queues.py; `seal`: key of
enmasse/identity/seals.py.
Earlier versions wrote `start`, how often the service has started (decimal)."""


class SessionRecord(msgspec.Struct, kw_only=True, frozen=True):
    """A session. `created`: the epoch with which it began. `since`, `ends`: seconds since 1970; `ends` None while it is
    connected, and if it never ends. `round`: counts completed subscribes.
    `groups`: as in Author, of the user that opened it last.
    """

    client: str
    created: int
    epoch: int
    protocol: int
    expiry: int
    connected: bool
    gateway: str
    peer: str
    will: bool
    since: float
    ends: float | None = None
    round: int = 0
    groups: tuple[str, ...] | None = None


class AmqpRecord(msgspec.Struct, kw_only=True, frozen=True):
    """A subscription made over `$subctrl`. `filters`: filter → tag, None if it has none."""

    subscription: str
    created: int
    since: float
    round: int = 0
    filters: dict[str, str | None] = {}


class OutgoingRecord(msgspec.Struct, array_like=True, frozen=True):
    """`order` keeps the messages of a client in their order. `held`: bytes of the AMQP message, which is in HELD."""

    order: int
    message: Outgoing
    held: int = 0


class RetainedRecord(msgspec.Struct, array_like=True, frozen=True):
    """`number` grows with each message that is stored; times are milliseconds since 1970 (`expires` 0: never).
    `author`: the user that published it; None: not stated. `topic`: of MQTT, if it lacked the name of the address."""

    broker: str
    number: int
    since: int
    expires: int
    qos: int
    message: bytes
    author: Author | None = None
    topic: str = ""


def put(table: str, key: str, value: msgspec.Struct) -> Change:
    """Return the change that stores a value."""
    return Change(table, key, msgspec.msgpack.encode(value))


def remove(table: str, key: str) -> Change:
    """Return the change that removes a key, if present."""
    return Change(table, key, None)


def received_key(client: str, pid: int) -> str:
    """Return the key of a packet id that a client has used."""
    return f"in {pid} {client}"


def sent_key(client: str, pid: int) -> str:
    """Return the key of a packet id that was used towards a client."""
    return f"out {pid} {client}"


def held_key(client: str, pid: int) -> str:
    """Return the key of a message that is kept until its exchange has ended."""
    return f"{pid} {client}"


def ended_key(source: str, identity: str) -> str:
    """Return the key of a message that a group has completed: the source it came from, and its identity there."""
    return f"{identity} {source}"


def ended_message(key: str) -> tuple[str, str]:
    """Return source and identity from a key."""
    identity, _, source = key.partition(" ")
    return source, identity


def filter_key(client: str, filter: str) -> str:
    """Return the key of a subscription. The length keeps clients apart whose names begin alike."""
    return f"{len(client)} {client}{filter}"


def client_of_filter(key: str) -> str:
    """Return the client in the key of a filter. Raises ValueError."""
    length, _, rest = key.partition(" ")
    return rest[: int(length)]


def packet_key(key: str) -> tuple[str, int, str]:
    """Return direction (`in` or `out`), packet id and client from a key. Raises ValueError."""
    kind, pid, client = key.split(" ", 2)
    return kind, int(pid), client


def packets_gone(client: str, received: Iterable[int], sent: Iterable[int]) -> list[Change]:
    """Return the changes that delete these packet ids."""
    return [remove(PACKETS, received_key(client, pid)) for pid in received] + [
        remove(PACKETS, sent_key(client, pid)) for pid in sent
    ]


def end_of(expiry: int, now: float) -> float | None:
    """Return when a session that is disconnected now ends."""
    return None if expiry == NEVER else now + expiry
