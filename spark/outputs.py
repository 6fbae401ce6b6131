"""Outputs of a pipeline: where the rows of a batch go, each exactly once though Spark repeats a batch after a failure.

Each stage makes rows of one kind; the batches of a query have all of them, and `Outputs` divides them. A message is
stored once by its message-id, a table knows the batches it has, a repeated update of the last values changes nothing.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from enmasse.spark import stages
from enmasse.spark.sink.message_ids import repeatable
from spark.last_values import LastValues
from spark.recent_windows import RecentWindows

READING = ("device", "time", "value", "offset")
MESSAGES = ("bad", "windows", "alerts", "commands", "scores")
"""Kinds of rows that can be messages, in the order of their stages."""
log = logging.getLogger(__name__)


class OutputTable(Protocol):
    """A table to which the rows of a batch are added once."""

    def append(self, rows: pa.Table, epoch: int) -> None: ...


def messages(kind: str, addressed: DataFrame, *beside: str) -> DataFrame:
    """Return rows of `stages.ADDRESSED` as rows of the union; an empty address becomes null."""
    rows = addressed.withColumn("address", f.nullif("address", f.lit("")))
    return rows.select(f.lit(kind).alias("kind"), *stages.ADDRESSED, *beside)


def readings(parsed: DataFrame, dead_letters: str) -> DataFrame:
    """Return what `stages.parsed` makes as rows of the union, good readings and bad ones: for both together Spark reads
    and parses the messages once. dead_letters: address of the bad ones; empty: they are counted."""
    good = f.col("error").isNull()
    reason = f.create_map(f.lit("DeadLetterReason"), "error")
    return parsed.select(
        f.when(good, "reading").otherwise("bad").alias("kind"),
        f.when(~good, f.nullif(f.lit(dead_letters), f.lit(""))).alias("address"),
        f.when(~good, f.col("body")).alias("body"),
        f.lit(None).cast("string").alias("content_type"),
        f.when(~good, reason).alias("application_properties"),
        f.lit(None).cast("bigint").alias("ttl"),
        f.when(good, f.struct(*READING)).alias("reading"),
    )


def together(parts: list[DataFrame]) -> DataFrame:
    """Return the rows of all parts, counted by kind in the query's progress (`observedMetrics`, "pipeline"), with a
    reason of the bad ones."""
    rows = functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)
    counts = [f.count_if(f.col("kind") == kind).alias(kind) for kind in ("reading", *MESSAGES)]
    reason = f.when(f.col("kind") == "bad", f.col("application_properties")["DeadLetterReason"])
    return rows.observe("pipeline", *counts, f.min(reason).alias("badReason"))


@dataclass
class Outputs:
    """The outputs of one query, as the function that `foreachBatch` calls."""

    sink: Mapping[str, str]
    """Options of the sink."""
    checkpoint: Path
    make_table: Callable[[str], OutputTable] | None = None
    """Query id → the table of windows."""
    make_recent: Callable[[str], RecentWindows] | None = None
    """Query id → the newest windows, for the console."""
    last: LastValues | None = None
    window: str = ""
    """Width of the windows; without any no reading is late."""
    late_address: str = ""
    late: dict[int, int] = field(default_factory=dict)
    """Batch → late readings, of the newest batches."""
    _table: OutputTable | None = None
    _recent: RecentWindows | None = None

    def __call__(self, batch: DataFrame, epoch: int) -> None:
        """Bring the rows of a batch to where they belong. Raises QueryError."""
        batch.persist()  # computed once: the state of the stages is too
        try:
            self._all(batch, epoch)
        finally:
            batch.unpersist()

    def _all(self, batch: DataFrame, epoch: int) -> None:
        query = json.loads((self.checkpoint / "metadata").read_text())["id"]
        columns = batch.columns
        addressed = batch.where("address is not null").select("kind", *stages.ADDRESSED)
        if "reading" in columns:
            readings = batch.where("reading is not null").select("reading.*")
            if self.window:
                addressed = self._with_late(addressed, readings, epoch)
            if self.last is not None:
                self.last.update(stages.latest(readings).toArrow())
        if "window" in columns and (self.make_table is not None or self.make_recent is not None):
            self._keep_windows(batch.where("window is not null").select("window.*"), query, epoch)
        # Without the kind equal rows of two stages would be one.
        writer = repeatable(addressed).drop("kind").write.format("amqp").options(**self.sink)
        writer.option("writeId", f"{query}-{epoch}").mode("append").save()

    def _keep_windows(self, windows: DataFrame, query: str, epoch: int) -> None:
        if self._table is None and self.make_table is not None:
            self._table = self.make_table(query)
        if self._recent is None and self.make_recent is not None:
            self._recent = self.make_recent(query)
        if self._table is None and self._recent is not None:
            windows = self._recent.few(windows)
        rows = windows.toArrow()
        if not rows.num_rows:
            return
        if self._table is not None:
            self._table.append(rows, epoch)
        if self._recent is not None:
            self._recent.add(rows)

    def _with_late(self, addressed: DataFrame, readings: DataFrame, epoch: int) -> DataFrame:
        watermark = watermark_of(self.checkpoint, epoch - 1)
        late = stages.late(readings, self.window, watermark)
        self.late[epoch] = late.count() if watermark else 0
        self.late.pop(epoch - 100, None)
        if not self.late[epoch]:
            return addressed
        log.warning("spark.readings.late batch=%d count=%d", epoch, self.late[epoch])
        if not self.late_address:
            return addressed
        found = stages.as_json(late.drop("offset"), self.late_address)
        return addressed.unionByName(messages("late", found))


def watermark_of(checkpoint: Path, epoch: int) -> int:
    """Return the watermark that Spark noted for a batch in its checkpoint, in milliseconds since 1970; 0 without."""
    try:
        return int(json.loads((checkpoint / "offsets" / str(epoch)).read_text().splitlines()[1])["batchWatermarkMs"])
    except FileNotFoundError:  # before the first batch
        return 0
