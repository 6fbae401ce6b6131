"""Reads every segment at the start: intact records are replayed, damaged or missing segments repaired and reported.

The end of a segment is known from the catalogue, the head of the next segment, its FOOTER, or its summary. A torn end,
which is unreadable bytes after the last BATCH, is possible only in the last segment, and only if none of these sources
states that it was closed. Everything else that is missing is damage.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from enmasse.logs import log as logs
from services.broker.storage.journal import summary as summaries
from services.broker.storage.journal.chunk import Segment
from services.broker.storage.journal.definitions import StoredDefinitions
from services.broker.storage.journal.file_operations import File, Files, write_new
from services.broker.storage.journal.mending import Range, mend, unreadable
from services.broker.storage.journal.segment import (
    BATCH,
    FIRST,
    FOOTER,
    GROUP,
    HEAD_SIZE,
    OFFSET_BITS,
    decode_head,
    encode_head,
    is_of_another,
    members,
    path_of,
    record,
    walk,
)
from services.broker.storage.journal.summary import Summary

log = logs.get(part="storage")

Replay = Callable[[int, memoryview, int], None]
"""Called with (kind, payload, location); the view is valid during the call only."""

OnDamage = Callable[[int, Sequence[Range], Summary | None, bytes], None]
"""Called with (segment, unreadable ranges, its summary, its bytes as found) before later records are replayed."""

SHORTENED = "the file was shortened; what was behind it is not known"

FOREIGN = "the file is not this segment; what was in that is not known"

NAME = re.compile(r"(\d{10})\.journal")


class SegmentReplay:
    """Result of one `run`: `segments` by number, `damaged` (a line for each place), `damaged_segments` (numbers).

    `finish` replaces damaged files by repaired ones, after the damage was reported: it will not be found again.
    """

    def __init__(
        self, directory: Path, files: Files, catalogue: StoredDefinitions, replay: Replay, on_damage: OnDamage
    ) -> None:
        self.segments: dict[int, Segment] = {}
        self.damaged: list[str] = []
        self.damaged_segments: set[int] = set()
        self.next = 1
        self._directory = directory
        self._files = files
        self._catalogue = catalogue
        self._replay = replay
        self._on_damage = on_damage
        self._previous: Segment | None = None
        self._mended: list[tuple[Path, Path]] = []  # new files and their final names

    def run(self) -> None:
        """Read all segments. Raises OSError if the directory cannot be used or a repaired file cannot be written."""
        names = self._files.list(self._directory)
        there = {int(m[1]) for name in names if (m := NAME.fullmatch(name))}
        with_summary = {int(m[1]) for name in names if (m := summaries.NAME.fullmatch(name))}
        known = set(self._catalogue.segments)
        if self._catalogue.intact:
            for number in with_summary - there - known:  # its deletion was under way
                with contextlib.suppress(OSError):
                    self._files.unlink(summaries.path_of(path_of(self._directory, number)))
        else:
            known |= with_summary
        numbers = sorted(there | known)
        # Numbers of deleted segments are not assigned again: the catalogue is valid up to a location in or after them,
        # so a new definition before that location, which the catalogue does not have yet, would count as deleted.
        self.next = 1 + max([0, (self._catalogue.upto - 1) >> OFFSET_BITS, *numbers])
        ends = self._ends(there)
        for number in numbers:
            segment = Segment(number, path_of(self._directory, number), 0)
            segment.summarised = number in with_summary
            if number in there:
                self._read(segment, ends.get(number), is_last=number == numbers[-1])
            elif not self._make_again(segment):
                continue
            self.segments[number] = self._previous = segment

    def _ends(self, numbers: set[int]) -> dict[int, int]:
        """Return segment → end, from the heads of the segments that follow."""
        ends: dict[int, int] = {}
        for number in sorted(numbers):
            file = self._files.open(path_of(self._directory, number))
            try:
                head = decode_head(file.read(0, FIRST), number)
            finally:
                file.close()
            if head:
                ends[head[0]] = head[1]
        return ends

    # -- one segment ---------------------------------------------------------------------------------------------------
    def _read(self, segment: Segment, by_next: int | None, *, is_last: bool) -> None:
        file = self._files.open(segment.path)
        try:
            segment.size = file.size()
            data = file.read(0, segment.size)
            self._take(segment, file, data, by_next, is_last)
        finally:
            file.close()

    def _take(self, segment: Segment, file: File, data: bytes, by_next: int | None, is_last: bool) -> None:
        number = segment.number
        allocated, closed_at = self._catalogue.segments.get(number, (0, 0))
        end: int | None = closed_at or by_next
        if end is None and is_last and segment.summarised:
            found = summaries.read(self._files, segment.path, number)
            end = found.end if found else None
        is_open = is_last and end is None
        at, bad, kind = self._replayed(data, number, FIRST, len(data) if end is None else min(end, len(data)))
        if end is None and kind == FOOTER and not bad:
            end = at
        elif is_open:
            ranges: list[Range] = []
            if bad:
                at, ranges = _torn(data, number, at)
            if is_of_another(data, number):
                self._damage(segment, data, [(0, FIRST)], FOREIGN)
                self._on_damage(number, (), None, data)
            elif len(data) < allocated:
                self._damage(segment, data, [(at, allocated)], SHORTENED)
                self._on_damage(number, (), None, data)
            elif bad and not ranges:
                log.info("broker.journal.tail-discarded", file=str(segment.path), offset=at, bytes=len(data) - at)
            if ranges:
                self._mend(segment, data, ranges, at)
                return
        elif end is None:
            found = summaries.read(self._files, segment.path, number) if segment.summarised else None
            if found:
                end = found.end
            elif bad:
                end = len(data)
            else:
                self._damage(segment, data, [(at, at)], SHORTENED)
                self._on_damage(number, (), None, data)
                end = at
        if end is not None and at < end:
            self._mend(segment, data, unreadable(data, number, end), end)
            return
        if at > FIRST and decode_head(data, number) is None:
            self._mend(segment, data, [(0, FIRST)], at)
            return
        self._seal(segment, file, at, footer=end is None and at > FIRST)

    def _replayed(self, data: bytes, number: int, at: int, limit: int) -> tuple[int, bool, int]:
        """Replay records until one cannot be read. Return its offset, whether there was one, and the last valid
        kind."""
        view, base, replay = memoryview(data), number << OFFSET_BITS, self._replay
        last = 0
        for kind, start, stop in walk(data, number, limit, at):
            if kind < 0:
                return at, True, last
            at = stop
            last = kind
            if kind == GROUP:
                for inner, begin, end in members(view, start, stop):
                    replay(inner, view[begin:end], base | (begin - HEAD_SIZE))
            elif BATCH < kind < FOOTER:
                replay(kind, view[start:stop], base | (start - HEAD_SIZE))
        return at, False, last

    def _seal(self, segment: Segment, file: File, end: int, *, footer: bool) -> None:
        """Close a segment to further writes and release the space allocated in advance."""
        segment.end = end
        with contextlib.suppress(OSError):
            if footer:
                file.write(end, record(FOOTER, segment.number, end))
                segment.end = end + HEAD_SIZE
            if segment.size > segment.end:
                file.truncate(segment.end)
            if footer or segment.size > segment.end:
                file.sync()
            segment.size = segment.end

    # -- damage --------------------------------------------------------------------------------------------------------
    def _mend(self, segment: Segment, data: bytes, ranges: list[Range], end: int) -> None:
        """Replay the rest of a damaged segment as far as known, and write the repaired segment."""
        number = segment.number
        found = summaries.read(self._files, segment.path, number) if segment.summarised else None
        if decode_head(data, number) is None and ranges[:1] != [(0, FIRST)]:
            ranges = [(0, FIRST), *ranges]
        self._damage(segment, data, ranges, "cannot be read")
        places = [place for place in ranges if place != (0, FIRST)]
        mended = mend(data, number, places, end, self._head(segment, data), found.kept() if found else ())
        self._write(segment, mended)
        self._on_damage(number, places, found, data)
        if places:
            self._replayed(mended, number, places[0][0], end)
        segment.size = segment.end = end
        segment.summarised = False

    def _make_again(self, segment: Segment) -> bool:
        """Rebuild a segment whose file is missing. Return False if nothing is known about it."""
        number = segment.number
        found = summaries.read(self._files, segment.path, number)
        self.damaged_segments.add(number)
        if found is None:
            self._report(segment, "the file is missing; what was in it is not known")
            self._on_damage(number, (), None, b"")
            return False
        self._report(segment, "the file is missing")
        mended = mend(b"", number, [(FIRST, found.end)], found.end, self._head(segment, b""), found.kept())
        self._write(segment, mended)
        self._on_damage(number, [(FIRST, found.end)], found, b"")
        self._replayed(mended, number, FIRST, found.end)
        segment.size = segment.end = found.end
        segment.summarised = False
        return True

    def _head(self, segment: Segment, data: bytes) -> bytes:
        if decode_head(data, segment.number) is not None:
            return data[:FIRST]
        before = self._previous
        return encode_head(segment.number, before.number if before else 0, before.end if before else 0)

    def _write(self, segment: Segment, data: bytes) -> None:
        new = segment.path.with_name(segment.path.name + ".mended")
        write_new(self._files, new, data)
        self._mended.append((new, segment.path))

    def finish(self) -> None:
        """Put the repaired files in place. Raises OSError."""
        for new, path in self._mended:
            self._files.rename(new, path)
        if self._mended:
            self._files.sync_dir(self._directory)
        self._mended.clear()

    def _damage(self, segment: Segment, data: bytes, places: Sequence[Range], what: str) -> None:
        aside = self._directory / "damaged"
        kept: str | None = str(aside / segment.path.name)
        self.damaged_segments.add(segment.number)
        try:
            self._files.make_dir(aside)
            self._files.copy(segment.path, aside / segment.path.name)
        except OSError as e:
            kept = None
            log.warning("broker.journal.copy-failed", file=str(segment.path), reason=str(e))
        for start, stop in places:
            text = f"{stop - start} bytes cannot be read" if what == "cannot be read" else what
            self._report(segment, f"offset {start}: {text}", copy=kept)

    def _report(self, segment: Segment, what: str, **facts: str | None) -> None:
        self.damaged.append(f"{segment.path}: {what}")
        log.warning("broker.journal.damage-found", file=str(segment.path), what=what, **facts)


def _torn(data: bytes, number: int, at: int) -> tuple[int, list[Range]]:
    """Examine the segment that was being written, from its first bad bytes on. Return the start of its torn end, and
    the damage before that, which a later BATCH proves to be damage."""
    ranges: list[Range] = []
    bad: list[Range] = []
    end = at
    for kind, start, stop in walk(data, number, len(data), at):
        if kind < 0:
            bad.append((start, stop))
        elif kind == BATCH:
            ranges += bad
            bad = []
            end = stop
        elif not bad:
            end = stop
    return end, ranges
