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

from enmasse.amqp.client import connect
from enmasse.amqp.message import Message
from enmasse.amqp.performatives import Accepted

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
        self.url = options.get("url", "amqp://127.0.0.1:5672")
        self.address = options.get("address", "")
        if not self.address:
            raise ValueError('amqp sink: the option "address" is missing: .option("address", …)')
        self.name = options.get("sinkid", self.address)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        context = TaskContext.get()
        batch = context.getLocalProperty("streaming.sql.batchId") if context else "0"
        prefix = f"{self.name}-{batch}-{context.partitionId() if context else 0}"
        return Sent(asyncio.run(self._send(iterator, prefix)))

    async def _send(self, iterator: Iterator[pa.RecordBatch], prefix: str) -> int:
        sent = 0
        client = sender = None
        pending: set[asyncio.Task[Any]] = set()
        try:
            for batch in iterator:
                for row in batch.to_pylist():
                    if sender is None:
                        client = await connect(self.url).open()
                        sender = await client.sender(self.address)
                    pending.add(asyncio.create_task(sender.send(message_of(row, f"{prefix}-{sent}"))))
                    sent += 1
                    if len(pending) >= WINDOW:
                        pending = await self._settled(pending, asyncio.FIRST_COMPLETED)
            if pending:
                await self._settled(pending, asyncio.ALL_COMPLETED)
        finally:
            for task in pending:
                task.cancel()
            if client is not None:
                await client.close()
        return sent

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
