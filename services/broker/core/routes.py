"""Where a message sent to a name goes: worked out once per name, kept until a binding changes."""

from __future__ import annotations

from services.broker.core.broker_address import BrokerAddress
from services.broker.core.properties import property_lookup
from services.broker.core.queue import Queue
from services.broker.core.stored_message import StoredMessage


class Route:
    """Queues for one name and kind ("ANYCAST", "MULTICAST", or both: None).

    One anycast queue in turn and every multicast queue get a message. `stored` are the ids of the durable ones among
    the targets; where `plain`, targets and `stored` are the same for every message.
    """

    __slots__ = ("anycast", "multicast", "owner", "plain", "single", "stored", "targets", "turn", "version")

    def __init__(self, owner: BrokerAddress, anycast: list[Queue], multicast: list[Queue], version: int) -> None:
        self.owner = owner
        self.anycast = anycast
        self.multicast = multicast
        self.version = version
        self.turn = 0
        self.targets = [*anycast[:1], *multicast]
        self.stored = [queue.id for queue in self.targets if queue.durable]
        self.plain = len(anycast) <= 1 and not any(
            queue.filter is not None or queue.no_local is not None for queue in self.targets
        )
        self.single = self.targets[0] if self.plain and len(self.targets) == 1 else None

    def choose(self, message: StoredMessage, origin: str) -> tuple[list[Queue], list[int]]:
        """The targets of one message sent from container `origin`, and the ids of the durable ones."""
        chosen: list[Queue] = []
        for _ in self.anycast:
            queue = self.anycast[self.turn % len(self.anycast)]
            self.turn += 1
            if wants(queue, message, origin):
                chosen.append(queue)
                break
        chosen.extend(queue for queue in self.multicast if wants(queue, message, origin))
        return chosen, [queue.id for queue in chosen if queue.durable]


def wants(queue: Queue, message: StoredMessage, origin: str) -> bool:
    if queue.no_local is not None and queue.no_local == origin:
        return False
    if queue.filter is None:
        return True
    assert message.payload is not None
    return queue.filter.matches(property_lookup(message.payload, message, queue))
