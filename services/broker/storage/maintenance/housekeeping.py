"""Periodic work, twice a second: checks space and errors; deletes, compacts and summarises segments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from enmasse.logs import log as logs
from enmasse.storage.disk_errors import disk_error
from services.broker.storage.journal.file_operations import Files
from services.broker.storage.journal.records import REPEATED
from services.broker.storage.maintenance.backup import Backup
from services.broker.storage.maintenance.compaction import Compactor
from services.broker.storage.maintenance.deletion import Deletion
from services.broker.storage.maintenance.summarising import Summarising
from services.broker.storage.startup_recovery import Opened

log = logs.get(part="storage")

TICK_SECONDS = 0.5
RESERVE = 4  # free space, in segments, below which no messages are accepted


class Housekeeping:
    """Runs the periodic work: by `tick`, or by `start` until `stop`."""

    def __init__(
        self,
        directory: Path,
        files: Files,
        opened: Opened,
        on_space: Callable[[], None],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        """`on_space`: called when `full` or `unusable` has changed."""
        journal, live = opened.journal, opened.live
        self.full = False  # no further messages may be stored
        self.unusable = False  # `full` for another reason than lack of space
        self.trouble = ""
        self._directory = directory
        self._files = files
        self._lock = opened.lock
        self._journal = journal
        self._losses = opened.losses
        self._summarising = Summarising(journal, live, files, REPEATED)
        self._deletion = Deletion(journal, live)
        self._compactor = Compactor(journal, live, opened.writer, self._deletion, loop)
        self._backup = Backup(directory, files, journal, live)
        self._on_space = on_space
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to tick every TICK_SECONDS, if there is an event loop."""
        if self._loop:
            self._timer = self._loop.call_later(TICK_SECONDS, self._timed)

    def stop(self) -> None:
        """Stop, close the journal and summarise its segments. Blocks."""
        if self._timer:
            self._timer.cancel()
        self._journal.close(self._summarising.finish)

    def _timed(self) -> None:
        try:
            self.tick()
        except Exception:
            log.exception("broker.housekeeping.failed", directory=str(self._directory))
        if self._journal.error is None:
            self._journal.keep_spare()
        self.start()

    def tick(self) -> None:
        """Run one round: delete dead segments, compact a sparse one, prove an idle journal, write summaries, make a
        requested backup; after a failed write, retry it."""
        self.check_space()
        self._losses.check()
        self._summarising.step()
        self._deletion.step()
        self._compactor.step(full=self.full)
        self._backup.step()
        if self._journal.gathered:
            self._journal.commit()
        elif self._journal.error is not None:
            self._journal.retry()
        else:
            self._journal.prove()

    def check_space(self) -> None:
        """Update `full`, `unusable` and `trouble`."""
        before = self.full, self.unusable
        try:
            trouble = self._find_trouble()
        except OSError as error:
            self.full = self.unusable = True
            trouble = f"data directory {self._directory}: {disk_error(error)}; messages are refused until then"
        changed = before != (self.full, self.unusable)
        if trouble and (changed or not self.trouble):
            log.warning("broker.store.failed", reason=trouble)
        elif self.trouble and not trouble:
            log.warning("broker.store.recovered", directory=str(self._directory))
        self.trouble = trouble
        if changed:
            self._on_space()

    def _find_trouble(self) -> str:
        """Set `full` and `unusable`. Return why no further messages are stored, empty if they are. Raises OSError."""
        self.full = self.unusable = True
        if not self._files.holds(self._lock, self._directory / "LOCK"):
            return (
                f"data directory {self._directory} was deleted or replaced: messages are refused, those held can be"
                " consumed; restart the broker to begin with what the directory holds then"
            )
        self.unusable = False
        free, need = self._files.free(self._directory), RESERVE * self._journal.segment_size
        if free < need:
            return (
                f"data directory {self._directory}: disk full, {free >> 20} MiB free of {need >> 20} that must be;"
                " messages are refused until there is space"
            )
        self.full = False
        error = self._journal.error
        if error is None:
            return ""
        return f"data directory {self._directory}: the last write failed: {disk_error(error)}; messages are refused"
