"""Messages that the address may redeliver: those that it had not settled when a connection was lost.

An accepted message is redelivered if the connection, the receiver, or a broker or router on the way dies before the
acceptance has been stored there. Its copy must not become a second record. A message-id alone does not identify a copy:
every device may count from 1. So a copy is a message with the same message-id and the same bare message (AMQP 1.0,
3.2) as one that was in doubt when a connection was lost, and each of those stands for one copy. As long as the
connection stays up there are no copies.

The link has rcv-settle-mode second (2.8.3): we send `accepted`, and the peer settles when it has stored that. If a peer
never settles, what it has stored is unknown: the last `unsure` messages of each receiver count as unsettled.

All receivers of a query have one account, for a copy may come to any of them. Each claims a message before it stores
it. The address may know that a connection is lost before its receiver does, so of two equal messages that two receivers
have, either is a copy of the other or both are messages of their own:

- The first claim stands. While it is not settled, an equal message of another receiver waits (LATER): if the first is
  settled both are messages of their own, if its connection is lost the second is its copy.
- The first was settled, but the second may have come before, over a connection that is dead. That is excluded if the
  address has settled, over the second one's connection, something that was claimed after the first. If it has not, the
  second is given back (RELEASED): the answer to that shows whether the connection lives. Then it is redelivered.
- Settled claims are forgotten when each receiver has shown that, at the latest when there are REMEMBERED others. A
  receiver that has not shown it since then gives back its next message too.

One receiver claims without a key while nothing is in doubt: when its connection is lost, the keys of what was not
settled are read from the spool.

What is in doubt outlives the process. In the spool's folder:

    unsettled     [[record, hash in hex, partition], …] as JSON, without the partition if that is 0: replaced by rename,
                  synced before `settled` moves on

and in the folder of each partition:

    settled       8 bytes, big-endian, mapped: records before it are settled unless `unsettled` names them

A process that is killed leaves both exact if the peer settles in order, as a broker does. If it does not, or after a
loss of power, `settled` may be too low: more is in doubt than was, so an equal message may be left out as a copy.
"""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.message import Sections
from enmasse.spark.spool.segment import SpoolError, partition_folder, read_segment, segments
from enmasse.spark.spool.spool import MappedCount
from enmasse.storage.durable import replace_file

WINDOW = 100_000
"""Most messages in doubt; the oldest are forgotten, so that a copy of one would be a record of its own."""
REMEMBERED = 100_000
"""Most settled claims that are remembered."""
WAIT_SECONDS = 35.0
"""How long a message waits for the settlement of an equal one if the peer does not settle: longer than it takes until
a lost connection is noticed."""
UNREAD = b""
"""In place of a key as long as nothing is compared with it: it is read from the spool if that is to happen."""
FRESH, COPY, LATER, RELEASED = range(4)
"""Verdicts about a claimed message: stored; accepted only; nothing yet; given back to the address."""
Record = tuple[int, int]
"""Partition of the spool, and number of a record in it."""


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


class Claim:
    """Message that a receiver has taken. `number`: when, by the account's count. `at`: its record, None until it is
    stored. `fresh`: that is a record of the receiver's present connection. `key`: that of `key_of`, or UNREAD."""

    __slots__ = ("at", "fresh", "key", "number", "receiver", "settled")

    def __init__(self, key: bytes | None, receiver: int, number: int, at: Record | None = None) -> None:
        self.key, self.receiver, self.number, self.at = key, receiver, number, at
        self.fresh = self.settled = False


class Repeated:
    """Message of a receiver that waits for the fate of an equal one, `since` a time in seconds."""

    __slots__ = ("delivery_id", "receiver", "since")

    def __init__(self, receiver: int, delivery_id: int, since: float) -> None:
        self.receiver, self.delivery_id, self.since = receiver, delivery_id, since


class ReceiverAccount:
    """Connection of one receiver: its claims by delivery-id, and the numbers of messages that it gave back.

    `shown`: claims before this number were made before the address has settled something over its connection.
    """

    __slots__ = ("count", "fresh", "mark", "open", "released", "reports", "shown")

    def __init__(self, count: int, mark: MappedCount) -> None:
        self.count, self.mark = count, mark
        self.reports = True  # the peer settles in a second step
        self.open: dict[int, Claim] = {}
        self.fresh: dict[int, Claim] = {}  # those of them that are records of this connection, in order
        self.released: dict[int, int] = {}
        self.shown = -1

    def move_mark(self) -> None:
        """Put the mark before the first record that is not settled."""
        self.mark.put(next(iter(self.fresh), self.count))


class Unsettled:
    """The records that the address has not settled: of present connections by delivery, of earlier ones in doubt."""

    def __init__(
        self,
        folder: Path,
        counts: Sequence[int],
        unsure: int,
        receivers: int = 1,
        keep: Callable[[bytes], None] | None = None,
    ) -> None:
        """Everything that was unsettled when the last receivers ended is in doubt. Raises SpoolError, OSError.

        counts: the number of records of each partition of the spool in `folder`; receiver n writes partition n.
        unsure: how many messages count as unsettled if the peer does not settle in a second step. keep: replaces the
        file `unsettled` durably; raises SpoolTakenError if another run has taken the spool over.
        """
        self._keep = keep or partial(replace_file, folder / "unsettled")
        self.decided: Callable[[int, int, int], None] = lambda receiver, delivery_id, verdict: None
        self._folder, self._unsure, self._several = folder, unsure, receivers > 1
        self._receivers = [
            ReceiverAccount(count, MappedCount(partition_folder(folder, n) / "settled", create=max(0, count - unsure)))
            for n, count in enumerate(counts)
        ]
        self._active = self._receivers[:receivers]
        self._doubt: dict[bytes, deque[Claim]] = defaultdict(deque)
        self._saved: set[Record] = set()  # the records that the file `unsettled` names
        self._number, self._forgotten = 0, -1
        self._now = 0.0
        self._known: dict[bytes, list[Claim]] = defaultdict(list)  # of several receivers: open, or settled lately
        self._late: deque[Claim] = deque()  # those that are settled, in order
        self._held: dict[bytes, list[Repeated]] = {}
        found = self._found()
        self._save(dict(self._newest(found)))
        for each in self._receivers:
            each.move_mark()
        for at, key in self._newest(found):
            self._doubt[key].append(Claim(key, -1, 0, at))
        (folder / "seen").unlink(missing_ok=True)  # earlier releases kept ids alone there, which prove nothing

    def connected(self, receiver: int, reports: bool) -> None:
        """Note a new connection; reports: its peer settles in a second step, when it has stored the outcome."""
        self._receivers[receiver].reports = reports

    @property
    def compares(self) -> bool:
        """Whether messages are compared, so that claims need keys. One receiver compares those that are in doubt."""
        return self._several or bool(self._doubt)

    def claim(self, receiver: int, claims: Iterable[tuple[int, bytes]]) -> list[int]:
        """Return what becomes of messages, given by delivery-id and key (UNREAD unless `compares`): FRESH ones are
        stored, then `stored` is called; RELEASED ones are given back; for those to be decided LATER, `decided` is
        called."""
        self._number += 1
        if self._doubt or self._several:
            return [self._judge(receiver, delivery_id, key) for delivery_id, key in claims]
        number = self._number
        own = {delivery_id: Claim(key, receiver, number) for delivery_id, key in claims}
        self._receivers[receiver].open.update(own)
        return [FRESH] * len(own)

    def _judge(self, receiver: int, delivery_id: int, key: bytes, late: bool = False) -> int:
        """`late`: the time for which it may wait has ended."""
        mine = self._receivers[receiver]
        doubtful = self._doubt.get(key)
        if doubtful:  # from now on the doubt is about this delivery
            claim = mine.open[delivery_id] = doubtful.popleft()
            if not doubtful:
                del self._doubt[key]
            claim.receiver, claim.number = receiver, self._number
            if self._several:
                self._known[key].append(claim)
            return COPY
        if self._several and (verdict := self._compared(receiver, mine, key, late)) is not None:
            if verdict == LATER:
                self._held.setdefault(key, []).append(Repeated(receiver, delivery_id, self._now))
            else:
                mine.released[delivery_id] = self._number
            return verdict
        claim = mine.open[delivery_id] = Claim(key, receiver, self._number)
        if self._several:
            self._known[key].append(claim)
        return FRESH

    def _compared(self, receiver: int, mine: ReceiverAccount, key: bytes, late: bool) -> int | None:
        """Return LATER or RELEASED if an equal message of another receiver decides so; None: a message of its own."""
        others = [claim for claim in self._known.get(key, ()) if claim.receiver != receiver]
        if not late and any(not claim.settled for claim in others):
            return LATER
        if not mine.reports:
            return None
        latest = max((claim.number for claim in others), default=self._forgotten)
        return RELEASED if max(latest, self._forgotten) > mine.shown else None

    def stored(self, receiver: int, records: Iterable[tuple[int, int]], count: int) -> None:
        """Note the records of FRESH messages, by delivery-id and in order; count: of the records of the partition."""
        mine = self._receivers[receiver]
        for delivery_id, record in records:
            claim = mine.open[delivery_id]
            claim.at, claim.fresh = (receiver, record), True
            mine.fresh[record] = claim
        mine.count = count
        if not mine.reports and len(mine.open) > self._unsure:
            self.settled(receiver, list(mine.open)[: len(mine.open) - self._unsure])
        else:
            mine.move_mark()

    def settled(self, receiver: int, delivery_ids: Iterable[int]) -> None:
        """Note deliveries that will not be redelivered; unknown ones are ignored."""
        mine, stale = self._receivers[receiver], False
        waiting: list[bytes] = []
        for delivery_id in delivery_ids:
            claim = mine.open.pop(delivery_id, None)
            if claim is None:
                mine.shown = max(mine.shown, mine.released.pop(delivery_id, -1))
                continue
            if claim.fresh and claim.at is not None:
                mine.fresh.pop(claim.at[1], None)
            stale = stale or claim.at in self._saved
            if self._several:
                claim.settled = True
                self._late.append(claim)
                if mine.reports:
                    mine.shown = max(mine.shown, claim.number)
                if claim.key is not None and claim.key in self._held:
                    waiting.append(claim.key)
        if stale:
            with contextlib.suppress(OSError):  # the file names too many, which is safe; the next one writes it again
                self._save(self._still_doubtful())
        mine.move_mark()
        self._forget()
        self._decide(waiting)

    def lost(self, receiver: int) -> None:
        """Note that a connection is gone: what it left unsettled is in doubt. Raises OSError if that cannot be written;
        then nothing is changed."""
        mine = self._receivers[receiver]
        self._read(receiver, mine.open.values())
        doubtful = {claim.at: claim for claim in mine.open.values() if claim.at is not None and claim.key is not None}
        everything = self._still_doubtful() | keys_of(doubtful.values())
        kept = dict(self._newest(everything))
        self._save(kept)
        ended = list(mine.open.values())
        mine.open.clear()
        mine.fresh.clear()
        mine.released.clear()
        mine.move_mark()
        for claim in ended:
            self._unknown(claim)
        for _, claim in sorted(doubtful.items()):
            claim.fresh = False
            if claim.key is not None:
                self._doubt[claim.key].append(claim)
        if len(kept) < len(everything):
            for key, claims in list(self._doubt.items()):
                self._doubt[key] = deque(claim for claim in claims if claim.at in kept)
        for key, held in list(self._held.items()):
            self._hold(key, [each for each in held if each.receiver != receiver])
        self._decide([claim.key for claim in ended if claim.key is not None])

    def keep(self, partition: int, end: int) -> None:
        """Keep the keys of records before `end`, whose segments will be deleted. Raises OSError."""
        before = [claim for record, claim in self._receivers[partition].fresh.items() if record < end]
        self._read(partition, before)
        kept = keys_of(before)
        if not self._saved.issuperset(kept):
            self._save(self._still_doubtful() | kept)

    def passed(self, now: float) -> None:
        """Note the time in seconds; decide about messages that wait too long for a peer that does not settle."""
        self._now = now
        for key, held in list(self._held.items()):
            late = [each for each in held if now - each.since >= WAIT_SECONDS]
            if late and not any(self._receivers[c.receiver].reports for c in self._known[key] if not c.settled):
                self._hold(key, [each for each in held if each not in late])
                self._judge_again(key, late, late=True)

    def _hold(self, key: bytes, held: list[Repeated]) -> None:
        if held:
            self._held[key] = held
        else:
            del self._held[key]

    def _decide(self, keys: Iterable[bytes]) -> None:
        """Judge the messages again that wait for one with such a key."""
        for key in keys:
            if held := self._held.pop(key, None):
                self._judge_again(key, held)

    def _judge_again(self, key: bytes, held: list[Repeated], late: bool = False) -> None:
        for each in held:
            self._number += 1
            verdict = self._judge(each.receiver, each.delivery_id, key, late)
            if verdict != LATER:
                self.decided(each.receiver, each.delivery_id, verdict)

    def _forget(self) -> None:
        """Forget settled claims that no receiver can take for copies, and those that are too many."""
        if not self._late:
            return
        shown = min(each.shown for each in self._active)
        while self._late and (self._late[0].number < shown or len(self._late) > REMEMBERED):
            claim = self._late.popleft()
            if claim.number >= shown:
                self._forgotten = max(self._forgotten, claim.number)
            self._unknown(claim)

    def _unknown(self, claim: Claim) -> None:
        if claim.key is not None and (claims := self._known.get(claim.key)):
            if claim in claims:
                claims.remove(claim)
            if not claims:
                del self._known[claim.key]

    def _still_doubtful(self) -> dict[Record, bytes]:
        """Return the records of earlier connections that are in doubt, or redelivered and not settled yet."""
        claims = [claim for claims in self._doubt.values() for claim in claims]
        for each in self._receivers:
            claims += [claim for claim in each.open.values() if not claim.fresh]
        return keys_of(claims)

    def _read(self, partition: int, claims: Iterable[Claim]) -> None:
        """Read the keys of claims that are stored, unless they are known. Raises OSError."""
        unread = {claim.at[1]: claim for claim in claims if claim.key == UNREAD and claim.at is not None}
        if unread:
            keys = dict(self._keys(partition, min(unread), max(unread) + 1))
            for record, claim in unread.items():
                claim.key = keys.get(record)

    def _keys(self, partition: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield number and key of the records of a range that have a message-id."""
        known = segments(partition_folder(self._folder, partition))
        for index, (first, segment) in enumerate(known):
            following = min(end, known[index + 1][0]) if index + 1 < len(known) else end
            if following <= start:
                continue
            for record in read_segment(segment, first, max(first, start), following):
                key = key_of(record.message)
                if key is not None:
                    yield record.offset, key

    def _newest(self, records: dict[Record, bytes]) -> list[tuple[Record, bytes]]:
        """Return at most WINDOW of the records, oldest first."""
        return sorted(records.items(), key=lambda item: (item[0][1], item[0][0]))[-WINDOW:]

    def _save(self, records: dict[Record, bytes]) -> None:
        if self._saved or records:
            lines = [[at[1], key.hex(), at[0]][: 3 if at[0] else 2] for at, key in self._newest(records)]
            self._keep(json.dumps(lines).encode())
        self._saved = set(records)

    def _path(self) -> Path:
        return self._folder / "unsettled"

    def _found(self) -> dict[Record, bytes]:
        """Read the records in doubt: those that the file names, and those at the end of each partition."""
        found: dict[Record, bytes] = {}
        path = self._path()
        if path.exists():
            try:
                for record, key, *partition in json.loads(path.read_bytes()):
                    found[int(*partition or (0,)), int(record)] = bytes.fromhex(key)
            except (ValueError, TypeError) as error:
                raise SpoolError(
                    f"{path}: not readable ({error}). Without it copies of earlier messages cannot be recognised; "
                    "delete it if duplicates do no harm"
                ) from None
        self._saved = set(found)
        for n, each in enumerate(self._receivers):
            found.update(((n, record), key) for record, key in self._keys(n, each.mark.get(), each.count))
        return found


def keys_of(claims: Iterable[Claim]) -> dict[Record, bytes]:
    """Return the keys of claims by record, without those that have none."""
    return {claim.at: claim.key for claim in claims if claim.at is not None and claim.key is not None}
