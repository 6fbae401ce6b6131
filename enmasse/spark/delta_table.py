"""A Delta table, partitioned by day, to which each batch of a query is added exactly once.

The package `deltalake` writes it from the driver: a commit takes milliseconds, and no jar is needed. A commit of a
batch carries the query's id and the batch's number (`txn` of the Delta protocol), by which a repeated one is
recognised.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from enmasse.spark.errors import QueryError

KEEP_HOURS = 168
"""For which files that were compacted stay for readers of earlier versions."""


class DeltaTableError(QueryError):
    """The table cannot be written: the text gives the path and the reason."""


class DeltaTable:
    """The table at a path or URL that `deltalake` knows."""

    def __init__(self, path: str, query: str, most: int) -> None:
        """query: id of the query, which numbers its batches; most: files of a day before they become one."""
        self.path = path
        self.query = query
        self.most = most

    def append(self, rows: pa.Table, epoch: int) -> None:
        """Add the rows of a batch, with the column `day` of their column `start`. Raises DeltaTableError."""
        import deltalake
        from deltalake.exceptions import DeltaError

        try:
            if deltalake.DeltaTable.is_deltatable(self.path):
                last = deltalake.DeltaTable(self.path).transaction_version(self.query)
                if last is not None and last >= epoch:
                    return
            deltalake.write_deltalake(
                self.path,
                rows.append_column("day", pc.cast(rows["start"], pa.date32())),
                mode="append",
                partition_by=["day"],
                schema_mode="merge",
                commit_properties=deltalake.CommitProperties(
                    app_transactions=[deltalake.Transaction(self.query, epoch)]
                ),
            )
            self._compact(deltalake.DeltaTable(self.path), rows)
        except (DeltaError, OSError) as error:
            raise DeltaTableError(f"pipeline: [table] path {self.path}: {error}") from None

    def _compact(self, table: Any, rows: pa.Table) -> None:
        for day in pc.unique(pc.strftime(rows["start"], "%Y-%m-%d")).to_pylist():
            this = [("day", "=", day)]
            if len(table.file_uris(file_pruning_predicate=this)) >= self.most:
                table.optimize.compact(partition_filters=this)
                table.vacuum(KEEP_HOURS, dry_run=False)
