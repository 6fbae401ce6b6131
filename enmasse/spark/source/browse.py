"""`spark.read.format("amqp")`: the messages of a queue, which stay there unchanged.

A read browses (AMQP 1.0, distribution mode `copy`) until nothing more is there: what arrives meanwhile may be in it.
Filters on columns that a selector of the server can compare are given to it too; Spark checks all of them again, so the
rows are the same with and without.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from enmasse.aio.client import Client, ClientReceiver, Delivery
from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import RELEASED
from enmasse.spark.errors import QueryError, plainly
from enmasse.spark.options import address_of
from enmasse.spark.receiver.outage import Phase, remedy, unreached, words
from enmasse.spark.schema.columns import decoded
from enmasse.spark.schema.message_columns import ARROW
from enmasse.spark.schema.value_column import checked
from enmasse.spark.server_options import login_of
from enmasse.spark.spool.segment import SpoolChunk

ROUND = 1000
"""Messages that are asked for at a time."""
BATCH_BYTES, BATCH_ROWS = 8 << 20, 10_000
PATIENCE = 60.0
"""Seconds that the next message, or the answer to a drain, may take."""


class BrowseError(QueryError):
    """An address could not be browsed: the text gives the reason and what to do."""


class AmqpReader(DataSourceReader):
    """The end of `read` in Spark: one task browses the address. Settings only until then."""

    def __init__(self, options: Mapping[str, str], schema: StructType | None = None) -> None:
        """`schema`: columns that are wanted; all by default. Raises OptionError."""
        self.login = login_of(options, "reader")
        self.address = address_of(options, "reader")
        self.given = options.get("selector", "")
        self.pushed = ""
        types = {field.name: field.type for field in ARROW}
        self.columns = tuple(types) if schema is None else checked(schema, types, [], "reader")

    def partitions(self) -> list[InputPartition]:
        """Return one: what several browsers of a queue see has no order that would divide it."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages as rows, in a task of Spark. Raises BrowseError."""
        with plainly(), asyncio.Runner() as runner:
            browse = Browse(self)
            try:
                runner.run(browse.open())
                while (chunk := runner.run(browse.next())).begins:
                    yield decoded(chunk).select(list(self.columns))
            except (AmqpError, OSError) as error:
                raise BrowseError(
                    f"amqp reader: the connection with {self.login.server} was lost while {self.address!r} was browsed "
                    f"({words(error)}). Read again"
                ) from None
            finally:
                runner.run(browse.close())

    @property
    def selector(self) -> str | None:
        """Return the selector of the option and that of pushed filters, together."""
        both = [text for text in (self.given, self.pushed) if text]
        return " AND ".join(f"({text})" for text in both) if len(both) > 1 else "".join(both) or None


class SelectingReader(AmqpReader):
    """A reader that gives filters to the server. Spark refuses it unless spark.sql.python.filterPushdown.enabled is
    set."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Keep what the server can select by; return all filters, which Spark checks again."""
        from enmasse.spark.source.selector import selector_of  # of classes that PySpark 4.0 lacks

        self.pushed = selector_of(filters)
        return filters


class Browse:
    """One reading of an address."""

    def __init__(self, reader: AmqpReader) -> None:
        self.reader = reader
        self.client: Client | None = None
        self.receiver: ClientReceiver
        self.offset = 0
        self.drain: asyncio.Task[None] | None = None
        self.before = 0  # messages that had come when it began

    async def open(self) -> None:
        """Attach. Raises BrowseError."""
        reader = self.reader
        url, address = reader.login.url, reader.address
        phase = Phase.CONNECT
        client = reader.login.client()
        try:
            await client.open()
            self.client, phase = client, Phase.ATTACH
            self.receiver = await client.receiver(
                address, credit=0, browse=True, selector=reader.selector, most_waiting=BATCH_BYTES
            )
        except (OSError, AmqpError, UnicodeError) as error:
            if reader.given and isinstance(error, AmqpError) and error.condition == errors.INVALID_FIELD:
                raise BrowseError(
                    f'amqp reader: option "selector": {reader.login.server} refuses {reader.given!r} ({words(error)}). '
                    "Correct it"
                ) from None
            wrong = await reader.login.port_fault(error) if phase is Phase.CONNECT else ""
            wrong = wrong or remedy(url, address, phase, error, reader.login.user) or ""
            wrong = wrong or unreached(url, address, phase, error)
            raise BrowseError(f"amqp reader: {wrong}") from None
        granted = self.receiver.link.remote_source
        if granted is None or str(granted.distribution_mode) != "copy":  # credit would take the messages
            raise BrowseError(
                f'amqp reader: option "address": {reader.login.server} does not let {address!r} be browsed. Name a '
                "queue, and connect to a server that browses"
            )

    async def next(self) -> SpoolChunk:
        """Return messages that follow, none at the end. Raises AmqpError."""
        messages: list[bytes] = []
        size = 0
        while size < BATCH_BYTES and len(messages) < BATCH_ROWS and (delivery := await self._arrived()) is not None:
            messages.append(delivery.payload)
            size += len(delivery.payload)
            delivery.settle(RELEASED)
        first, self.offset = self.offset, self.offset + len(messages)
        ends = list(itertools.accumulate(map(len, messages)))
        now = time.time_ns() // 1_000_000
        return SpoolChunk(first, 0, b"".join(messages), [0, *ends[:-1]][: len(ends)], ends, [now] * len(ends))

    async def _arrived(self) -> Delivery | None:
        """Return the next message; None if the address has given what it has. Raises AmqpError, TimeoutError."""
        receiver = self.receiver
        while (delivery := receiver.receive_nowait()) is None:
            if self.drain is None:
                receiver.grant(ROUND)
                self.drain, self.before = asyncio.create_task(receiver.drain(None)), receiver.link.deliveries
            coming = asyncio.create_task(receiver.receive(PATIENCE))
            await asyncio.wait((coming, self.drain), return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                return coming.result()
            coming.cancel()
            self.drain.result()
            self.drain = None
            if receiver.link.deliveries == self.before and not receiver.fetched:
                return None
        return delivery

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self.drain is not None:
            self.drain.cancel()
            await asyncio.gather(self.drain, return_exceptions=True)
        if self.client is not None:
            await self.client.close()
