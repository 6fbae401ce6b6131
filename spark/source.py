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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spark.options import MOST_CREDIT, number, required, shown, url_of
from spark.schema import batches
from spark.spool import MappedCount, SpoolError, head_of, read_spool, segments

log = logging.getLogger(__name__)

ROWS_PER_PARTITION = 50_000
START_SECONDS = 60.0
STOP_SECONDS = 20.0


class Range(InputPartition):
    """Records `start` <= offset < `end` of the spool."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


def receiver_options(options: dict[str, str]) -> dict[str, Any]:
    """The options of the receiver process, checked. Raises ValueError naming the option."""
    spool = str(Path(required(options, "spool", "source")).absolute())
    return {
        "url": url_of(options, "source"),
        "address": required(options, "address", "source"),
        "spool": spool,
        "container": options.get("container") or "spark-" + hashlib.sha256(spool.encode()).hexdigest()[:12],
        "subscription": options.get("subscription", ""),
        "credit": number(options, "credit", 1000, MOST_CREDIT),
        "spool_limit": number(options, "spoolLimit", 1 << 30),
    }


class AmqpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are record numbers of the spool. Pickled to executors: it holds nothing but options until it is used."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = receiver_options(options)
        self.max_rows = number(options, "maxRowsPerTrigger", 1) if "maxrowspertrigger" in options else 0
        self.receiver: Receiver | None = None
        self.target: int | None = None

    def spool(self) -> Path:
        return Path(self.options["spool"])

    def started(self) -> Receiver:
        """The receiver process, started on first use: in the one process that asks for offsets."""
        if self.receiver is None:
            self.receiver = Receiver(self.options)
        self.receiver.check()
        return self.receiver

    def initialOffset(self) -> dict[str, int]:
        self.started()
        known = segments(self.spool())
        return {"record": known[0][0] if known else 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.max_rows) if self.max_rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.started().await_address()  # else a wrong one would look like nothing to read
        self.target = self.started().head.get()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        receiver = self.started()
        head, done = receiver.head.get(), start["record"]
        if head < done:
            raise SpoolError(
                f"{self.spool()}: the checkpoint has read {done} records of it, but it holds only {head}: it was "
                "emptied or replaced. Put it back from a copy, or give the query a new checkpoint: then it begins with "
                "what is there"
            )
        if receiver.full:
            # Spark commits a batch when it plans the next one. There is none while a full spool gets nothing more.
            receiver.commit(done)
        if self.target is not None:
            head = max(self.target, done)
        if isinstance(limit, ReadMaxRows):
            head = min(head, done + limit.max_rows)
        return {"record": head}

    def reportLatestOffset(self) -> dict[str, int]:
        return {"record": self.started().head.get()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Range]:
        first, last = start["record"], end["record"]
        return [Range(at, min(at + ROWS_PER_PARTITION, last)) for at in range(first, last, ROWS_PER_PARTITION)]

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:
        return batches(read_spool(self.spool(), partition.start, partition.end))

    def commit(self, end: dict[str, int]) -> None:
        """Spark will never ask for anything before `end` again: the receiver deletes whole segments of it."""
        self.started().commit(end["record"])

    def stop(self) -> None:
        if self.receiver is not None:
            self.receiver.stop()


class ReceiverError(Exception):
    """The receiver process has ended: the text says why and what to do."""


class Receiver:
    """The receiver process as the driver-side reader sees it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.source = f"{options['address']!r} at {shown(options['url'])}"
        self.trouble = ""
        self.full = False  # the spool: nothing comes until segments are deleted
        self.had = threading.Event()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "spark.receiver"],
            stdin=subprocess.PIPE,  # the options, then commits; its end is the receiver's sign to end
            stdout=subprocess.PIPE,
            text=True,
        )
        self.committed = -1
        self._tell(options)
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()
        self.head = self._await_spool(Path(options["spool"]))

    def check(self) -> None:
        """Raises ReceiverError where the process has ended."""
        if self.process.poll() is not None:
            self.listener.join(60)  # its last words
            raise ReceiverError(self.trouble or f"amqp source: the receiver ended with {self.process.returncode}")

    def await_address(self) -> None:
        """Returns once the address is attached. Raises ReceiverError: the receiver gives up, in bounded time."""
        while not self.had.wait(0.1):
            self.check()

    def commit(self, end: int) -> None:
        """Have whole segments before record `end` deleted. Nothing is lost if that is never done."""
        if end != self.committed:
            self.committed = end
            self._tell(end)

    def stop(self) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            self.process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()  # what it has not accepted yet comes again
            self.process.wait()

    def _tell(self, line: dict[str, Any] | int) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: check() says so
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            self._heard(json.loads(line))

    def _heard(self, said: dict[str, Any]) -> None:
        """A change of state: told once when trouble begins, and once when it is over."""
        event, before = said["event"], self.trouble
        if event == "attached":
            self.had.set()
            self.trouble = ""
            if before:
                log.warning("amqp source: receiving again from %s", self.source)
        elif event in ("lost", "failed"):
            self.trouble = str(said["reason"])
            if event == "lost" and not before:
                log.warning("amqp source: nothing from %s, trying again: %s", self.source, self.trouble)
        elif event == "full":
            self.full = True
            log.warning(
                "amqp source: the spool holds %d bytes, more than spoolLimit: nothing is received until Spark commits",
                said["bytes"],
            )
        elif event == "room":
            self.full = False
            log.warning("amqp source: the spool has room again, receiving from %s", self.source)

    def _await_spool(self, folder: Path) -> MappedCount:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.check()
            if (folder / "head").exists() and segments(folder):
                return head_of(folder)
            time.sleep(0.02)
        raise SpoolError(f"{folder}: the receiver did not open the spool in {START_SECONDS:.0f} s")
