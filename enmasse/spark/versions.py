"""The releases of PySpark that source and sink work with, and stand-ins for what the older ones lack.

PySpark 4.2 tells a Python source where a batch begins, its limit, and whether it is the last one
(`pyspark.sql.streaming.datasource`). 4.1 has filters and Arrow sinks of streams, 4.0 has neither.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from importlib import util
from typing import Any

import pyspark
from pyspark.sql import datasource
from pyspark.sql.pandas.types import to_arrow_type

from enmasse.spark.errors import QueryError

OLDEST, NEWEST = (4, 0), (4, 2)
"""Releases between these were tried with the tests of source and sink; later ones are let in."""


class VersionError(QueryError, ImportError):
    """Source and sink do not work with the PySpark that is installed: the text names it and those that do."""


def check(version: str = pyspark.__version__) -> None:
    """Check the release of PySpark. Raises VersionError if it is too old."""
    if release(version) < OLDEST:
        oldest, newest = (".".join(map(str, each)) for each in (OLDEST, NEWEST))
        raise VersionError(
            f"enmasse.spark works with PySpark {oldest} to {newest}, and {pyspark.__path__[0]} is PySpark {version}: "
            f"install another one (pip install 'pyspark=={newest}.*'), or use a cluster that has one"
        )


def release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, which may be one of a vendor (4.0.1-amzn-0)."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


check()
HAS_LIMITS = util.find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether Spark gives a source the beginning of a batch, and its limit."""
HAS_ARROW_SINKS = hasattr(datasource, "DataSourceStreamArrowWriter")
"""Whether the sink of a stream is given record batches, not rows."""
StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)
if HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:  # type: ignore[no-redef]  # of an older PySpark
        """Stand-in: a limit of a batch."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]  # of an older PySpark
        """Stand-in: no limit."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]  # of an older PySpark
        """Stand-in: most rows."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]  # of an older PySpark
        """Stand-in: most bytes."""

        max_bytes: int

    @dataclass
    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]  # of an older PySpark
        """Stand-in: fewest rows."""

        min_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]  # of an older PySpark
        """Stand-in: Spark does not ask for it."""


IN_UTC = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}
"""Arguments of `to_arrow_type` for times in UTC, which it always makes before PySpark 4.2."""

__all__ = [
    "HAS_ARROW_SINKS",
    "HAS_LIMITS",
    "IN_UTC",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "VersionError",
    "check",
    "release",
]
