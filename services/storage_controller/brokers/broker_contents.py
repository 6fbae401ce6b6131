"""Contents of a broker, summed up per address from the listings of its management. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from enmasse.control.listings import AddressRow, QueueRow
from enmasse.model.names import AddressName, WireName, address_name
from enmasse.text import counted

SESSIONS = "$sub/"
"""Prefix of the names of the subscription service's queues. They are not addresses, but hold messages."""

USER = "enmasse"
"""The `user` of queues that the controller creates: the mark by which it recognises them."""


class Holding(NamedTuple):
    """Queue or topic that a broker has under the name of an address.

    `messages` of a topic are those in its durable subscriptions; `subscriptions` counts these. `ours`: the controller
    made it (None: the listing does not show that). `full`: policy applied to the next message if there is no room.
    `lost`: messages lost by damage to the broker's files; `stalled`: delivery waits for a message that cannot be read.
    """

    kind: str
    ours: bool | None
    messages: int = 0
    consumers: int = 0
    subscriptions: int = 0
    full: str = ""
    lost: int = 0
    stalled: bool = False

    @property
    def damage(self) -> str:
        """Describe messages that are lost or unreadable, for users; empty if there are no such messages."""
        parts = ["messages cannot be read at the moment and wait until they can be"] if self.stalled else []
        if self.lost:
            parts.append(f"{counted(self.lost, 'message')} lost by damage to its files")
        return "; ".join(parts)


class BrokerContents(NamedTuple):
    """One complete listing of a broker. `stored`: messages in all durable queues that are not temporary, including
    those of MQTT sessions and those made by others."""

    held: dict[AddressName, Holding]
    stored: int
    durable_subscriptions: int


EMPTY = BrokerContents({}, 0, 0)
_SHARED: dict[Holding, Holding] = {}


def contents(queues: Iterable[QueueRow], addresses: Iterable[AddressRow]) -> BrokerContents:
    """Sum the rows up. Raises ValueError if a count is not a number."""
    addresses = list(addresses)
    held: dict[AddressName, Holding] = {}
    topics = topics_of(addresses)
    full = {address_name(WireName(row.name)): row.full for row in addresses if row.full}
    sums: dict[AddressName, list[int]] = {}
    lost: dict[AddressName, int] = {}
    stalled: set[AddressName] = set()
    stored = subscriptions = 0
    for row in queues:
        session = row.name.startswith(SESSIONS)
        if row.internalQueue == "true" or (_internal(row.name) and not session):
            continue
        messages, consumers = max(0, int(row.messageCount)), int(row.consumerCount)
        lasting = row.temporary != "true" and row.durable == "true"
        if lasting:
            stored += messages
        if session:
            continue
        if row.routingType == "MULTICAST":
            root = root_of(row.address, topics)
            if root is not None:
                lost[root] = lost.get(root, 0) + int(row.messagesLost)
                if row.stalled == "true":
                    stalled.add(root)
            total = sums.setdefault(root, [0, 0, 0]) if root is not None else [0, 0, 0]
            total[1] += consumers
            if lasting:
                subscriptions += 1
                total[0] += messages
                total[2] += 1
        elif row.name == row.address and row.temporary != "true":
            damage = (int(row.messagesLost), row.stalled == "true")
            ours = row.user == USER
            name = address_name(WireName(row.name))
            held[name] = share(Holding("queue", ours, messages, consumers, 0, full.get(name, ""), *damage))
    for name in topics:
        if name not in held:  # an address with both routing types is a queue to which a user added the second one
            messages, consumers, durable = sums.get(name, (0, 0, 0))
            of = (full.get(name, ""), lost.get(name, 0), name in stalled)
            held[name] = share(Holding("topic", None, messages, consumers, durable, *of))
    return BrokerContents(held, stored, subscriptions)


def topics_of(addresses: Iterable[AddressRow]) -> set[AddressName]:
    """Return the topics that someone has made."""
    return {
        address_name(WireName(row.name))
        for row in addresses
        if "MULTICAST" in row.routingTypes
        and row.autoCreated != "true"
        and row.temporary != "true"
        and row.internal != "true"
        and not _internal(row.name)
    }


def root_of(address: str, topics: Collection[AddressName]) -> AddressName | None:
    """Return the topic that the address is or belongs to (`t/a/b` to `t`); a subscription to `t/#` has an address
    too."""
    while (name := address_name(WireName(address))) not in topics:
        address, slash, _ = address.rpartition("/")
        if not slash:
            return None
    return name


def share(held: Holding) -> Holding:
    """Return one shared object for equal holdings, because thousands are equal."""
    if len(_SHARED) > 10_000:
        _SHARED.clear()
    return _SHARED.setdefault(held, held)


def _internal(name: str) -> bool:
    return name.startswith(("activemq.", "$"))
