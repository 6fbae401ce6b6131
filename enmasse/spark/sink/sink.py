"""`write.format("amqp")` and `writeStream.format("amqp")`: rows sent to addresses.

A write, or a batch of a stream, is done once every message of it was accepted. `enmasse.spark.sink.encoding` says which
columns become what. A row without a `message_id` gets one that it also has if Spark repeats the batch after a failure,
in whatever order: see `ids_of_task`. So a broker that knows duplicates by message-id stores each row once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from enmasse.aio.client import Client, ClientSender
from enmasse.aio.client_links import SentRun
from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Accepted, Rejected
from enmasse.amqp.messages.message import Message
from enmasse.spark.errors import QueryError, plainly
from enmasse.spark.options import OptionError, address_of, choice
from enmasse.spark.receiver.outage import Phase, remedy, unreached, words
from enmasse.spark.server_options import login_of
from enmasse.spark.sink.encoding import KEY, Ids, RowMessage, outgoing
from enmasse.spark.sink.record_batches import batches
from enmasse.spark.versions import StreamArrowWriter

WINDOW = 1000
"""Most messages of a task whose outcome is not known yet."""
WINDOW_BYTES = 8 << 20
"""Most bytes of them, unless one message alone has more."""
RUN, RUN_BYTES = 100, 64 << 10
"""Messages are sent together up to this number, and up to the one with which they have as many bytes."""

CREDIT_SECONDS = 10.0
"""How long a task waits for credit before it looks whether its address is still there."""


class SinkError(QueryError):
    """Rows were not accepted: the text gives the reason and what to do."""


@dataclass
class Sent(WriterCommitMessage):
    """Numbers of rows that a task has sent: accepted by their address, and by the dead-letter address."""

    rows: int
    dead: int = 0


@dataclass
class Flying:
    """Messages that were sent together and whose outcomes are not known yet. `row`: that of the first, the rows of the
    partition being counted from 0; `size`: bytes."""

    row: int
    messages: list[RowMessage]
    run: SentRun
    size: int


def runs(messages: Iterable[RowMessage]) -> Iterator[list[RowMessage]]:
    """Yield messages that are to be sent together; one that cannot be sent is alone."""
    run: list[RowMessage] = []
    size = 0
    for message in messages:
        if run and (message.error or len(run) == RUN or size >= RUN_BYTES):
            yield run
            run, size = [], 0
        run.append(message)
        size = RUN_BYTES if message.error else size + len(message.payload)
    if run:
        yield run


def ids_of_task(name: str, of_write: str | None, *, keyed: bool = False) -> Ids:
    """Return the message-ids of the running task, which begin with `<name>-<batch>-<partition>`.

    `keyed`: equal rows are in one partition (`enmasse.spark.repeatable`), so it is "all" instead of the partition.

    Query and batch are as Spark repeats them, also after a restart from the checkpoint; the query's id is a random
    UUID, so the ids of two queries differ whatever their sinks are called, and receivers cannot foresee any.
    In a write `of_write` takes the place of both: the option `writeId`, or a name that is made for the write, so that a
    task that is tried again has the same ids.
    """
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    batch = "0" if context is None else context.getLocalProperty("streaming.sql.batchId") or "0"
    if of_write is not None or query is None:
        query, batch = of_write or str(uuid.uuid4()), "0"
    partition = "all" if keyed else "0" if context is None else str(context.partitionId())
    return Ids(f"{name}-{batch}-{partition}", query)


class Sink:
    """Sends the rows of a partition. Settings only until then: it is pickled to executors."""

    def __init__(self, options: dict[str, str], columns: tuple[str, ...] = ()) -> None:
        """`columns` of the rows. Raises OptionError."""
        self.login = login_of(options, "sink")
        self.routed = not options.get("address") and "address" in columns
        self.address = None if self.routed else address_of(options, "sink", instead=ROUTED)
        self.name = options.get("sinkid", self.address or "routed")
        self.keyed = KEY in columns
        self.write_id = options.get("writeid", "")
        self.duplicate_id = choice(options, "duplicateId", ("false", "true"), "sink") == "true"
        self.dead_letter = options.get("deadletteraddress", "")
        on_reject = choice(options, "onReject", ("fail", "deadletter"), "sink")
        if on_reject == "deadletter":
            address_of(options, "sink", "deadLetterAddress")
        elif self.dead_letter:
            raise OptionError('amqp sink: the option "deadLetterAddress" needs .option("onReject", "deadletter")')

    def ids(self, of_write: str | None) -> Ids:
        """Return the message-ids of the running task: see `ids_of_task`."""
        return ids_of_task(self.name, of_write, keyed=self.keyed)

    async def send(self, batches: Iterator[pa.RecordBatch], ids: Ids) -> Sent:
        """Send the rows and return how many, all of them accepted. Raises SinkError, ColumnError."""
        first = next(batches, None)
        while first is not None and not first.num_rows:
            first = next(batches, None)
        if first is None:
            return Sent(0)
        client = self.login.client()
        sender = await self._sender(client)
        try:
            return await Sending(self, client, sender).all(first, batches, ids)
        except (AmqpError, OSError) as error:
            raise SinkError(
                f"amqp sink: the connection with {self.login.server} was lost before all rows were accepted "
                f"({words(error)}). Start the query again: it repeats the batch with the same message-ids"
            ) from None
        finally:
            await client.close()

    async def _sender(self, client: Client) -> ClientSender:
        """Return an attached sender. Raises SinkError, which names the option that is wrong and what to do."""
        try:
            await client.open()
        except (OSError, AmqpError, UnicodeError) as error:
            wrong = await self.login.port_fault(error)
            raise SinkError(f"amqp sink: {wrong}" if wrong else self._unusable(Phase.CONNECT, error)) from None
        try:
            return await self.attach(client)
        except SinkError:
            await client.close()
            raise

    async def attach(self, client: Client) -> ClientSender:
        """Return an attached sender of an open client. Raises SinkError as `_sender` does."""
        try:
            return await client.sender(self.address)
        except (OSError, AmqpError) as error:
            raise SinkError(self._unusable(Phase.ATTACH, error)) from None

    def _unusable(self, phase: Phase, error: Exception) -> str:
        url, address = self.login.url, self.address or "the anonymous terminus"
        wrong = remedy(url, address, phase, error, self.login.user) or unreached(url, address, phase, error)
        return f"amqp sink: {wrong}"


ROUTED = ', or a column "address" that names each row\'s address'


class Sending:
    """The messages of one task on their way, in the order of the rows."""

    def __init__(self, sink: Sink, client: Client, sender: ClientSender) -> None:
        self.sink = sink
        self.client = client
        self.sender = sender
        self.flying: deque[Flying] = deque()
        self.count = self.size = 0  # of the messages that are flying
        self.sent = Sent(0)
        self.dead: ClientSender | None = None

    async def all(self, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch], ids: Ids) -> Sent:
        """Send all rows; returns when all are accepted. Raises SinkError, AmqpError, OSError."""
        row = 0
        batch: pa.RecordBatch | None = first
        while batch is not None:
            messages = outgoing(batch, ids, routed=self.sink.routed, duplicate_id=self.sink.duplicate_id)
            for run in runs(messages):
                await self._send(row, run)
                row += len(run)
            # In a thread: the connection lives on while Spark computes the rows.
            batch = await asyncio.to_thread(next, rest, None)
        while self.flying:
            await self._settle()
        return self.sent

    async def _send(self, row: int, messages: list[RowMessage]) -> None:
        if messages[0].error:
            return await self._rejected(row, messages[0], messages[0].error)
        while messages:
            size = sum(len(message.payload) for message in messages)
            while self.flying and (self.count + len(messages) > WINDOW or self.size + size > WINDOW_BYTES):
                await self._settle()
            while not self.sender.credit:
                await self._wait_credit()
            run = self.sender.send_run([message.payload for message in messages])
            sent, messages = messages[: run.count], messages[run.count :]
            size -= sum(len(message.payload) for message in messages)
            self.flying.append(Flying(row, sent, run, size))
            self.count += run.count
            self.size += size
            row += run.count

    async def _wait_credit(self) -> None:
        """Wait for credit. Raises SinkError if the address is gone: a router keeps its links, and refuses new ones."""
        try:
            await self.sender.wait_credit(CREDIT_SECONDS)
        except TimeoutError:
            await (await self.sink.attach(self.client)).detach()

    async def _settle(self) -> None:
        """Wait for the outcomes of the oldest messages."""
        one = self.flying[0]
        await one.run.done
        self.flying.popleft()
        self.count -= one.run.count
        self.size -= one.size
        self.sent.rows += one.run.count - len(one.run.others)
        for place, outcome in sorted(one.run.others.items(), key=itemgetter(0)):
            await self._refused(one.row + place, one.messages[place], outcome)

    async def _refused(self, row: int, message: RowMessage, outcome: Any) -> None:
        if not isinstance(outcome, Rejected):
            name = "released it" if outcome is not None else "gave no outcome"
            if outcome is not None and type(outcome).__name__ == "Modified":
                name = "gave it back as modified"
            raise SinkError(
                f"amqp sink: {self._named(row, message)}: {self._where(message)} {name}: nothing receives "
                "or stores it there now. Start the query again when something does"
            )
        error = outcome.error
        reason = "rejected" if error is None else f"{error.condition}: {error.description or 'without a description'}"
        if error is not None and error.condition == errors.RESOURCE_LIMIT_EXCEEDED:  # of no row in particular
            raise SinkError(
                f"amqp sink: {self._named(row, message)}: {self._where(message)} has no room ({reason}). "
                "Make room there and start the query again"
            )
        await self._rejected(row, message, reason)

    async def _rejected(self, row: int, message: RowMessage, reason: str) -> None:
        """Send a row that will never be accepted to the dead-letter address. Raises SinkError without one."""
        sink = self.sink
        if not sink.dead_letter:
            raise SinkError(
                f"amqp sink: {self._named(row, message)} was rejected by {self._where(message)} ({reason}). Correct "
                'the row, or let such rows go elsewhere: .option("onReject", "deadletter") and "deadLetterAddress"'
            )
        try:
            if self.dead is None:
                self.dead = await self.client.sender(sink.dead_letter)
            outcome = await self.dead.send(dead_letter(message, self._where(message), reason))
        except AmqpError as error:
            raise SinkError(
                f'amqp sink: option "deadLetterAddress": {self._named(row, message)} was rejected ({reason}) and could '
                f"not be sent to {sink.dead_letter!r} ({words(error)}). Make that address, or let the user use it"
            ) from None
        if not isinstance(outcome, Accepted):
            raise SinkError(
                f'amqp sink: option "deadLetterAddress": {sink.dead_letter!r} did not accept '
                f"{self._named(row, message)}: {outcome!r}"
            )
        self.sent.dead += 1

    def _where(self, message: RowMessage) -> str:
        return repr(message.address or self.sink.address or "its address")

    def _named(self, row: int, message: RowMessage) -> str:
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        known = f" (message-id {message.message_id!r})" if message.message_id else ""
        return f"row {row} of partition {partition}{known}"


def dead_letter(message: RowMessage, address: str, reason: str) -> bytes:
    """Return the message with the application properties DeadLetterReason and DeadLetterSource, without its time to
    live; its other parts are unchanged."""
    dead = Message.decode(message.payload)
    dead.to = dead.ttl = None
    dead.application_properties = {
        **dead.application_properties,
        "DeadLetterReason": reason,
        "DeadLetterSource": address.strip("'"),
    }
    return dead.encode()


class AmqpWriter(DataSourceArrowWriter):
    """The end of `write` in Spark: each task sends the rows of its partition, and ends when all are accepted."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.of_write = sink.write_id or str(uuid.uuid4())  # made on the driver, the same in each task

    @plainly()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of a partition, in a task of Spark. Raises SinkError."""
        return asyncio.run(self.sink.send(iterator, self.sink.ids(self.of_write)))


class AmqpStreamWriter(StreamArrowWriter):
    """The end of `writeStream` in Spark: each task sends the rows of its partition, and ends when all are accepted."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    @plainly()
    def write(self, iterator: Iterator[Any]) -> Sent:
        """Send the record batches of a partition, in a task of Spark. Raises SinkError."""
        return asyncio.run(self.sink.send(iterator, self.sink.ids(None)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Every message was accepted before write() returned: nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: accepted messages stay, and Spark repeats the batch with the same message-ids."""


class RowStreamWriter(AmqpStreamWriter):
    """AmqpStreamWriter of PySpark 4.0, which gives rows to the sink of a stream."""

    def __init__(self, sink: Sink, schema: StructType) -> None:
        super().__init__(sink)
        self.schema = schema

    def write(self, iterator: Iterator[Row]) -> Sent:
        """Send the rows of a partition, in a task of Spark. Raises SinkError."""
        return super().write(batches(iterator, self.schema))


def sink_of(options: dict[str, str], schema: StructType) -> Sink:
    """Return the sink for rows of this schema. Raises OptionError."""
    return Sink(options, tuple(schema.names))
