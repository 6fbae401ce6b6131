"""The listings of a broker's management (`listQueues`, `listConnections` … of Apache ActiveMQ Artemis): rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from enmasse.control.management import Artemis, Reply
from enmasse.storage.decoding import decode

_ALL = json.dumps({"field": "", "operation": "", "value": "", "sortOrder": "", "sortBy": "", "sortColumn": ""})
PAGE = (1, 2147483647)
"""Number and size of the one page that has all rows."""
EVERYTHING = (_ALL, *PAGE)
"""Filter, page and page size of a listing that leaves nothing out."""


class QueueRow(msgspec.Struct):
    """Columns of listQueues that are used; Artemis gives every value as a string."""

    name: str
    address: str = ""
    routingType: str = ""
    user: str = ""
    temporary: str = "false"
    durable: str = "true"
    internalQueue: str = "false"
    messageCount: str = "0"
    consumerCount: str = "0"
    deliveringCount: str = "0"
    scheduledCount: str = "0"
    messagesAdded: str = "0"
    messagesAcked: str = "0"
    messagesExpired: str = "0"
    messagesKilled: str = "0"
    """Dead letters, and messages that management has removed."""
    messagesLost: str = "0"
    """Lost by damage to the broker's files. Stock brokers do not have it, nor the next."""
    stalled: str = "false"
    """Whether the queue does not deliver, because a message cannot be read."""


class AddressRow(msgspec.Struct):
    """Columns of listAddresses that are used; `routingTypes` is JSON in a string: `["ANYCAST"]`."""

    name: str
    routingTypes: str = ""
    autoCreated: str = "false"
    temporary: str = "false"
    internal: str = "false"
    routedMessageCount: str = "0"
    """Messages that came since the broker started and went to a queue of this address; that and the next make all.
    (To a queue of another address, by a divert, is not "routed".) Only Artemis has them."""
    unroutedMessageCount: str = "0"
    addressSize: str = "0"
    """Bytes of messages that came to it and are still held, in whichever queue."""
    full: str = ""
    """Treatment of the next message (docs/contracts.md); empty: it is accepted. Stock brokers lack this column."""


LARGEST = 2**50
"""Largest number that is taken from a broker: sums of thousands of such ones still have 64 bits."""
Number = int | str
"""A number as such or as text: columns and releases of Artemis differ. See `number`."""


class ConnectionRow(msgspec.Struct):
    """Columns of listConnections that are used."""

    connectionID: str
    remoteAddress: str | None = ""
    localAddress: str | None = ""
    users: str | None = ""
    """Users of its sessions, with commas between; empty without a session."""
    creationTime: str | None = ""
    """As Java's Date writes it, in the broker's time zone: `Fri Nov 27 23:46:07 UTC 2026`."""
    protocol: str | None = ""
    clientID: str | None = ""


class ConsumerRow(msgspec.Struct):
    """Columns of listConsumers that are used. It belongs to the connection with the same addresses."""

    id: Number
    queue: str | None = ""
    address: str | None = ""
    localAddress: str | None = ""
    remoteAddress: str | None = ""
    messagesInTransit: Number = 0
    messagesDelivered: Number = 0
    messagesDeliveredSize: Number = 0


class ProducerRow(msgspec.Struct):
    """Columns of listProducers that are used. It belongs to the connection with the same addresses."""

    id: Number
    name: str | None = ""
    address: str | None = ""
    localAddress: str | None = ""
    remoteAddress: str | None = ""
    msgSent: Number = 0
    msgSizeSent: Number = 0


P = TypeVar("P")
R = TypeVar("R")


class ListingPage(msgspec.Struct, Generic[R]):
    """A page of a listing. `count`: of the rows on all pages."""

    data: list[R]
    count: int = 0

    @property
    def whole(self) -> bool:
        """Whether there are no other pages."""
        return self.count <= len(self.data)


class _QueuePage(msgspec.Struct):
    data: list[QueueRow]


class _AddressPage(msgspec.Struct):
    data: list[AddressRow]


class Listings:
    """The listings of one moment. Equal digests: nothing differs (within this process)."""

    def __init__(self, node: Artemis, queues: Reply, addresses: Reply) -> None:
        self.digest = node.digest(queues), node.digest(addresses)
        self._queues = queues
        self._addresses = addresses

    def rows(self) -> tuple[list[QueueRow], list[AddressRow]]:
        """Decodes them. Raises RequestFailed, ControlError; ValueError if they are not what Artemis answers."""
        return queue_rows(_text(self._queues)), address_rows(_text(self._addresses))


async def read_rows(node: Artemis, queues: Sequence[str], addresses: str) -> tuple[list[QueueRow], list[AddressRow]]:
    """Read the queues that one of these filters takes, and the addresses that the other one takes. Raises ControlError;
    ValueError if it is not what Artemis answers."""
    *replies, other = await asyncio.gather(
        *(node.ask("broker", "listQueues", each, *PAGE) for each in queues),
        node.ask("broker", "listAddresses", addresses, *PAGE),
    )
    return [row for each in replies for row in queue_rows(_text(each))], address_rows(_text(other))


async def read_listings(node: Artemis) -> Listings:
    """Read both listings. Raises ControlError."""
    return Listings(
        node,
        *await asyncio.gather(
            node.ask("broker", "listQueues", *EVERYTHING), node.ask("broker", "listAddresses", *EVERYTHING)
        ),
    )


def queue_rows(text: str) -> list[QueueRow]:
    """Rows of listQueues' JSON text. Raises msgspec.DecodeError (a ValueError)."""
    return decode(text, _QueuePage).data


def address_rows(text: str) -> list[AddressRow]:
    """Rows of listAddresses' JSON text. Raises msgspec.DecodeError (a ValueError)."""
    return decode(text, _AddressPage).data


async def read_page(node: Artemis, listing: str, page: type[P], most: int) -> P:
    """Read the first `most` rows of a listing (`listConnections`), the oldest first. Raises ControlError; ValueError if
    it is not what Artemis answers."""
    return decode(_text(await node.ask("broker", listing, "", 1, most)), page)


def number(value: Any) -> int:
    """Return a number that management gives as such or as text, from 0 to LARGEST. Raises ValueError."""
    if not isinstance(value, int | str):
        raise ValueError(f"its management answers {type(value).__name__} where a number is expected")
    return min(max(0, int(value)), LARGEST)


def _text(reply: Reply) -> str:
    found = Artemis.result(reply)
    if not isinstance(found, str):
        raise ValueError("its management does not answer as Artemis' does")
    return found
