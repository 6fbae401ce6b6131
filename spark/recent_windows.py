"""Newest windows of a pipeline, which the console draws: the driver keeps them in a file (enmasse.spark_jobs)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from enmasse import spark_jobs
from enmasse.api.types import Window

DEVICES = 5
"""Devices whose windows are kept: the first ones that have any."""
EACH = 120
"""Windows of a device that are kept."""


class RecentWindows:
    """Windows of a query, in `file`. What the file has of another query is removed."""

    def __init__(self, file: Path, query: str) -> None:
        self._file = file
        kept = spark_jobs.read_windows(file)
        self._kept = kept if kept is not None and kept.query == query else spark_jobs.Windows(query=query)

    def few(self, windows: DataFrame) -> DataFrame:
        """Return those of a batch's windows that may be kept, a bounded number."""
        known = sorted({each.device for each in self._kept.windows})
        found = windows.where(f.col("device").isin(known)) if len(known) >= DEVICES else windows
        return found.orderBy(f.desc("start"), "device").limit(DEVICES * EACH)

    def add(self, rows: pa.Table) -> None:
        """Add windows, in any order. A window that is there already is replaced, as Spark may repeat a batch."""
        known = {(each.device, each.start): each for each in self._kept.windows}
        devices = {device for device, _ in known}
        columns = ("device", "start", "end", "minimum", "maximum", "mean", "readings")
        for row in sorted(rows.select(columns).to_pylist(), key=lambda each: (each["start"], each["device"])):
            if row["device"] in devices or len(devices) < DEVICES:
                devices.add(row["device"])
                start, end = (row[name].isoformat().replace("+00:00", "Z") for name in ("start", "end"))
                known[row["device"], start] = Window(**{**row, "start": start, "end": end})
        kept = [
            each
            for device in sorted(devices)
            for each in sorted((it for it in known.values() if it.device == device), key=lambda it: it.start)[-EACH:]
        ]
        self._kept = spark_jobs.Windows(query=self._kept.query, windows=kept)
        spark_jobs.write_windows(self._file, self._kept)
