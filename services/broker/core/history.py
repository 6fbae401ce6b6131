"""Counters of queues and addresses that have gone, by the configured address they belonged to: so the counters of
a topic do not fall when a subscription ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.queues.queue import Queue

OF_ADDRESSES: Final = ("routed", "bytes_routed", "unrouted")
OF_QUEUES: Final = (
    "acknowledged", "bytes_acknowledged", "rejected", "redelivered", "expired", "killed", "replaced", "lost",
)  # fmt: skip
FIELDS: Final = (*OF_ADDRESSES, *OF_QUEUES)
MAX_NAMES: Final = 10_000
"""Addresses of which something is kept; the one that changed longest ago goes."""


class History:
    """`ended`: name of a configured address → counters in the order of FIELDS."""

    def __init__(self) -> None:
        self.ended: dict[str, list[int]] = {}

    def queue_over(self, queue: Queue) -> None:
        """Keep what a queue has counted."""
        self._add(queue.address.root, {field: getattr(queue, field) for field in OF_QUEUES})

    def address_over(self, address: BrokerAddress) -> None:
        """Keep what an address below another one has counted; with a configured one its history goes."""
        if address.root is address:
            self.ended.pop(address.name, None)
        else:
            self._add(address.root, {field: getattr(address, field) for field in OF_ADDRESSES})

    def _add(self, root: BrokerAddress, counted: Mapping[str, int]) -> None:
        if not root.explicit or not any(counted.values()):
            return
        known = self.ended.pop(root.name, None) or [0] * len(FIELDS)
        self.ended[root.name] = [n + counted.get(field, 0) for field, n in zip(FIELDS, known, strict=True)]
        if len(self.ended) > MAX_NAMES:
            del self.ended[next(iter(self.ended))]
