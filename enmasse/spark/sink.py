"""`writeStream.format("amqp")`: rows sent to an address; a batch is done once every message of it was accepted.

Columns used if present: `body` (binary or string; otherwise the whole row as JSON), `message_id`, `subject`,
`correlation_id`, `content_type`, `application_properties`. A row without a `message_id` gets one that it also has if
Spark repeats the batch after a failure, in whatever order: see `Ids`. So a broker that knows duplicates by message-id
stores each row once.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from enmasse.aio.client import Client, ClientSender, connect
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.message import Message
from enmasse.amqp.performatives import Accepted
from enmasse.spark.errors import QueryError, plainly
from enmasse.spark.options import required, url_of
from enmasse.spark.outage import Phase, remedy, unreached

WINDOW = 500


class SinkError(QueryError):
    """A batch was not accepted: the text gives the reason and what to do."""


@dataclass
class Sent(WriterCommitMessage):
    """Number of rows that a task has sent, all of them accepted."""

    rows: int


def as_json(value: Any) -> Any:
    """Return a value of a row that JSON does not know in its JSON form. Raises TypeError if it has none."""
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def message_of(row: dict[str, Any]) -> Message:
    """Return the message of a row, without a message-id if the row has none."""
    body = row.get("body")
    if body is None:
        body = json.dumps(row, default=as_json)
        row = {**row, "content_type": "application/json"}
    return Message(
        durable=True,
        message_id=None if row.get("message_id") == "" else row.get("message_id"),
        subject=row.get("subject"),
        correlation_id=row.get("correlation_id"),
        content_type=row.get("content_type"),
        application_properties=dict(sorted(dict(row.get("application_properties") or ()).items())),
        body=body.encode() if isinstance(body, str) else body,
    )


class Ids:
    """Message-ids of the rows of one partition of one batch: `<query>-<batch>-<partition>-<hash>-<n>`.

    `query` ends in Spark's id of the query, a UUID, so ids of two queries differ whatever the sinks are called. `hash`
    is of the message's content, n numbers the equal rows of a partition: the ids are the same set in any order of the
    rows.
    """

    def __init__(self, query: str, batch: str, partition: int) -> None:
        self._prefix = f"{query}-{batch}-{partition}"
        self._equal: Counter[bytes] = Counter()

    def named(self, message: Message) -> Message:
        """Return the message, with an id if it had none."""
        if message.message_id is None:
            content = blake2b(message.encode(), digest_size=16).digest()
            message.message_id = f"{self._prefix}-{content.hex()}-{self._equal[content]}"
            self._equal[content] += 1
        return message


def ids_of_task(name: str) -> Ids:
    """Return the ids for the task that runs: query and batch as Spark repeats them, also after a restart from the
    checkpoint. `name` is what the user calls the sink, to be read in the ids."""
    context = TaskContext.get()
    if context is None:
        return Ids(f"{name}-{uuid.uuid4()}", "0", 0)
    query = context.getLocalProperty("sql.streaming.queryId")
    return Ids(f"{name}-{query}", context.getLocalProperty("streaming.sql.batchId") or "0", context.partitionId())


class AmqpStreamWriter(DataSourceStreamArrowWriter):
    """The sink's end in Spark: each task sends the rows of its partition, and ends when all are accepted."""

    def __init__(self, options: dict[str, str]) -> None:
        self.url = url_of(options, "sink")
        self.address = required(options, "address", "sink")
        self.name = options.get("sinkid", self.address)

    @plainly()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of a partition, in a task of Spark. Raises SinkError."""
        return Sent(asyncio.run(self.send(iterator, ids_of_task(self.name))))

    async def send(self, iterator: Iterator[pa.RecordBatch], ids: Ids) -> int:
        """Send the rows and return how many messages that was, all of them accepted. Raises SinkError."""
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
                    pending.add(asyncio.create_task(sender.send(ids.named(message_of(row)))))
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
        """Return an attached sender. Raises SinkError, which names the option that is wrong and what to do."""
        phase = Phase.CONNECT
        try:
            await client.open()
            phase = Phase.ATTACH
            return await client.sender(self.address)
        except (OSError, AmqpError, UnicodeError) as error:
            if phase is Phase.ATTACH:
                await client.close()
            wrong = remedy(self.url, self.address, phase, error) or unreached(self.url, self.address, phase, error)
            raise SinkError(f"amqp sink: {wrong}") from None

    async def _settled(self, pending: set[asyncio.Task[Any]], when: str) -> set[asyncio.Task[Any]]:
        done, rest = await asyncio.wait(pending, return_when=when)
        for task in done:
            outcome = task.result()
            if not isinstance(outcome, Accepted):
                raise SinkError(f"amqp sink: {self.address} answered {outcome!r}; the batch will be tried again")
        return rest

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Every message was accepted before write() returned: nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: accepted messages stay, and Spark repeats the batch with the same message-ids."""
