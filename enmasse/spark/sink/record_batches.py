"""Rows as record batches, for the sink of PySpark 4.0."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.types import StructType

MOST = 10_000
"""Rows of a batch."""


def batches(rows: Iterator[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield record batches of at most MOST rows, with the columns of the schema."""
    from pyspark.sql.conversion import LocalDataToArrowConversion  # internal: of this release alone

    while some := list(itertools.islice(rows, MOST)):
        yield from LocalDataToArrowConversion.convert(some, schema, False).to_batches()
