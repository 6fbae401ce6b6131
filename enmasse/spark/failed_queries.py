"""Sentences of queries that fail, each shown once: Spark's own line about them is left out (log4j2.properties)."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Any, ClassVar

from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryListener

from enmasse.spark.errors import sentence

GRACE_SECONDS = 5.0
"""Time for a program to end by the error of its query."""
ends = threading.Event()
"""Set when the program ends by an error, which is shown then."""


class FailedQueries(StreamingQueryListener):
    """Shows why a query has failed if the program continues: if it ends by the error, that is shown then.

    Called by Spark itself, with its Java events: to make PySpark's form of a query's progress takes 10 ms and more.
    """

    class Java:
        """Interface that it has for Spark."""

        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    @property
    def _jlistener(self) -> Any:
        assert SparkContext._jvm is not None
        return SparkContext._jvm.PythonStreamingQueryListenerWrapper(self)

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: it has not failed."""

    def onQueryProgress(self, event: Any) -> None:
        """Do nothing: it has not failed."""

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: it has not failed."""

    def onQueryTerminated(self, event: Any) -> None:
        """Show the sentence after a while, if there is one."""
        error = event.exception()
        if text := error.isDefined() and sentence(Exception(error.get())):
            threading.Thread(target=show_later, args=(text,), daemon=True).start()


def show_later(text: str) -> None:
    """Show a sentence unless the program ends by an error before."""
    if not ends.wait(GRACE_SECONDS):
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - in place of Spark's line


def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an uncaught exception, as sys.excepthook: the sentence of a QueryError alone, everything else as usual."""
    ends.set()
    if text := sentence(error):
        print(text, file=sys.stderr)  # noqa: T201 - in place of the interpreter's traceback
    else:
        sys.__excepthook__(kind, error, trace)
