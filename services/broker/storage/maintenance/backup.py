"""Backup of a running broker: the operator creates an empty folder `backup` in the data directory, and the broker fills
it with a data directory as of that moment, by hard links to files that no longer change. FORMAT is written last: once
it exists, the backup is complete.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from enmasse.logs import log as logs
from services.broker.storage import ids
from services.broker.storage.format import StoreError, check_format, write_format
from services.broker.storage.journal import summary
from services.broker.storage.journal.chunk import Segment
from services.broker.storage.journal.definitions import NAME as CATALOGUE
from services.broker.storage.journal.file_operations import Files, write_new
from services.broker.storage.journal.journal import Journal
from services.broker.storage.journal.segment import OFFSET_BITS
from services.broker.storage.live_records import LiveRecords

log = logs.get(part="storage")

NAME = "backup"


class Backup:
    """Makes backups; the owner calls `step` periodically."""

    def __init__(self, directory: Path, files: Files, journal: Journal, live: LiveRecords) -> None:
        self._directory = directory / NAME
        self._files = files
        self._journal = journal
        self._live = live
        self._busy = False
        self._reason = ""  # why the last attempt failed
        self._stop = 0  # the backup contains the segments below this number

    def step(self) -> None:
        """Begin a backup if the folder exists and is empty, or has one that was broken off: this process makes none."""
        if self._busy:
            return
        try:
            found = self._files.list(self._directory)
            if "FORMAT" in found:
                return
            for name in found:
                self._files.unlink(self._directory / name)
        except OSError:
            return  # no backup is requested, or it is being taken away
        self._busy = True
        # From then on everything accepted so far is in closed segments, which no longer change.
        self._stop = self._journal.end_segment(self._begin)

    def _begin(self, error: OSError | None) -> None:
        if error is not None:
            self._busy = False  # try again with a later step
            return
        segments = [segment for number, segment in self._journal.segments.items() if number < self._stop]
        catalogue = self._journal.catalogue.content(self._stop << OFFSET_BITS, {s.number for s in segments})
        for segment in segments:
            self._live.usage(segment.number).pins += 1
        self._journal.run_aside(partial(self._fill, segments, catalogue), partial(self._done, segments))

    def _fill(self, segments: list[Segment], catalogue: bytes) -> OSError | None:
        """Fill the folder. Runs in a thread."""
        try:
            for segment in segments:
                self._take(segment.path)
                if segment.summarised:
                    self._take(summary.path_of(segment.path))
            if ids.NAME in self._files.list(self._directory.parent):
                self._take(self._directory.parent / ids.NAME)  # a restored directory must not assign an id twice either
            write_new(self._files, self._directory / CATALOGUE, catalogue)
            write_format(self._directory, self._files, check_format(self._directory.parent, self._files))
        except (OSError, StoreError) as error:
            return error if isinstance(error, OSError) else OSError(str(error))
        return None

    def _take(self, path: Path) -> None:
        new = self._directory / path.name
        try:
            self._files.link(path, new)
        except OSError:  # not every file system has links
            self._files.copy(path, new)

    def _done(self, segments: list[Segment], error: OSError | None) -> None:
        self._busy = False
        for segment in segments:
            self._live.usage(segment.number).pins -= 1
        if error is not None:
            if str(error) != self._reason:  # repeated while the folder is empty
                log.warning("broker.backup.failed", directory=str(self._directory), reason=str(error))
            self._reason = str(error)
        else:
            self._reason = ""
            log.info("broker.backup.made", directory=str(self._directory), segments=len(segments))
