"""A program to be killed: `python -m tests.spark.adding FORM FOLDER [WHERE]` adds batches to a table until it is.

Batch n has two rows of each of two days. `FOLDER/noted` has the last batch that was noted as done, as a checkpoint; the
program begins with the one behind it, also where that was added before. WHERE: `before` or `after` the exchange of two
folders in a compaction, where it kills itself.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from enmasse.spark import parquet_table
from enmasse.spark.delta_table import DeltaTable
from enmasse.spark.parquet_table import ParquetTable

START = pa.timestamp("us", tz="UTC")
DAYS = [dt.datetime(2020, 1, day, hour, tzinfo=dt.UTC) for day in (1, 2) for hour in (0, 23)]


def rows(batch: int) -> pa.Table:
    """The rows of a batch, which has more columns from the tenth on."""
    columns: dict[str, Any] = {"device": [f"d{batch}"] * len(DAYS), "start": pa.array(DAYS, START)}
    if batch >= 10:
        columns["quantiles"] = [[float(batch)]] * len(DAYS)
    return pa.table(columns)


def table_of(form: str, folder: Path) -> Any:
    path = folder / "table"
    return ParquetTable(path, "q", 3) if form == "parquet" else DeltaTable(str(path), "q", 3)


def kill_at(where: str) -> None:
    """Let the first exchange of folders be the end of this process."""
    exchange = parquet_table._exchange

    def killing(one: Path, other: Path) -> None:
        if where == "after":
            exchange(one, other)
        os.kill(os.getpid(), signal.SIGKILL)

    parquet_table._exchange = killing


def add(form: str, folder: Path) -> None:
    noted = folder / "noted"
    begin = int(noted.read_text()) + 1 if noted.exists() else 0
    table = table_of(form, folder)
    for batch in itertools.count(begin):
        table.append(rows(batch), batch)
        new = folder / "new"
        new.write_text(str(batch))
        print(batch, flush=True)
        new.replace(noted)


if __name__ == "__main__":
    form, folder, *where = sys.argv[1:]
    if where:
        kill_at(where[0])
    add(form, Path(folder))
