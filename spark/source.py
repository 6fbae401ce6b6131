"""`spark.readStream.format("amqp")`: a PySpark streaming data source over the spool."""

from __future__ import annotations

import hashlib
import itertools
import json
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

from spark.receiver import identity
from spark.schema import batches
from spark.spool import Head, SpoolError, forget, read_segment, read_spool, segments

ROWS_PER_PARTITION = 50_000
START_SECONDS = 30.0


class Range(InputPartition):
    """Records `start` <= offset < `end` of the spool."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


def required(options: dict[str, str], name: str) -> str:
    value = options.get(name, "")
    if not value:
        raise ValueError(f'amqp source: the option "{name}" is missing: .option("{name}", …)')
    return value


def receiver_options(options: dict[str, str]) -> dict[str, Any]:
    """The options of the receiver process, checked. Raises ValueError naming the option."""
    address, spool = required(options, "address"), str(Path(required(options, "spool")).absolute())
    url = options.get("url", "amqp://127.0.0.1:5672")
    if not url.startswith(("amqp://", "amqps://")):
        raise ValueError(f'amqp source: option "url" must begin with amqp:// or amqps://, not {url!r}')
    return {
        "url": url,
        "address": address,
        "spool": spool,
        "container": options.get("container") or "spark-" + hashlib.sha256(spool.encode()).hexdigest()[:12],
        "subscription": options.get("subscription", ""),
        "credit": number(options, "credit", 1000),
        "spool_limit": number(options, "spoollimit", 1 << 30),
    }


def number(options: dict[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f'amqp source: option "{name}" must be a positive number, not {text!r}')
    return int(text)


class AmqpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are record numbers of the spool. Pickled to executors: it holds nothing but options until it is used."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = receiver_options(options)
        self.max_rows = number(options, "maxrowspertrigger", 0) if "maxrowspertrigger" in options else 0
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
        self.target = self.started().head.get()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        head = self.started().head.get() if self.target is None else self.target
        if isinstance(limit, ReadMaxRows):
            head = min(head, start["record"] + limit.max_rows)
        return {"record": max(head, start["record"])}

    def reportLatestOffset(self) -> dict[str, int]:
        return {"record": self.started().head.get()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Range]:
        first, last = start["record"], end["record"]
        return [Range(at, min(at + ROWS_PER_PARTITION, last)) for at in range(first, last, ROWS_PER_PARTITION)]

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:
        return batches(read_spool(self.spool(), partition.start, partition.end))

    def commit(self, end: dict[str, int]) -> None:
        """Spark will never ask for anything before `end` again: whole segments of it are deleted."""
        folder, known = self.spool(), segments(self.spool())
        ids: list[str] = []
        for (first, path), (following, _) in itertools.pairwise(known):
            if following <= end["record"]:
                found = (identity(record.message) for record in read_segment(path, first, first, following))
                ids.extend(one for one in found if one is not None)
        forget(folder, end["record"], ids)

    def stop(self) -> None:
        if self.receiver is not None:
            self.receiver.stop()


class Receiver:
    """The receiver process as the driver-side reader sees it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.trouble = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "spark.receiver", json.dumps(options)],
            stdin=subprocess.PIPE,  # its end is the receiver's sign to end
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        self.head = self._await_spool(Path(options["spool"]))

    def check(self) -> None:
        if self.process.poll() is not None:
            raise SpoolError(f"the AMQP receiver has ended: {self.trouble or f'status {self.process.returncode}'}")

    def stop(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(timeout=10)

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            event = json.loads(line)
            self.trouble = event.get("reason", "") if event["event"] in ("lost", "failed") else ""

    def _await_spool(self, folder: Path) -> Head:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.check()
            if (folder / "head").exists() and segments(folder):
                return Head(folder, create=False)
            time.sleep(0.02)
        raise SpoolError(f"{folder}: the receiver did not open the spool in {START_SECONDS:.0f} s")
