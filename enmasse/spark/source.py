"""`spark.readStream.format("amqp")`: a PySpark streaming data source over the spool."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from enmasse.spark.admission import admission_of
from enmasse.spark.columns import decoded
from enmasse.spark.errors import QueryError, plainly
from enmasse.spark.flight import Endpoint, SpoolServer, fetched
from enmasse.spark.lag import Lag
from enmasse.spark.login import login_of
from enmasse.spark.options import MOST_CREDIT, OptionError, number, required, shown
from enmasse.spark.segment import SpoolError, end_within, segments, spool_chunks
from enmasse.spark.spool import MappedCount, head_of, id_of
from enmasse.spark.values import Values

log = logging.getLogger(__name__)

ROWS_PER_PARTITION = 50_000
AVAILABLE_ROWS = 4 * ROWS_PER_PARTITION
"""With available-now a batch begins when it has this number of rows, though the address may hold others."""
START_SECONDS = 60.0
STOP_SECONDS = 20.0
ATTACH_SECONDS = 3.0
"""How long the first batch of a query waits for the address."""
FIRST_SECONDS = 0.5
"""How long it then waits for a first message."""


class SpoolRange(InputPartition):
    """Records `start` <= offset < `end` of a spool: which one it is, and who serves it to those who lack its files."""

    def __init__(self, start: int, end: int, spool: str = "", endpoint: Endpoint | None = None) -> None:
        self.start, self.end, self.spool, self.endpoint = start, end, spool, endpoint


def receiver_settings(options: dict[str, str]) -> dict[str, Any]:
    """Return the settings of the receiver process (enmasse.spark.receiver.ReceiverSettings). Raises OptionError."""
    spool = str(Path(required(options, "spool", "source")).absolute())
    login = asdict(login_of(options, "source"))
    del login["end"]
    return {
        **login,
        "address": required(options, "address", "source"),
        "spool": spool,
        "container": options.get("container") or "spark-" + hashlib.sha256(spool.encode()).hexdigest()[:12],
        "subscription": options.get("subscription", ""),
        "credit": number(options, "credit", 1000, MOST_CREDIT),
        "spool_limit": number(options, "spoolLimit", 1 << 30),
    }


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

    def __init__(self, options: dict[str, str], values: Values | None = None) -> None:
        """values: makes the column `value`, if there is one. Raises OptionError."""
        self.settings = receiver_settings(options)
        self.admission = admission_of(options)
        self.starting = starting_of(options)
        self.values = values
        self.flight = (
            options.get("flighthost", ""),
            number(options, "flightPort", 1, 65535) if "flightport" in options else 0,
        )
        if self.flight[1] and not self.flight[0]:
            raise OptionError('amqp source: the option "flightPort" needs the option "flightHost"')
        self.server: SpoolServer | None = None
        self.receiver: ReceiverProcess | None = None
        self.available_now = False
        self.target: int | None = None  # with available-now: the end of the query, once it is known
        self.initial: int | None = None
        self.planned: int | None = None  # the end of the batch that was planned last
        self.lag = Lag(self.spool())
        self.first = True

    def spool(self) -> Path:
        """Return the folder of the spool."""
        return Path(self.settings["spool"])

    def started(self) -> ReceiverProcess:
        """Return the receiver process, started on first use: in the one process that asks for offsets.

        Raises ReceiverError, SpoolError.
        """
        if self.receiver is None:
            self.receiver = ReceiverProcess(self.settings)
        self.receiver.check()
        return self.receiver

    @plainly()
    def initialOffset(self) -> dict[str, int]:
        """Return where a query without a checkpoint begins: the first record that the spool still holds, or what the
        option startingOffsets names. Raises ReceiverError, SpoolError."""
        if self.initial is None:
            self.initial = self._initial(self.started().head.get())  # Spark asks twice: the answer stays the same
        return {"record": self.initial}

    def _initial(self, head: int) -> int:
        known = segments(self.spool())
        first = known[0][0] if known else 0
        record = {"earliest": first, "latest": head}.get(self.starting)
        if record is None:
            record = int(self.starting)
        if not first <= record <= head:
            raise SpoolError(
                f'{self.spool()}: option "startingOffsets" is {record}, but the spool holds the records from {first} '
                f"on and before {head} only"
            )
        return record

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
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the end of the next batch, within `limit`.

        Raises ReceiverError; SpoolError if the checkpoint is ahead of the spool.
        """
        receiver, done = self.started(), start["record"]
        if self.available_now:
            self._await_available(receiver, done)
        elif self.first:
            self.first = False
            receiver.await_records(done)  # else the first batch is an empty one, which takes as long as a full one
        head = receiver.head.get()
        if head < done:
            raise SpoolError(
                f"{self.spool()}: the checkpoint has read {done} records of it, but it holds only {head}: it was "
                "emptied or replaced. Put it back from a copy, or give the query a new checkpoint: then it begins with "
                "what is there"
            )
        if receiver.full:
            # Spark commits a batch when it plans the next one, which needs new messages: a full spool receives none.
            receiver.commit(done)
        if self.target is not None:
            head = max(self.target, done)
        if not isinstance(limit, ReadAllAvailable):
            head = self.admission.end(done, head, partial(end_within, self.spool()), time.monotonic())
        self.planned = head
        return {"record": head}

    def _await_available(self, receiver: ReceiverProcess, done: int) -> None:
        """Return when all that was at the address is in the spool, or enough for a batch. Raises ReceiverError."""
        enough = min(self.admission.max_rows or AVAILABLE_ROWS, AVAILABLE_ROWS)
        while self.target is None and receiver.head.get() - done < enough:
            receiver.check()
            if receiver.drained.is_set():
                self.target = receiver.head.get()
            elif receiver.full:
                if receiver.head.get() > done:
                    return
                receiver.commit(done)
            time.sleep(0.01)

    @plainly()
    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the end of the spool and how far the batch is behind it, for Spark's report of progress
        (enmasse.spark.lag). Raises ReceiverError."""
        head = self.started().head.get()
        return self.lag.report(head if self.planned is None else self.planned, head, time.time_ns() // 1_000_000)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[SpoolRange]:
        """Return the ranges of a batch, of at most ROWS_PER_PARTITION records each."""
        first, last = start["record"], end["record"]
        endpoint, spool = self._served() if self.flight[0] else None, id_of(self.spool())
        return [
            SpoolRange(at, min(at + ROWS_PER_PARTITION, last), spool, endpoint)
            for at in range(first, last, ROWS_PER_PARTITION)
        ]

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
            if partition.endpoint is None or (partition.spool and id_of(self.spool()) == partition.spool):
                chunks = spool_chunks(self.spool(), partition.start, partition.end)
            else:
                chunks = fetched(partition.endpoint, partition.start, partition.end)
            batches = map(decoded, chunks)
            yield from batches if self.values is None else map(self.values.added, batches)

    @plainly()
    def commit(self, end: dict[str, int]) -> None:
        """Have whole segments before `end` deleted: Spark will not read them again. Raises ReceiverError."""
        self.started().commit(end["record"])

    def stop(self) -> None:
        """End the receiver process, and the server of ranges, if there are any."""
        if self.server is not None:
            self.server.shutdown()
        if self.receiver is not None:
            self.receiver.stop()


class ReceiverError(QueryError):
    """The receiver process has ended: the text gives the reason and what to do."""


class ReceiverProcess:
    """Receiver process as the driver-side reader sees it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """settings: those of enmasse.spark.receiver.ReceiverSettings. Raises ReceiverError, SpoolError."""
        self.source = f"{settings['address']!r} at {shown(settings['url'])}"
        self.trouble = ""
        self.full = False  # the spool: nothing comes until segments are deleted
        self.attached = threading.Event()
        self.drained = threading.Event()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "enmasse.spark.receiver"],
            stdin=subprocess.PIPE,  # the settings, then commits; the receiver ends with it
            stdout=subprocess.PIPE,
            text=True,
        )
        self.committed = -1
        self._write(settings)
        self.events = threading.Thread(target=self._read_events, daemon=True)
        self.events.start()
        self.head = self._await_spool(Path(settings["spool"]))

    def check(self) -> None:
        """Check that the process runs. Raises ReceiverError if it has ended."""
        if self.process.poll() is not None:
            self.events.join(60)  # the last one gives the reason
            raise ReceiverError(self.trouble or f"amqp source: the receiver ended with {self.process.returncode}")

    def await_address(self) -> None:
        """Return once the address is attached.

        Raises ReceiverError if the receiver ends instead, which it does in bounded time.
        """
        while not self.attached.wait(0.1):
            self.check()

    def await_records(self, done: int) -> None:
        """Return when the spool holds more than `done` records, or none has arrived for FIRST_SECONDS.

        Raises ReceiverError.
        """
        self.attached.wait(ATTACH_SECONDS)
        deadline = time.monotonic() + FIRST_SECONDS
        while self.head.get() <= done and time.monotonic() < deadline:
            self.check()
            time.sleep(0.01)

    def commit(self, end: int) -> None:
        """Have whole segments before record `end` deleted. If that is never done the spool only grows."""
        if end != self.committed:
            self.committed = end
            self._write(end)

    def drain(self) -> None:
        """Limit it to what the address holds now; `drained` is set when all of that is in the spool."""
        self._write("drain")

    def stop(self) -> None:
        """Let the process end; kill it if it has not ended after STOP_SECONDS."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            self.process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()  # messages that it has not accepted are redelivered
            self.process.wait()

    def _write(self, line: dict[str, Any] | int | str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: check() raises that
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()

    def _read_events(self) -> None:
        for line in self.process.stdout or ():
            self._on_event(json.loads(line))

    def _on_event(self, change: dict[str, Any]) -> None:
        """Handle a change of state: logged once when trouble begins, and once when it ends."""
        event, before = change["event"], self.trouble
        if event == "attached":
            self.attached.set()
            self.trouble = ""
            if before:
                log.warning("spark.source.resumed source=%s", self.source)
        elif event in ("lost", "failed"):
            self.trouble = str(change["reason"])
            if event == "lost" and not before:
                log.warning("spark.source.interrupted source=%s reason=%s", self.source, self.trouble)
        elif event == "drained":
            self.drained.set()
        elif event == "full":
            self.full = True
            log.warning("spark.spool.filled source=%s bytes=%d", self.source, change["bytes"])
        elif event == "room":
            self.full = False
            log.warning("spark.spool.freed source=%s", self.source)

    def _await_spool(self, folder: Path) -> MappedCount:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.check()
            if (folder / "head").exists() and segments(folder):
                return head_of(folder)
            time.sleep(0.02)
        raise SpoolError(f"{folder}: the receiver did not open the spool in {START_SECONDS:.0f} s")
