"""Errors that end a query with one sentence, and how the sentence reaches the user.

PySpark passes what a data source raises through the JVM as text: the worker's traceback, then the JVM's. These errors
leave the worker's out, and `sentence` finds theirs in what arrives in the user's program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

OURS = re.compile(r"\benmasse\.spark(?:\.\w+)+\.\w+Error: (.+)")
"""As `traceback` shows an exception of this package: by its full name."""


class QueryError(Exception):
    """Ends a query. Its text is one sentence: what is wrong, in which option or file, and what to do."""


@contextmanager
def plainly() -> Iterator[None]:
    """Let a QueryError leave a PySpark worker without the worker's traceback.

    A context manager, and a decorator of functions. Every error is raised again unchanged.
    """
    try:
        yield
    except QueryError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # read by pyspark.util.handle_worker_exception; the worker then ends
        raise


def sentence(error: BaseException) -> str | None:
    """Return the sentence of the QueryError that made PySpark raise `error`; None if there was another reason."""
    found = OURS.search(str(error))
    return found[1].strip() if found else None
