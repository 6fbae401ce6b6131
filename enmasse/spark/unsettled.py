"""Messages that the address may redeliver: those that it had not settled when a connection was lost.

An accepted message is redelivered if the connection, the receiver, or a broker or router on the way dies before the
acceptance has been stored there. Its copy must not become a second record. A message-id alone does not identify a copy:
every device may count from 1. So a copy is a message with the same message-id and the same bare message (AMQP 1.0,
3.2) as one that was in doubt when a connection was lost, and each of those stands for one copy. As long as the
connection stays up there are no copies.

The link has rcv-settle-mode second (2.8.3): we send `accepted`, and the peer settles when it has stored that. If a peer
never settles, what it has stored is unknown: the last `unsure` messages count as unsettled.

What is in doubt outlives the process. In the spool's folder:

    settled       8 bytes, big-endian, mapped: records before it are settled unless `unsettled` names them
    unsettled     [[record, hash in hex], …] as JSON: replaced by rename, synced before `settled` moves on

A process that is killed leaves both exact if the peer settles in order, as a broker does. If it does not, or after a
loss of power, `settled` may be too low: more is in doubt than was, so an equal message may be left out as a copy.
"""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict, deque
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from enmasse.amqp.errors import AmqpError
from enmasse.amqp.message import Sections
from enmasse.durable import replace_file
from enmasse.spark.segment import SpoolError, read_segment, segments
from enmasse.spark.spool import MappedCount, SpoolWriter

WINDOW = 100_000
"""Most messages in doubt; the oldest are forgotten, so that a copy of one would be a record of its own."""


def key_of(payload: bytes) -> bytes | None:
    """Return 16 bytes that identify message-id and bare message; None for a message without message-id.

    None also for a message that does not decode: it is passed on unchanged.
    """
    try:
        sections = Sections(payload)
        if sections.message_id is None:
            return None
        return blake2b(sections.content, digest_size=16).digest()
    except AmqpError:
        return None


class Unsettled:
    """The records that the address has not settled: of this connection by delivery, of earlier ones in doubt."""

    def __init__(self, spool: SpoolWriter, unsure: int) -> None:
        """Everything that was unsettled when the last receiver ended is in doubt. Raises SpoolError, OSError.

        unsure: how many messages count as unsettled if the peer does not settle in a second step.
        """
        self._spool, self._unsure = spool, unsure
        self._reports = True  # the peer settles in a second step
        self._open: dict[int, tuple[int, bytes]] = {}  # by delivery-id: record and key
        self._fresh: dict[int, bytes] = {}  # those of them that are records of this connection, in order
        self._doubt: dict[bytes, deque[int]] = defaultdict(deque)
        self._saved: set[int] = set()  # the records that the file `unsettled` names
        self._mark = MappedCount(spool.folder / "settled", create=max(0, spool.count - unsure))
        self._doubtful(self._found())
        (spool.folder / "seen").unlink(missing_ok=True)  # earlier releases kept ids alone there, which prove nothing

    def awaited(self) -> int:
        """Deliveries of this connection that the peer has still to settle; 0 if it does not do that."""
        return len(self._open) if self._reports else 0

    def connected(self, reports: bool) -> None:
        """A new connection; reports: its peer settles in a second step, when it has stored the outcome."""
        self._reports = reports

    def is_copy(self, delivery_id: int, key: bytes) -> bool:
        """Whether a delivery is a copy of a message in doubt; if so, the doubt is about this delivery from now on."""
        records = self._doubt.get(key)
        if not records:
            return False
        self._open[delivery_id] = (records.popleft(), key)
        if not records:
            del self._doubt[key]
        return True

    def add(self, delivery_id: int, record: int, key: bytes) -> None:
        """A delivery has become a record; call it in the order of the records, and `added` after the last."""
        self._open[delivery_id] = (record, key)
        self._fresh[record] = key

    def added(self) -> None:
        """Everything in the spool was added, as far as it has a key."""
        if not self._reports and len(self._open) > self._unsure:
            self.settled(list(self._open)[: len(self._open) - self._unsure])
        else:
            self._move_mark()

    def settled(self, delivery_ids: Iterable[int]) -> None:
        """Note deliveries that will not be redelivered; unknown ones are ignored."""
        stale = False
        for delivery_id in delivery_ids:
            record, _ = self._open.pop(delivery_id, (-1, b""))
            self._fresh.pop(record, None)
            stale = stale or record in self._saved
        if stale:
            with contextlib.suppress(OSError):  # the file names too many, which is safe; the next one writes it again
                self._save(self._still_doubtful())
        self._move_mark()

    def lost(self) -> None:
        """The connection is gone: what it left unsettled is in doubt. Raises OSError if that cannot be written."""
        self._doubtful(self._still_doubtful() | self._fresh)
        self._open.clear()
        self._fresh.clear()

    def forget_segments(self, end: int) -> int:
        """Delete the segments of the spool that end at or before `end`, keep their keys; return how many segments."""
        gone = self._spool.forgettable(end)
        kept = {record: key for record, key in self._fresh.items() if gone and record < gone[-1].end}
        if not self._saved.issuperset(kept):
            self._save(self._still_doubtful() | kept)
        return self._spool.forget(gone)

    def _still_doubtful(self) -> dict[int, bytes]:
        """Return the records of earlier connections that are in doubt, or redelivered and not settled yet."""
        found = {record: key for key, records in self._doubt.items() for record in records}
        found.update((record, key) for record, key in self._open.values() if record not in self._fresh)
        return found

    def _doubtful(self, records: dict[int, bytes]) -> None:
        kept = sorted(records.items())[-WINDOW:]
        self._save(dict(kept))
        self._mark.put(self._spool.count)
        self._doubt.clear()
        for record, key in kept:
            self._doubt[key].append(record)

    def _move_mark(self) -> None:
        self._mark.put(next(iter(self._fresh), self._spool.count))

    def _save(self, records: dict[int, bytes]) -> None:
        if self._saved or records:
            replace_file(self._path(), json.dumps([[r, key.hex()] for r, key in sorted(records.items())]).encode())
        self._saved = set(records)

    def _path(self) -> Path:
        return self._spool.folder / "unsettled"

    def _found(self) -> dict[int, bytes]:
        """Read the records in doubt: those that the files name, and those at the end of the spool."""
        found: dict[int, bytes] = {}
        path, start = self._path(), self._mark.get()
        if path.exists():
            try:
                found = {int(record): bytes.fromhex(key) for record, key in json.loads(path.read_bytes())}
            except (ValueError, TypeError) as error:
                raise SpoolError(
                    f"{path}: not readable ({error}). Without it copies of earlier messages cannot be recognised; "
                    "delete it if duplicates do no harm"
                ) from None
        self._saved = set(found)
        known = segments(self._spool.folder)
        for index, (first, segment) in enumerate(known):
            following = known[index + 1][0] if index + 1 < len(known) else self._spool.count
            if following <= start:
                continue
            for record in read_segment(segment, first, max(first, start), following):
                key = key_of(record.message)
                if key is not None:
                    found[record.offset] = key
        return found
