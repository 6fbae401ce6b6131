"""What a broker holds, as its management lists it, summed up per address. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from enmasse.control.listings import AddressRow, QueueRow
from enmasse.model.names import AddressName, WireName, address_name
from enmasse.text import counted

SESSIONS = "$sub/"
"""What the names of the subscription service's queues begin with. They are no addresses, but messages wait in them."""

USER = "enmasse"
"""The `user` of queues that the controller makes: the mark by which they are known again."""


class Holding(NamedTuple):
    """What lies on a broker under the name of an address.

    `messages` of a topic are those that wait in durable subscriptions; `subscriptions` counts these. `ours`: it bears
    our mark (None: that cannot be seen from the listing). `full`: what happens to the next message, if it is not taken.
    `lost`: messages lost by damage to the broker's files; `stalled`: messages wait because one cannot be read.
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
        """What people should know of messages that are lost or cannot be had; empty: there are none."""
        parts = ["messages cannot be read at the moment and wait until they can be"] if self.stalled else []
        if self.lost:
            parts.append(f"{counted(self.lost, 'message')} lost by damage to its files")
        return "; ".join(parts)


class Contents(NamedTuple):
    """One complete look at a broker. `stored`: messages in durable or lasting queues, whoever made them; those of
    sessions among them."""

    held: dict[AddressName, Holding]
    stored: int
    durable_subscriptions: int


EMPTY = Contents({}, 0, 0)
_SHARED: dict[Holding, Holding] = {}


def contents(queues: Iterable[QueueRow], addresses: Iterable[AddressRow]) -> Contents:
    """Sums the rows up. Raises ValueError if a count is not a number."""
    held: dict[AddressName, Holding] = {}
    topics = {
        address_name(WireName(row.name))
        for row in addresses
        if "MULTICAST" in row.routingTypes
        and row.autoCreated != "true"
        and row.temporary != "true"
        and row.internal != "true"
        and not _internal(row.name)
    }
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
        if name not in held:  # an address that is both is a queue that somebody gave a second routing type
            messages, consumers, durable = sums.get(name, (0, 0, 0))
            of = (full.get(name, ""), lost.get(name, 0), name in stalled)
            held[name] = share(Holding("topic", None, messages, consumers, durable, *of))
    return Contents(held, stored, subscriptions)


def root_of(address: str, topics: Collection[AddressName]) -> AddressName | None:
    """The topic that an address is or lies below (`t/a/b` below `t`); subscriptions to `t/#` lie at that address."""
    while (name := address_name(WireName(address))) not in topics:
        address, slash, _ = address.rpartition("/")
        if not slash:
            return None
    return name


def share(held: Holding) -> Holding:
    """Thousands are alike: one object for all of them."""
    if len(_SHARED) > 10_000:
        _SHARED.clear()
    return _SHARED.setdefault(held, held)


def _internal(name: str) -> bool:
    return name.startswith(("activemq.", "$", "!!"))
