"""Live state of Artemis, which does not offer `$live`: its listings are read every few seconds.

Asked for is only what has messages, consumers or a history, so an address that was never used costs nothing.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable

from enmasse.control import Artemis, ControlConnection, ControlError, RequestFailed
from enmasse.control.errors import DECODE_ERROR
from enmasse.control.listings import AddressRow, QueueRow, number, read_rows
from enmasse.engines.artemis.client_rows import MAX_TEXT, NOTHING, ClientListings, Rows
from enmasse.live_state import Row
from enmasse.logs import log

POLL = 3.0
SHARE = 20
"""A look takes at most a twentieth of the time: with very many addresses there are fewer looks."""
ASKED = 100
"""Queues that are asked in a look for their oldest message, those that have changed first."""


async def poll_broker(connection: ControlConnection, name: str, take: Callable[[Row], None], *, inside: bool) -> None:
    """Ask the broker `name` until the connection is lost. `take` gets messages of live state, the first one full.
    `inside`: only processes of the suite can connect to this broker. Raises ControlError."""
    node = await Artemis(connection).opened()
    state, clients = ReportedState(name), ClientListings(connection, name, inside=inside)
    loop = asyncio.get_running_loop()
    try:
        while True:
            began = loop.time()
            queues, addresses = await _listed(node)
            await state.ask(node, queues)
            take(state.news(queues, addresses, await clients.look()))
            await asyncio.sleep(max(POLL, SHARE * (loop.time() - began)))
    except ValueError as error:
        log.get(broker=name).warning("live.answer.unreadable", reason=str(error)[:MAX_TEXT])
        raise ControlError(DECODE_ERROR, f"{name}: its management does not answer as Artemis' does") from None
    finally:
        node.close()
        clients.close()


async def _listed(node: Artemis) -> tuple[dict[str, QueueRow], dict[str, AddressRow]]:
    """Return the queues that have been used, and the addresses. Raises ControlError; ValueError if it is not what
    Artemis answers."""
    columns = ("messagesAdded", "messageCount", "consumerCount")
    queues, addresses = await read_rows(node, [_above_0(column) for column in columns], _above_0("routedMessageCount"))
    return (
        {each.name: each for each in queues if each.temporary != "true" and each.internalQueue != "true"},
        {each.name: each for each in addresses if each.temporary != "true" and each.internal != "true"},
    )


def _above_0(column: str) -> str:
    return json.dumps(
        {"field": column, "operation": "GREATER_THAN", "value": "0", "sortOrder": "", "sortBy": "", "sortColumn": ""}
    )


class ReportedState:
    """The rows of a broker that were reported last, and the times of the oldest messages."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._run = secrets.token_hex(8)
        self._started = time.time()
        self._reported: dict[str, dict[str, Row]] | None = None
        self._queues: dict[str, QueueRow] = {}
        self._due: dict[str, None] = {}
        self._oldest: dict[str, tuple[float | None, int]] = {}

    async def ask(self, node: Artemis, queues: dict[str, QueueRow]) -> None:
        """Ask queues that have changed for their oldest message and their bytes, some of them in each look. Raises
        ControlError; ValueError for what is no number."""
        for name, queue in queues.items():
            if queue != self._queues.get(name):
                if queue.messageCount == "0":
                    self._due.pop(name, None)
                    self._oldest[name] = None, 0
                else:
                    self._due[name] = None
        self._queues = queues
        for known in (self._due, self._oldest):
            for name in known.keys() - queues.keys():
                del known[name]
        asked = list(self._due)[:ASKED]
        for name, answer in zip(asked, await asyncio.gather(*(_oldest(node, name) for name in asked)), strict=True):
            self._oldest[name] = answer
            del self._due[name]

    def news(self, queues: dict[str, QueueRow], addresses: dict[str, AddressRow], clients: Rows = NOTHING) -> Row:
        """Return what has changed as a message of live state. Raises ValueError for what is no number."""
        now = {
            "queues": {name: self._queue(each) for name, each in queues.items()},
            "addresses": {name: {"in": number(each.routedMessageCount)} for name, each in addresses.items()},
            **clients,
        }
        reported, self._reported = self._reported, now
        before = reported or {kind: {} for kind in now}
        return {
            "schema": 1, "component": self._name, "kind": "broker", "run": self._run, "started": self._started,
            "at": time.time(), "full": reported is None, "complete": True,
            "removed": {kind: sorted(before[kind].keys() - rows.keys()) for kind, rows in now.items()},
            **{
                kind: {id: row for id, row in rows.items() if before[kind].get(id) != row}
                for kind, rows in now.items()
            },
        }  # fmt: skip

    def _queue(self, queue: QueueRow) -> Row:
        oldest, size = self._oldest.get(queue.name, (None, None))
        row: Row = {
            "address": queue.address, "routingType": queue.routingType,
            "messages": number(queue.messageCount), "delivering": number(queue.deliveringCount),
            "scheduled": number(queue.scheduledCount), "consumers": number(queue.consumerCount),
            "in": number(queue.messagesAdded), "out": number(queue.messagesAcked),
            "expired": number(queue.messagesExpired), "deadLettered": number(queue.messagesKilled), "oldest": oldest,
        }  # fmt: skip
        return row if size is None else row | {"bytes": size}


async def _oldest(node: Artemis, queue: str) -> tuple[float | None, int]:
    """Return when the sender made the first message (seconds since 1970; None: it did not state it), and the bytes of
    all. Raises ControlError but RequestFailed: a queue may have gone; ValueError for what is no number."""
    try:
        first, size = await asyncio.gather(
            node.attribute(f"queue.{queue}", "firstMessageTimestamp"),
            node.attribute(f"queue.{queue}", "persistentSize"),
        )
    except RequestFailed:
        return None, 0
    return round(number(first) / 1000, 1) if first else None, number(size)
