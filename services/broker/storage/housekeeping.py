"""What is done twice a second: is there space, is something wrong, what can be deleted, copied, summarised, proved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from enmasse import log as logs
from services.broker.storage.backup import Backup
from services.broker.storage.compaction import Compactor
from services.broker.storage.deletion import Deletion
from services.broker.storage.files import Files
from services.broker.storage.opening import Opened
from services.broker.storage.records import REPEATED
from services.broker.storage.summarising import Summarising

log = logs.get(part="storage")

TICK_SECONDS = 0.5
RESERVE = 4  # segments' worth of free space below which no more messages are taken


class Housekeeping:
    """`tick`, or `start` and `stop`."""

    def __init__(
        self,
        directory: Path,
        files: Files,
        opened: Opened,
        on_space: Callable[[], None],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        """`on_space`: called if `full` has changed."""
        journal, live = opened.journal, opened.live
        self.full = False  # no more messages are to be stored
        self.unusable = False  # not for want of space
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
        if self._loop:
            self._timer = self._loop.call_later(TICK_SECONDS, self._timed)

    def stop(self) -> None:
        """No more of it; the journal is closed, and what is in its segments summarised. Blocks."""
        if self._timer:
            self._timer.cancel()
        self._journal.close(self._summarising.finish)

    def _timed(self) -> None:
        try:
            self.tick()
        except Exception:
            log.exception("store.housekeeping-failed", directory=str(self._directory))
        if self._journal.error is None:
            self._journal.keep_spare()
        self.start()

    def tick(self) -> None:
        """Deletes what is dead, compacts what is sparse, proves what is idle, writes down what closed segments hold,
        makes a backup that is asked for; after a failed write tries one."""
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
        """Finds `full` and `trouble`."""
        was_full = self.full
        try:
            trouble = self._find_trouble()
        except OSError as error:
            self.full = self.unusable = True
            trouble = (
                f"data directory {self._directory}: {error.strerror or error}; messages are refused until it is back"
            )
        if trouble and not self.trouble:
            log.warning("store.trouble", reason=trouble)
        elif self.trouble and not trouble:
            log.warning("store.well-again", directory=str(self._directory))
        self.trouble = trouble
        if self.full != was_full:
            self._on_space()

    def _find_trouble(self) -> str:
        """Sets `full` and `unusable`; why nothing more is stored. Raises OSError."""
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
        return "" if error is None else f"data directory {self._directory}: the last write failed: {error}"
