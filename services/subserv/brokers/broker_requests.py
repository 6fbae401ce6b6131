"""Requests to a broker's management (`activemq.management`, as Apache ActiveMQ Artemis has it)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from enmasse.control import Artemis, ControlConnection, ControlError, Reply, RequestFailed
from enmasse.control.listings import EVERYTHING, QueueRow
from enmasse.identity.annotations import ORIGINAL_ADDRESS, ORIGINAL_QUEUE, RETAIN, RETAINED_FOR
from enmasse.storage.decoding import decode
from services.subserv import broker_names

ERRORS = (ControlError, ValueError, OSError)
"""Errors after which it is unknown whether the request was executed."""
FINE = ("AMQ229019", "AMQ229017", "AMQ229012")
"""Codes of refusals because the entity exists already, or no longer exists: the desired state."""
RETAINED_ONLY = f'"m.{RETAIN}" = TRUE AND "m.{RETAINED_FOR}" IS NULL'
"""Filter of the feed: what is published as retained, and no copies of it."""
FEED_ONLY = f'{RETAINED_ONLY} AND "m.{ORIGINAL_QUEUE}" IS NULL'
"""Filter of the divert that leads to the feed: all that is sent, and not what a divert has copied. (The feed's own
address is covered by its pattern; Artemis would lead the copies there again, without end.)"""
MAX_MESSAGES = 100_000
MAX_BYTES = 64 * 1024 * 1024
"""Bytes of messages that wait in one queue of a subscriber; beyond, newer ones replace the oldest. So a disconnected
client fills no broker and blocks no publisher."""
SETTINGS = {
    "maxDeliveryAttempts": -1,
    "maxSizeBytes": MAX_BYTES,
    # Not DROP: it would apply to all queues as soon as the memory of the broker is full, of other messages too.
    "addressFullMessagePolicy": "PAGE",
    "pageLimitBytes": MAX_BYTES,
    "pageFullMessagePolicy": "DROP",
    "defaultRingSize": MAX_MESSAGES,
    "autoCreateQueues": False,
    "autoCreateAddresses": False,
    "autoDeleteQueues": False,
    "autoDeleteAddresses": False,
}
"""Settings of all queues of subscribers: messages are kept until the session ends."""
FEED_SETTINGS = {"maxSizeBytes": -1, "pageLimitBytes": -1, "defaultRingSize": -1}
"""Settings of the feed of retained messages: it loses nothing."""

K = TypeVar("K")


class Row(QueueRow):
    """Further fields of a row of listQueues."""

    paused: str = "false"
    filter: str | None = None

    @property
    def is_durable_subscription(self) -> bool:
        """Whether it is the durable subscription of an AMQP client, which the broker keeps by itself."""
        lasts = self.durable == "true" and self.temporary != "true" and self.internalQueue != "true"
        return lasts and self.routingType == "MULTICAST" and not self.address.startswith(("$", "activemq."))


def retained_as(name: str) -> str:
    """Return the selector of messages that were published to a name as retained. `to` counts only in messages that
    brokers have left as they came: a sender states it."""
    text, came_as = name.replace("'", "''"), f'"m.{ORIGINAL_ADDRESS}"'
    return f"({came_as} = '{text}' OR ({came_as} IS NULL AND JMSDestination = '{text}')) AND {RETAINED_ONLY}"


class _Page(msgspec.Struct):
    data: list[Row]


class BrokerListing(NamedTuple):
    """Every queue and the name of every divert of a broker."""

    queues: list[Row]
    diverts: list[str]


class BrokerManagement:
    """One broker's management. Requests leave in the order of the calls, and the broker serves them in this order; each
    gives a future of the reply (`outcomes`). The others raise RequestFailed if the broker refuses, ControlError if it
    does not answer, or not as it should.
    """

    def __init__(self, broker: str, suite: str, connection: ControlConnection) -> None:
        self._broker = broker
        self._feed = broker_names.of_suite(broker_names.FEED, suite)
        self._node = Artemis(connection)

    async def opened(self) -> None:
        """Wait until requests can be sent. Raises ControlError."""
        await self._node.opened()

    def close(self) -> None:
        """Close the links; requests without an answer fail."""
        self._node.close()

    async def configure(self) -> None:
        """Apply the settings of session queues, and make the feed of retained messages with its divert.

        Raises RequestFailed.
        """
        await self._node.invoke("broker", "addAddressSettings", "$sub/#", json.dumps(SETTINGS))
        feed = broker_names.queue_name(self._broker, self._feed)
        await self._node.invoke("broker", "addAddressSettings", feed, json.dumps({**SETTINGS, **FEED_SETTINGS}))
        made = await outcomes(
            [("queue", self.create(self._feed, 0)), ("divert", self.divert(self._feed, "#", FEED_ONLY))]
        )
        if made:
            raise RequestFailed(0, f"{feed} cannot be made: {next(iter(made.values()))}")

    def create(self, id: str, created: int) -> asyncio.Future[Reply]:
        """Create a subscriber's queue; that of a shared subscription takes any number of consumers."""
        name = broker_names.queue_name(self._broker, id)
        configuration = {
            "name": name,
            "address": name,
            "routing-type": "ANYCAST",
            "durable": True,
            "max-consumers": -1 if id.startswith("share.") else 1,
            "user": broker_names.mark(id, created),
            "auto-create-address": True,
        }
        return self._ask("createQueue", json.dumps(configuration))

    def destroy(self, id: str) -> asyncio.Future[Reply]:
        """Delete the queue with the messages that it holds; its consumers are ended."""
        return self._ask("destroyQueue", broker_names.queue_name(self._broker, id), True, True)

    def divert(self, id: str, pattern: str, filter: str | None = None) -> asyncio.Future[Reply]:
        """Copy messages that match a pattern into the subscriber's queue, or those of them that `filter` selects."""
        name, queue = broker_names.divert_name(id, pattern), broker_names.queue_name(self._broker, id)
        return self._ask("createDivert", name, name, pattern, queue, False, filter, None, "ANYCAST")

    def undivert(self, id: str, pattern: str) -> asyncio.Future[Reply]:
        """End the copying of messages that match this pattern."""
        return self._ask("destroyDivert", broker_names.divert_name(id, pattern))

    def pause(self, id: str) -> asyncio.Future[Reply]:
        """Pause the delivery of a queue until it is resumed."""
        return self._node.ask(f"queue.{broker_names.queue_name(self._broker, id)}", "pause")

    def resume(self, id: str) -> asyncio.Future[Reply]:
        """Resume the delivery of a paused queue."""
        return self._node.ask(f"queue.{broker_names.queue_name(self._broker, id)}", "resume")

    async def depth(self, id: str) -> int:
        """Return the number of messages in a subscriber's queue."""
        return await self.depth_of_queue(broker_names.queue_name(self._broker, id))

    async def depth_of_queue(self, name: str) -> int:
        """Return the number of messages in the queue of this name."""
        return int(await self._node.attribute(f"queue.{name}", "messageCount"))

    async def live(self, id: str, name: str) -> int:
        """Return the number of messages in a subscriber's queue that were published to this name as retained,
        without copies of retained messages."""
        queue = f"queue.{broker_names.queue_name(self._broker, id)}"
        return int(await self._node.invoke(queue, "countMessages", retained_as(name)))

    async def listing(self) -> BrokerListing:
        """Return all queues and diverts of the broker. Raises ControlError, ValueError."""
        queues, diverts = await asyncio.gather(
            self._node.invoke("broker", "listQueues", *EVERYTHING),
            self._node.invoke("broker", "getDivertNames"),
        )
        if not isinstance(queues, str) or not isinstance(diverts, list):
            raise ValueError("its management does not answer as Artemis' does")
        return BrokerListing(decode(queues, _Page).data, [str(name) for name in diverts])

    async def destroy_named(self, queue: str) -> None:
        """Delete any queue by its name."""
        await self._node.invoke("broker", "destroyQueue", queue, True, True)

    def _ask(self, operation: str, *arguments: object) -> asyncio.Future[Reply]:
        return self._node.ask("broker", operation, *arguments)


async def outcomes(under_way: Sequence[tuple[K, asyncio.Future[Reply]]]) -> dict[K, str]:
    """Wait for all replies. Return key → reason of each refusal. Raises ControlError or ValueError if an outcome is
    unknown."""
    replies = await asyncio.gather(*(work for _, work in under_way), return_exceptions=True)
    refused: dict[K, str] = {}
    for (key, _), reply in zip(under_way, replies, strict=True):
        if isinstance(reply, BaseException):
            raise reply
        try:
            Artemis.result(reply)
        except RequestFailed as error:
            if not error.description.startswith(FINE):
                refused[key] = error.description[:300]
    return refused
