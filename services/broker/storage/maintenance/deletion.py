"""Deletes segments without live records."""

from __future__ import annotations

from functools import partial

from enmasse.logs import log as logs
from services.broker.storage.journal.chunk import Segment
from services.broker.storage.journal.journal import Journal
from services.broker.storage.live_records import LiveRecords

log = logs.get(part="storage")


class Deletion:
    """Deletes segments; the owner calls `step` periodically."""

    def __init__(self, journal: Journal, live: LiveRecords) -> None:
        self._journal = journal
        self._live = live
        self._busy = False

    def step(self) -> None:
        """Delete dead segments that overrule no other; segments that overruled these follow in later rounds."""
        journal, live = self._journal, self._live
        exists = journal.segment_files.exists
        for number in [n for n in live.usages if not exists(n) and n < journal.tail]:
            live.forget_segment(number)
        if self._busy:
            return
        dead = []
        for number in journal.segments:
            usage = live.usage(number)
            idle = number < journal.tail and number != journal.current
            if idle and usage.live <= 0 and not usage.pins and not live.kept_by(number):
                dead.append(number)
        if dead:
            self._busy = True
            # This commit also makes the removals durable that made these segments dead.
            journal.retire(dead, partial(self._retired, dead))

    def _retired(self, dead: list[int], error: OSError | None) -> None:
        if error is not None:
            self._busy = False  # try again with a later step
            return
        gone = self._journal.segment_files.take_out(dead)
        self._journal.run_aside(partial(self._journal.segment_files.unlink, gone), partial(self._unlinked, gone))

    def _unlinked(self, gone: list[Segment], error: OSError | None) -> None:
        self._busy = False
        numbers = [segment.number for segment in gone]
        if error is not None:  # segments that overrule these stay as well
            log.warning(
                "broker.segment.deletion-failed",
                directory=str(self._journal.directory),
                segments=numbers,
                reason=str(error),
            )
            return
        self._journal.segment_files.left(numbers)
        for number in numbers:
            self._live.forget_segment(number)
        self.step()
