"""Connections and links at an Artemis broker, as rows of its live state, from the first page of each listing."""

from __future__ import annotations

import asyncio
import calendar
import time
from typing import NamedTuple

from enmasse.control import Artemis, ControlConnection, ControlError
from enmasse.control.errors import MESSAGE_SIZE
from enmasse.control.listings import (
    ConnectionRow,
    ConsumerRow,
    ListingPage,
    ProducerRow,
    number,
    read_page,
)
from enmasse.engines.moved import Carried, Moved
from enmasse.live_state import Row
from enmasse.logs import log

CONNECTIONS, LINKS = 1000, 2000
"""Rows of a listing that are asked for, the oldest first. LINKS: of consumers, and of producers."""
MAX_TEXT = 250
"""Characters of a text that a peer states."""
ANONYMOUS = "ANONYMOUS"
"""Address of a producer that states one with each message."""

Rows = dict[str, dict[str, Row]]
"""`connections` and `links`: id → row."""
NOTHING: Rows = {"connections": {}, "links": {}}


class Listed(NamedTuple):
    """The listings of one moment."""

    connections: ListingPage[ConnectionRow]
    consumers: ListingPage[ConsumerRow]
    producers: ListingPage[ProducerRow]


class ClientListings:
    """Asks the broker `name` for connections and links. Answers that cannot be used concern nothing else: it has
    management links of its own. `inside`: only processes of the suite can connect to this broker."""

    def __init__(self, connection: ControlConnection, name: str, *, inside: bool) -> None:
        self._connection = connection
        self._name = name
        self._table = ClientTable(inside=inside)
        self._node: Artemis | None = None
        self._part = 1
        """Pages are smaller by this factor than CONNECTIONS and LINKS."""
        self._failing = False

    async def look(self) -> Rows:
        """Return the rows of now, none if the broker does not tell them."""
        try:
            if self._node is None:
                self._node = await Artemis(self._connection).opened()
            rows = self._table.rows(await self._listed(self._node))
        except (ControlError, ValueError) as error:
            self._fail(error)
            return NOTHING
        self._part, self._failing = max(1, self._part // 2), False
        return rows

    def close(self) -> None:
        """Close the management links."""
        if self._node is not None:
            self._node.close()
            self._node = None

    async def _listed(self, node: Artemis) -> Listed:
        connections, links = CONNECTIONS // self._part, LINKS // self._part
        return Listed(
            *await asyncio.gather(
                read_page(node, "listConnections", ListingPage[ConnectionRow], connections),
                read_page(node, "listConsumers", ListingPage[ConsumerRow], links),
                read_page(node, "listProducers", ListingPage[ProducerRow], links),
            )
        )

    def _fail(self, error: ControlError | ValueError) -> None:
        self.close()
        if isinstance(error, ControlError) and error.condition == MESSAGE_SIZE:
            self._part = min(CONNECTIONS, 4 * self._part)  # texts of clients are long: fewer rows
        if not self._failing:
            self._failing = True
            log.get(broker=self._name).warning("live.connections.unknown", reason=str(error)[:MAX_TEXT])


class ClientTable:
    """Rows from listings. Keeps what connections have carried. Pure."""

    def __init__(self, *, inside: bool) -> None:
        self._inside = inside
        self._moved = Moved("in", "bytesIn", "out", "bytesOut")

    def rows(self, listed: Listed) -> Rows:
        """Return the rows. Raises ValueError for what is no number."""
        connections = {each.connectionID: each for each in listed.connections.data}
        found: dict[tuple[str | None, str | None], str | None] = {}
        for id, each in connections.items():
            ends = each.localAddress, each.remoteAddress
            found[ends] = None if ends in found else id  # within the broker's process many have the same
        links: dict[str, Row] = {}
        for producer in listed.producers.data:
            of = found.get((producer.localAddress, producer.remoteAddress))
            if of is not None:
                links[f"in-{_text(producer.id)}"] = _producer(of, producer)
        for consumer in listed.consumers.data:
            of = found.get((consumer.localAddress, consumer.remoteAddress))
            if of is not None:
                links[f"out-{_text(consumer.id)}"] = _consumer(of, consumer)
        if listed.producers.whole and listed.consumers.whole:
            self._moved.take((_carried(id, row) for id, row in links.items()), connections.keys())
        return {"connections": {id: self._connection(each) for id, each in connections.items()}, "links": links}

    def _connection(self, row: ConnectionRow) -> Row:
        return {
            "protocol": _text(row.protocol).lower(), "container": _text(row.clientID), "user": _text(row.users) or None,
            "peer": _text(row.remoteAddress), "inside": self._inside, "opened": moment(row.creationTime or ""),
            **self._moved.of(row.connectionID),
        }  # fmt: skip


def _producer(connection: str, row: ProducerRow) -> Row:
    address = None if row.address == ANONYMOUS else _text(row.address) or None
    return {
        "connection": connection, "name": _text(row.name), "dir": "in", "address": address,
        "count": number(row.msgSent), "bytes": number(row.msgSizeSent),
    }  # fmt: skip


def _consumer(connection: str, row: ConsumerRow) -> Row:
    return {
        "connection": connection, "dir": "out",
        "address": _text(row.address) or None, "queue": _text(row.queue) or None,
        "count": number(row.messagesDelivered), "bytes": number(row.messagesDeliveredSize),
        "unsettled": number(row.messagesInTransit),
    }  # fmt: skip


def _carried(id: str, row: Row) -> Carried:
    size = "bytesIn" if row["dir"] == "in" else "bytesOut"
    return id, row["connection"], {row["dir"]: row["count"], size: row["bytes"]}


def _text(value: str | int | None) -> str:
    return "" if value is None else str(value)[:MAX_TEXT]


def moment(text: str) -> float | None:
    """Return the time (seconds since 1970) that Java's Date has written as `Fri Nov 27 23:46:07 UTC 2026`; None if its
    zone is neither UTC nor that of this process, or it is no such text."""
    try:
        found = time.strptime(text, "%a %b %d %H:%M:%S %Z %Y")
        return float(calendar.timegm(found) if " UTC " in text or " GMT " in text else time.mktime(found))
    except (ValueError, OverflowError):
        return None
