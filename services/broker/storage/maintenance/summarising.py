"""Writes the summaries of closed segments, one at a time, in the background."""

from __future__ import annotations

from array import array
from functools import partial

from enmasse.logs import log as logs
from services.broker.storage.index import BLOCK_BITS, MANY
from services.broker.storage.journal import summary
from services.broker.storage.journal.chunk import Segment
from services.broker.storage.journal.file_operations import Files
from services.broker.storage.journal.journal import Journal
from services.broker.storage.journal.segment import HEAD_SIZE
from services.broker.storage.journal.segment_files import DamagedError, good_records, too_short
from services.broker.storage.journal.summary import MessageIndex, Summary
from services.broker.storage.live_records import LiveRecords

log = logs.get(part="storage")

PAUSE = 60  # steps until the next attempt after a failed write


class Summarising:
    """Writes summaries; the owner calls `step` periodically and `finish` at the end."""

    def __init__(self, journal: Journal, live: LiveRecords, files: Files, kinds: frozenset[int]) -> None:
        """`kinds`: records that a summary repeats."""
        self._journal = journal
        self._live = live
        self._files = files
        self._kinds = kinds
        self._busy = False
        self._pause = 0

    @property
    def waiting(self) -> list[int]:
        """Return the closed segments without a summary."""
        tail, current = self._journal.tail, self._journal.current
        return [n for n, s in self._journal.segments.items() if not s.summarised and n < tail and n != current]

    def step(self) -> None:
        """Begin the next summary, unless one is being made or it is to wait."""
        if self._pause:
            self._pause -= 1
        elif not self._busy and (numbers := self.waiting):
            self._begin(numbers[0])

    def finish(self) -> None:
        """Write the summaries of this run's segments; those of earlier runs are left to the next start."""
        for number in self.waiting:
            if self._journal.segments[number].kept is not None:
                self._begin(number)

    def _begin(self, number: int) -> None:
        self._busy = True
        usage = self._live.usage(number)
        usage.pins += 1
        segment = self._journal.segments[number]

        def done(error: Exception | None) -> None:
            self._busy = False
            usage.pins -= 1
            self._written(segment, error)

        self._journal.run_aside(partial(self._write, segment, self._contents(number)), done)

    def _written(self, segment: Segment, error: Exception | None) -> None:
        if isinstance(error, OSError):
            self._pause = PAUSE
        else:  # a damaged segment is left to the next start
            segment.summarised = True
            segment.kept = None
        if error is not None:
            log.warning("broker.segment.summary-failed", file=str(segment.path), reason=str(error))

    def _contents(self, number: int) -> MessageIndex:
        """Return the messages of a segment, including messages of neighbouring segments in the same blocks."""
        live = self._live
        usage = live.usage(number)
        low = usage.first >> BLOCK_BITS
        high = min((u.first for n, u in live.usages.items() if n > number), default=live.last_id) >> BLOCK_BITS
        blocks = live.index.blocks
        numbers = {message >> BLOCK_BITS for message in usage.copied}
        numbers.update(range(low, high + 1) if high - low < len(blocks) else (n for n in blocks if low <= n <= high))
        found = sorted(numbers & blocks.keys())
        usage.copied = array("Q")
        many: dict[int, tuple[int, ...]] = {}
        for block in found:
            queues = blocks[block].queues
            if MANY in queues:
                some = (block << BLOCK_BITS | i for i, queue in enumerate(queues) if queue == MANY)
                many.update((message, live.index.many[message]) for message in some)
        return MessageIndex(
            live.last_id,
            found,
            b"".join([blocks[n].queues.tobytes() for n in found]),
            b"".join([blocks[n].locations.tobytes() for n in found]),
            many,
        )

    # -- in the thread, if there is one --------------------------------------------------------------------------------
    def _write(self, segment: Segment, contents: MessageIndex) -> Exception | None:
        try:
            kept = segment.kept
            if kept is None:
                kept = self._read_kept(segment)
            offsets, records = [at for at, _ in kept], [record for _, record in kept]
            summary.write(self._files, segment.path, Summary(segment.number, segment.end, contents, offsets, records))
        except (OSError, DamagedError) as error:
            return error
        return None

    def _read_kept(self, segment: Segment) -> list[tuple[int, bytes]]:
        """Read records through a file of its own, because the loop's files are not for threads. Raises OSError,
        DamagedError."""
        file = self._files.open(segment.path)
        try:
            data = file.read(0, segment.end)
        finally:
            file.close()
        if len(data) < segment.end:
            raise too_short(segment)
        return [
            (start - HEAD_SIZE, data[start - HEAD_SIZE : stop])
            for kind, start, stop in good_records(segment, data)
            if kind in self._kinds
        ]
