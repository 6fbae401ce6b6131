"""Progress of a pipeline's query in a file of its work folder, one line of JSON for each batch that had messages.

`at` (RFC 3339), `batch`, `seconds` that it took, `behind`, `oldestSeconds`, `spoolBytes`, `available` and `withoutId`
(of the source), the numbers of rows of each kind of `outputs` (`reading`, `bad`, `windows`, …), `badReason`: why one of
the bad ones is no reading, and `late`. Bad ones are logged too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

FILE = "progress.jsonl"
MOST_BYTES = 4 << 20
"""The file is put aside when it has this many, and the one before it is removed."""
log = logging.getLogger(__name__)


class ProgressFile(StreamingQueryListener):
    """Writes the file, as a listener of the session for one run of a query: the next run, in the same session too, has
    a listener of its own."""

    def __init__(self, work: Path, run: str, late: dict[int, int]) -> None:
        """run: its id; late: batch → late readings."""
        self.file = work / FILE
        self.run = run
        self.late = late

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: there is no batch yet."""

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: no batch had messages."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing: the file stays."""

    def onQueryProgress(self, event: Any) -> None:
        """Append the line of a batch. A line that cannot be written is left out: a full disk does not end the query."""
        progress = json.loads(event.progress.json)
        if progress["runId"] != self.run or not progress["numInputRows"]:
            return
        line = line_of(progress, self.late)
        if count := line.get("bad"):
            log.warning("spark.readings.bad batch=%d count=%d reason=%s", line["batch"], count, line["badReason"])
        try:
            if self.file.exists() and self.file.stat().st_size > MOST_BYTES:
                self.file.replace(_before(self.file))
            with self.file.open("a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            log.warning("spark.progress.failed file=%s reason=%s", self.file, error)


def line_of(progress: dict[str, Any], late: dict[int, int]) -> dict[str, Any]:
    """Return what the file keeps of a query's progress."""
    lag = progress["sources"][0].get("latestOffset") or {}
    return {
        "at": progress["timestamp"],
        "batch": progress["batchId"],
        "seconds": progress["durationMs"].get("triggerExecution", 0) / 1000,
        **{name: lag.get(name) for name in ("behind", "oldestSeconds", "spoolBytes", "available", "withoutId")},
        **progress.get("observedMetrics", {}).get("pipeline", {}),
        "late": late.get(progress["batchId"], 0),
    }


def lines(work: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a pipeline's work folder, in order; a line that was cut off is left out."""
    file = work / FILE
    for each in (_before(file), file):
        if each.exists():
            for line in each.read_text().splitlines():
                try:
                    yield json.loads(line)
                except ValueError:
                    continue


def _before(file: Path) -> Path:
    return file.with_name(f"before-{file.name}")
