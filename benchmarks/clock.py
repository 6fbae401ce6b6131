"""A source for Spark whose rows come at a steady rate and cost nothing: the floor for any Python source."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


class Range(InputPartition):
    """Rows `start` <= n < `end`, at `rate` a second from `since` (seconds since 1970) on."""

    def __init__(self, start: int, end: int, rate: int, since: float) -> None:
        self.start, self.end, self.rate, self.since = start, end, rate, since


class Reader(DataSourceStreamReader):
    """The offset is a number of rows, of which there is one more every 1/rate seconds from the first question on."""

    def __init__(self, rate: int) -> None:
        self.rate, self.since = rate, 0.0

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def latestOffset(self) -> dict[str, int]:
        self.since = self.since or time.time()
        return {"row": int((time.time() - self.since) * self.rate)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Range]:
        return [Range(start["row"], end["row"], self.rate, self.since)] if start != end else []

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        step, start = 1000 / partition.rate, partition.since * 1000
        created = pa.array([int(start + n * step) for n in range(partition.start, partition.end)], pa.int64())
        yield pa.record_batch({"created": created, "body": pa.array([b"x" * 200] * len(created), pa.binary())})


class Clock(DataSource):
    """format("clock"), option `rate`."""

    @classmethod
    def name(cls) -> str:
        return "clock"

    def schema(self) -> str:
        return "created bigint, body binary"

    def streamReader(self, schema: Any) -> Reader:
        return Reader(int(self.options["rate"]))
