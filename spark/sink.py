"""`writeStream.format("amqp")`: rows sent to an address; a batch is done once every message of it was accepted.

Columns used where present: `body` (binary or string; otherwise the whole row as JSON), `message_id`, `subject`,
`correlation_id`, `application_properties`. A row without a `message_id` gets `<sink id>-<batch>-<partition>-<row>`:
Spark repeats a batch after a failure with the same numbers, so a broker that knows duplicates by message-id stores each
row once.
"""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from enmasse.amqp.client import Client, ClientSender, connect
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.message import Message
from enmasse.amqp.performatives import Accepted
from spark.options import required, url_of
from spark.outage import Phase, remedy, unreached

WINDOW = 500


@dataclass
class Sent(WriterCommitMessage):
    rows: int


def as_json(value: Any) -> Any:
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def message_of(row: dict[str, Any], message_id: str) -> Message:
    body = row.get("body")
    if body is None:
        body = json.dumps(row, default=as_json)
        row = {**row, "content_type": "application/json"}
    return Message(
        durable=True,
        message_id=row.get("message_id") or message_id,
        subject=row.get("subject"),
        correlation_id=row.get("correlation_id"),
        content_type=row.get("content_type"),
        application_properties=dict(row.get("application_properties") or ()),
        body=body.encode() if isinstance(body, str) else body,
    )


class AmqpStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: dict[str, str]) -> None:
        self.url = url_of(options, "sink")
        self.address = required(options, "address", "sink")
        self.name = options.get("sinkid", self.address)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        context = TaskContext.get()
        batch = context.getLocalProperty("streaming.sql.batchId") if context else "0"
        prefix = f"{self.name}-{batch}-{context.partitionId() if context else 0}"
        return Sent(asyncio.run(self._send(iterator, prefix)))

    async def _send(self, iterator: Iterator[pa.RecordBatch], prefix: str) -> int:
        sent = 0
        client: Client | None = None
        sender: ClientSender | None = None
        pending: set[asyncio.Task[Any]] = set()
        try:
            for batch in iterator:
                for row in batch.to_pylist():
                    if sender is None:
                        client = connect(self.url)
                        sender = await self._sender(client)
                    pending.add(asyncio.create_task(sender.send(message_of(row, f"{prefix}-{sent}"))))
                    sent += 1
                    if len(pending) >= WINDOW:
                        pending = await self._settled(pending, asyncio.FIRST_COMPLETED)
            if pending:
                await self._settled(pending, asyncio.ALL_COMPLETED)
        finally:
            for task in pending:
                task.cancel()
            if sender is not None and client is not None:
                await client.close()
        return sent

    async def _sender(self, client: Client) -> ClientSender:
        """Raises RuntimeError that says which option is wrong and what to do."""
        phase = Phase.CONNECT
        try:
            await client.open()
            phase = Phase.ATTACH
            return await client.sender(self.address)
        except (OSError, AmqpError, UnicodeError) as error:
            if phase is Phase.ATTACH:
                await client.close()
            wrong = remedy(self.url, self.address, phase, error) or unreached(self.url, self.address, phase, error)
            raise RuntimeError(f"amqp sink: {wrong}") from None

    async def _settled(self, pending: set[asyncio.Task[Any]], when: str) -> set[asyncio.Task[Any]]:
        done, rest = await asyncio.wait(pending, return_when=when)
        for task in done:
            outcome = task.result()
            if not isinstance(outcome, Accepted):
                raise RuntimeError(f"amqp sink: {self.address} answered {outcome!r}; the batch will be tried again")
        return rest

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Every message was accepted before write() returned: nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was accepted stays; the batch comes again with the same message-ids."""
