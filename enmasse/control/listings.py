"""The listings of a broker's management (`listQueues`, `listAddresses` of Apache ActiveMQ Artemis): rows."""

from __future__ import annotations

import asyncio
import json

import msgspec

from enmasse.control.management import Artemis, Reply
from enmasse.decoding import decode

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


def _text(reply: Reply) -> str:
    found = Artemis.result(reply)
    if not isinstance(found, str):
        raise ValueError("its management does not answer as Artemis' does")
    return found
