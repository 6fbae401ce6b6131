"""`spark.readStream.format("amqp")`: a PySpark streaming data source over the spool."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from enmasse import spark_jobs
from enmasse.engines.maven import cache
from enmasse.spark.errors import plainly
from enmasse.spark.options import MOST_CREDIT, PARSE, OptionError, address_of, folder_fault, number, required, size
from enmasse.spark.receiver.receivers import Receivers
from enmasse.spark.schema.columns import decoded
from enmasse.spark.schema.value_column import PARTITION, PARTITIONED, Values
from enmasse.spark.server_options import login_of, space_of
from enmasse.spark.source.batch_limits import admission_of, seconds
from enmasse.spark.source.exporter import HOST, MetricsExporter
from enmasse.spark.source.flight import Endpoint, SpoolServer, fetched
from enmasse.spark.source.lag import Lag
from enmasse.spark.spool.bucket import connected, is_bucket, prefix_of
from enmasse.spark.spool.segment import SpoolError, end_within, partition_folder, spool_chunks
from enmasse.spark.spool.spool import id_of
from enmasse.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

ROWS_PER_PARTITION = 50_000
AVAILABLE_ROWS = 2 * ROWS_PER_PARTITION
"""With available-now a batch begins when it has this number of rows: while Spark computes it, the receivers store what
else the address holds."""
MOST_RECEIVERS = 64
GATHER = "500ms"


class SpoolRange(InputPartition):
    """Records `start` <= offset < `end` of a partition of a spool: which one it is, and who serves it to those who lack
    its files."""

    def __init__(
        self, start: int, end: int, spool: str = "", endpoint: Endpoint | None = None, partition: int = 0
    ) -> None:
        self.start, self.end, self.spool, self.endpoint, self.partition = start, end, spool, endpoint, partition


SPACE = "space"
"""Key of an offset: the address space whose messages it counts, if the user is of one."""


def offset_of(ends: Sequence[int], space: str = "") -> dict[str, Any]:
    """Return the offset of Spark that ends before these records of each partition."""
    records: dict[str, Any] = {f"record-{n}" if n else "record": end for n, end in enumerate(ends)}
    return {**records, SPACE: space} if space else records


def ends_of(offset: Mapping[str, Any], firsts: Sequence[int]) -> list[int]:
    """Return one past the last record of each partition in an offset; firsts: for partitions that came later."""
    return [int(offset.get(f"record-{n}" if n else "record", first)) for n, first in enumerate(firsts)]


def receiver_settings(options: dict[str, str]) -> dict[str, Any]:
    """Return the settings of the receiver process (enmasse.spark.receiver.spool_receiver.ReceiverSettings). Raises
    OptionError."""
    parses = "bodyformat" in options or "schema" in options
    instead = f"; spark.read, which browses, has no bodyFormat: {PARSE}" if parses else ""
    spool = required(options, "spool", "source", instead)
    bucket = spool if is_bucket(spool) else ""
    if wrong := "" if bucket else folder_fault(spool):
        raise OptionError(f'amqp source: option "spool": {wrong}. Of object stores s3://bucket/prefix can be used')
    if bucket:
        connected(bucket)
        spool = str(cache() / "spools" / hashlib.sha256(bucket.encode()).hexdigest()[:32])
    else:
        spool = str(Path(spool).absolute())
    login = asdict(login_of(options, "source"))
    del login["end"]
    return {
        **login,
        "address": address_of(options, "source"),
        "spool": spool,
        "bucket": bucket,
        "gather": gather_of(options, bucket),
        "container": options.get("container") or "spark-" + hashlib.sha256((bucket or spool).encode()).hexdigest()[:12],
        "subscription": options.get("subscription", ""),
        "shared": PARTITIONED in options,
        "credit": number(options, "credit", 1000, MOST_CREDIT),
        "spool_limit": max(1, size(options, "spoolLimit", 1 << 30) // receivers_of(options)),
    }


def gather_of(options: Mapping[str, str], bucket: str) -> float:
    """Return the option spoolDelay in seconds; 0 for a spool of files. Raises OptionError."""
    if bucket:
        return seconds(options, "spoolDelay", GATHER)
    if "spooldelay" in options:
        raise OptionError('amqp source: the option "spoolDelay" is for a spool in an object store (s3://…)')
    return 0.0


def receivers_of(options: Mapping[str, str]) -> int:
    """Return the option receivers. Raises OptionError."""
    return number(options, "receivers", 1, MOST_RECEIVERS)


def starting_of(options: Mapping[str, str]) -> str:
    """Return the option startingOffsets: "earliest", "latest" or a number. Raises OptionError."""
    text = options.get("startingoffsets", "earliest").strip().lower()
    if text not in ("earliest", "latest") and not (text.isascii() and text.isdigit() and len(text) < 20):
        raise OptionError(
            f'amqp source: option "startingOffsets" must be earliest, latest or the number of a record, not {text!r}'
        )
    return text


def flight_of(options: Mapping[str, str]) -> tuple[str, int]:
    """Return the options flightHost (empty: none) and flightPort (0: any free one). Raises OptionError."""
    host = options.get("flighthost", "").strip()
    port = number(options, "flightPort", 1, 65535) if "flightport" in options else 0
    if port and not host:
        raise OptionError('amqp source: the option "flightPort" needs the option "flightHost"')
    return host, port


class AmqpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source's end in Spark; offsets are record numbers of the spool.

    Pickled to executors: until it is used it holds settings only.
    """

    def __init__(
        self, options: dict[str, str], values: Values | None = None, columns: Sequence[str] | None = None
    ) -> None:
        """values: makes the column `value`, if there is one. columns: those that are wanted; all by default.

        Raises OptionError.
        """
        self.settings = receiver_settings(options)
        self.space = space_of(login_of(options, "source"))
        self.number = receivers_of(options)
        self.partitioned = PARTITIONED in options
        self.admission = admission_of(options)
        self.starting = starting_of(options)
        self.values = values
        self.columns = None if columns is None else list(columns)
        self.flight = flight_of(options)
        self.server: SpoolServer | None = None
        self.metrics_port = number(options, "metricsPort", 1, 65535) if "metricsport" in options else 0
        self.exporter: MetricsExporter | None = None
        self.receivers: Receivers | None = None
        self.available_now = False
        self.target: list[int] | None = None  # with available-now: the end of the query, once it is known
        self.initial: list[int] | None = None
        self.processed: list[int] | None = None  # as Spark stated when it planned that batch
        self.planned: list[int] | None = None  # the end of the batch that was planned last
        self.lag = Lag(self.spool())
        self.first = True

    def spool(self) -> Path:
        """Return the folder of the spool."""
        return Path(self.settings["spool"])

    def _named(self, partition: int = 0) -> str:
        """Return the name of a partition of the spool for users: its folder or URL."""
        bucket = self.settings["bucket"].rstrip("/")
        return f"{bucket}/{prefix_of(partition)}" if bucket else str(partition_folder(self.spool(), partition))

    def started(self) -> Receivers:
        """Return the receiver processes, started on first use: in the one process that asks for offsets.

        Raises ReceiverError, SpoolError; OptionError if metricsPort cannot be listened on.
        """
        if self.receivers is None:
            self.receivers = Receivers(self.settings, self.number)
            if self.metrics_port:
                self.exporter = self._exporter(self.receivers)
        self.receivers.check()
        return self.receivers

    def _exporter(self, receivers: Receivers) -> MetricsExporter:
        firsts = receivers.firsts()
        try:
            return MetricsExporter(
                self.metrics_port, self._named(), self.spool(), receivers, lambda: self.processed or firsts
            )
        except OSError as error:
            raise OptionError(
                f'amqp source: option "metricsPort": cannot listen on {HOST}:{self.metrics_port} ({error.strerror}). '
                "Give each query a port of its own"
            ) from None

    @plainly()
    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins: the first record that the spool still holds, or what the
        option startingOffsets names. Raises ReceiverError, SpoolError."""
        if self.initial is None:
            self.initial = self._initial(self.started())  # Spark asks twice: the answer stays the same
        return offset_of(self.initial, self.space)

    def _initial(self, receivers: Receivers) -> list[int]:
        firsts, heads = receivers.firsts(), receivers.heads()
        if self.starting in ("earliest", "latest"):
            return firsts if self.starting == "earliest" else heads
        record, first, head = int(self.starting), firsts[0], heads[0]
        if len(heads) > 1:
            raise SpoolError(
                f'{self._named()}: option "startingOffsets" is {record}, but the spool has {len(heads)} partitions: '
                "write earliest or latest"
            )
        if not first <= record <= head:
            raise SpoolError(
                f'{self._named()}: option "startingOffsets" is {record}, but the spool holds the records from {first} '
                f"on and before {head} only"
            )
        return [record]

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one of the limits that options set: latestOffset applies all of them, but for Trigger.Once."""
        own = self.admission
        if own.max_rows:
            return ReadMaxRows(own.max_rows)
        if own.max_bytes:
            return ReadMaxBytes(own.max_bytes)
        return ReadMinRows(own.min_rows) if own.min_rows else ReadAllAvailable()

    @plainly()
    def prepareForTriggerAvailableNow(self) -> None:
        """Have exactly what the address holds now read, once it is attached. Raises ReceiverError."""
        self.available_now = True
        self.admission.min_rows = 0  # what is available now does not become more
        self.started().await_address()  # else a wrong one would look like nothing to read
        self.started().drain()

    @plainly()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch, within `limit`.

        Raises ReceiverError; SpoolError if the checkpoint is ahead of the spool.
        """
        receivers = self.started()
        done = self._done(start, receivers)
        self._note_processed(done)
        if self.available_now:
            self._await_available(receivers, done)
        elif self.first:
            self.first = False
            receivers.await_records(done)  # else the first batch is an empty one, which takes as long as a full one
        heads = receivers.heads()
        if receivers.full:
            # Spark commits a batch when it plans the next one, which needs new messages: a full spool receives none.
            receivers.commit(done)
        if self.target is not None:
            heads = list(map(max, self.target, done))
        if not isinstance(limit, ReadAllAvailable):
            heads = self.admission.ends(done, heads, self._within, time.monotonic())
        self.planned = heads
        return offset_of(heads, self.space)

    def _note_processed(self, ends: list[int]) -> None:
        """Note that what is before these records of each partition is processed."""
        if self.processed != ends:
            self.processed = ends
            spark_jobs.note_processed(spark_jobs.ProcessedSpool(str(self.spool()), ends))

    def _done(self, offset: Mapping[str, Any], receivers: Receivers) -> list[int]:
        """Return where an offset ends in each partition. Raises SpoolError if it is ahead of the spool, or of another
        address space."""
        of = offset.get(SPACE, "")
        if of != self.space and (of or self.settings["space"]):
            raise SpoolError(
                f"{self._named()}: the checkpoint and the spool are of {_space_named(of)}, and the user is of "
                f"{_space_named(self.space)}. Give the query a user of the other one, or a spool and a checkpoint of "
                "its own"
            )
        heads = receivers.heads()
        done = ends_of(offset, receivers.firsts())
        for n, (end, head) in enumerate(zip(done, heads, strict=True)):
            if head < end:
                raise SpoolError(
                    f"{self._named(n)}: the checkpoint has read {end} records of it, but it holds "
                    f"only {head}: it was emptied or replaced. Put it back from a copy, or give the query a new "
                    "checkpoint: then it begins with what the spool holds"
                )
        partitions = len(offset.keys() - {SPACE})
        if partitions > len(heads):
            raise SpoolError(
                f"{self._named()}: the checkpoint has read {partitions} partitions of it, but it has only "
                f"{len(heads)}. Put the others back from a copy, or give the query a new checkpoint: then it begins "
                "with what the spool holds"
            )
        return done

    def _within(self, partition: int, start: int, end: int, most: int) -> int:
        return end_within(partition_folder(self.spool(), partition), start, end, most)

    def _await_available(self, receivers: Receivers, done: list[int]) -> None:
        """Return when all that was at the address is in the spool, or enough for a batch. Raises ReceiverError."""
        enough = min(self.admission.max_rows or AVAILABLE_ROWS, AVAILABLE_ROWS)
        while self.target is None and sum(receivers.heads()) - sum(done) < enough:
            receivers.check()
            if receivers.drained:
                self.target = receivers.heads()
            elif receivers.full:
                if receivers.heads() != done:
                    return
                receivers.commit(done)
            time.sleep(0.01)

    @plainly()
    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the end of the spool and how far the batch is behind it (enmasse.spark.source.lag), how many messages
        wait at the address, and how many came without an id, for Spark's report of progress. Raises ReceiverError."""
        receivers = self.started()
        heads = receivers.heads()
        lag = self.lag.report(self.planned or heads, heads, time.time_ns() // 1_000_000)
        counts = {"available": receivers.available, "withoutId": receivers.without_id}
        return {**offset_of(heads, self.space), **lag, **counts}

    @plainly()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[SpoolRange]:
        """Return the ranges of a batch, of at most ROWS_PER_PARTITION records each."""
        receivers = self.started()
        ends = ends_of(end, firsts := receivers.firsts())
        begins = ends_of(start, firsts)
        self._note_processed(begins)  # a batch that was cut off is planned again without `latestOffset`
        endpoint = self._served() if self.flight[0] else None
        ranges = []
        for n, (first, last) in enumerate(zip(begins, ends, strict=True)):
            spool = id_of(partition_folder(self.spool(), n)) if first < last else ""
            ranges += [
                SpoolRange(at, min(at + ROWS_PER_PARTITION, last), spool, endpoint, n)
                for at in range(first, last, ROWS_PER_PARTITION)
            ]
        return ranges

    def _served(self) -> Endpoint:
        """Return the server of the spool's ranges, started on first use. Raises OptionError."""
        if self.server is None:
            host, port = self.flight
            try:
                self.server = SpoolServer(self.spool(), host, port)
            except (OSError, pa.ArrowException) as error:
                raise OptionError(
                    f'amqp source: options "flightHost", "flightPort": cannot listen on {host}:{port} '
                    f"({str(error).splitlines()[0]}). Name an address of the driver's machine that executors reach"
                ) from None
        return self.server.endpoint

    def read(self, partition: SpoolRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, in a task of Spark. Raises SpoolError if a record is missing."""
        with plainly():
            folder = partition_folder(self.spool(), partition.partition)
            if partition.endpoint is None or (partition.spool and id_of(folder) == partition.spool):
                chunks = spool_chunks(folder, partition.start, partition.end)
            else:
                chunks = fetched(partition.endpoint, partition.start, partition.end, partition.partition)
            batches = map(decoded, chunks)
            if self.values is not None:
                batches = map(self.values.added, batches)
            if self.partitioned:
                batches = map(partial(numbered, partition.partition), batches)
            for batch in batches:
                yield batch if self.columns is None else batch.select(self.columns)

    @plainly()
    def commit(self, end: dict[str, Any]) -> None:
        """Have whole segments before `end` deleted: Spark will not read them again. Raises ReceiverError."""
        receivers = self.started()
        receivers.commit(ends_of(end, receivers.firsts()))

    def stop(self) -> None:
        """End the receiver processes, the server of ranges and that of metrics, if there are any."""
        if self.exporter is not None:
            self.exporter.close()
        if self.server is not None:
            self.server.shutdown()
        if self.receivers is not None:
            self.receivers.stop()


def _space_named(space: str) -> str:
    return f"the address space {space!r}" if space else "the default address space"


def numbered(partition: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with the column PARTITION."""
    return batch.append_column(PARTITION, pa.array([partition] * batch.num_rows, pa.int32()))
