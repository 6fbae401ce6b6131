"""The source's end in Spark 4.0 and 4.1, which tell it neither where a batch begins nor which one is the last.

Where a batch begins is known from the one before, which is done when Spark asks for the end of the next. So limits hold
but for the first batch after a start, which has what the spool holds (`spoolLimit`). Lag is not reported.
"""

from __future__ import annotations

from typing import Any

from enmasse.spark.errors import plainly
from enmasse.spark.source.source import AmqpStreamReader, SpoolRange, ends_of, offset_of


class EarlierStreamReader(AmqpStreamReader):
    """AmqpStreamReader with the methods that Spark 4.0 and 4.1 call."""

    @plainly()
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # as of those releases
        """Return the end of the next batch. The first one waits for what is on its way, for it may be the only one
        (`availableNow`). Raises ReceiverError, SpoolError."""
        receivers = self.started()
        if self.first:
            self.first = False
            if self.starting == "latest":  # Spark asks for it later
                self.initial = receivers.heads()
            receivers.await_quiet()
        if self.planned is None:  # nothing is known to be processed
            self.planned = receivers.heads()
            return offset_of(self.planned, self.space)
        return super().latestOffset(offset_of(self.planned, self.space), self.getDefaultReadLimit())

    @plainly()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[SpoolRange]:
        """Return the ranges of a batch. Raises SpoolError if the checkpoint is ahead of the spool."""
        receivers = self.started()
        self._done(start, receivers)
        self.planned = ends_of(end, receivers.firsts())
        return super().partitions(start, end)
