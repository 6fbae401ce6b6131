"""Kills a process of the driver exactly where a crash is worst, when the soak has armed that moment.

SOAK_ARMED names a folder. Where it has a file with the name of a moment, the first process that comes there takes the
file away and sends itself SIGKILL. Python workers of executors do not see the folder SOAK_WALL, as if they were on
another machine: they read that spool over Arrow Flight.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SYNCED, DELETING, SERVING = "synced", "deleting", "serving"
"""Moments: a receiver has synced and not accepted; it has deleted the index of a segment, and not yet the segment; the
reader's server of ranges has sent a part of one."""


def die_if_armed(moment: str) -> None:
    try:
        os.rename(f"{os.environ['SOAK_ARMED']}/{moment}", f"{os.environ['SOAK_ARMED']}/{moment}-{os.getpid()}")
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def in_receiver() -> None:
    sync, unlink = os.fdatasync, os.unlink

    def synced(fd: Any) -> None:
        sync(fd)
        die_if_armed(SYNCED)

    def deleted(path: Any, **options: Any) -> None:
        if str(path).endswith(".seg"):
            die_if_armed(DELETING)
        unlink(path, **options)

    os.fdatasync, os.unlink = synced, deleted


def in_reader() -> None:
    from enmasse.spark.source.flight import SpoolServer

    kind: Any = SpoolServer
    records = kind._records

    def served(server: Any, partition: int, start: int, end: int) -> Iterator[Any]:
        for batch in records(server, partition, start, end):
            yield batch
            die_if_armed(SERVING)

    kind._records = served


def in_executor() -> None:
    wall = Path(os.environ["SOAK_WALL"])

    def hidden(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | os.PathLike) and wall in Path(arguments[0]).parents:
            raise FileNotFoundError(f"on another machine: {arguments[0]}")

    sys.addaudithook(hidden)


PLACES = {
    "enmasse.spark.receiver.spool_receiver": in_receiver,
    "pyspark.sql.streaming.python_streaming_source_runner": in_reader,
    "pyspark.daemon": in_executor,
}
"""By the module that a process runs."""
if "SOAK_ARMED" in os.environ and sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2] in PLACES:
    PLACES[sys.orig_argv[2]]()
