"""The payloads of the store's records in the journal. Integers are little-endian; times are milliseconds since 1970."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from services.broker.storage.journal.segment import HEAD_SIZE

MESSAGE = 2  # meta, queues, [duplicate key], payload
COPY = 3  # MESSAGE with the state of its references instead of the key: copied here, or with another payload
REF = 4  # a reference made or changed after the message was stored
REMOVE = 5  # a reference was removed
MOVE = 6  # a reference was moved to the end of another queue
DEFINE = 7  # id, value
UNDEFINE = 8  # id
DUPLICATE = 9  # a key that outlives its message, copied from an older segment
REMOVES = 10  # many references of one queue were removed

# also stored in the summary of a closed segment
REPEATED = frozenset((REF, REMOVE, MOVE, DEFINE, UNDEFINE, DUPLICATE, REMOVES))

META = struct.Struct("<QBBHQQ")  # message, priority, flags, number of queues, expiry, not before
META1 = struct.Struct("<QBBHQQQ")  # META with one queue
KEY = struct.Struct("<QH")  # cache, length of the key
STATE = struct.Struct("<QQQI")  # queue, place in its order, not before, delivery count
REF_S = struct.Struct("<QQQQI")  # message, queue, place in its order, not before, delivery count
REMOVE_S = struct.Struct("<QQ")  # message, queue; roots
MOVE_S = struct.Struct("<QQQQ")  # message, from, to, place in its order; roots
DEFINE_S = struct.Struct("<Q")  # id; value
UNDEFINE_S = struct.Struct("<Q")  # id; roots
REMOVE1 = struct.Struct("<QQI")  # REMOVE with one root
REMOVES_S = struct.Struct("<QI")  # queue, the one root of the messages that follow
DUPLICATE_S = struct.Struct("<QQ")  # cache, message (the order of keys)

KEY_COST = 40  # bytes that a remembered key counts as in its segment, in addition to its own length
STATE_COST = HEAD_SIZE + REF_S.size

HAS_KEY = 1
HAS_STATES = 2


def encode_roots(roots: Sequence[int]) -> bytes:
    """Encode the segments whose records this record overrules: it is needed while one of them exists."""
    return struct.pack(f"<{len(roots)}I", *roots)


def decode_roots(record: bytes | memoryview, start: int) -> tuple[int, ...]:
    """Return the numbers of the segments at the end of a record."""
    return struct.unpack_from(f"<{(len(record) - start) // 4}I", record, start)


def encode_removes(messages: Sequence[int], queue: int, root: int) -> bytes:
    """Return the record by which a queue removes messages."""
    return struct.pack(f"<QI{len(messages)}Q", queue, root, *messages)


def decode_removes(record: bytes | memoryview) -> tuple[int, int, tuple[int, ...]]:
    """Return (queue, root, messages) of a REMOVES record."""
    queue, root = REMOVES_S.unpack_from(record)
    count = (len(record) - REMOVES_S.size) // 8
    return queue, root, struct.unpack_from(f"<{count}Q", record, REMOVES_S.size)


class ReferenceState(NamedTuple):
    """State of a reference, and the location of the record that has it."""

    location: int
    order: int  # references of a queue are sorted by it; that of an unmoved one is the message's id
    not_before: int
    delivery_count: int


class Stored(NamedTuple):
    """A decoded MESSAGE or COPY record."""

    message: int
    priority: int
    expiry: int
    not_before: int
    queues: Sequence[int]
    key: tuple[int, bytes] | None
    states: Sequence[tuple[int, int, int, int]]  # queue, order, not before, delivery count
    start: int  # offset of the payload


def parse_message(record: memoryview) -> Stored:
    """Return the parts of a record of a message. Raises struct.error if it is cut short."""
    message, priority, flags, n, expiry, not_before = META.unpack_from(record)
    at = META.size + 8 * n
    queues = struct.unpack_from(f"<{n}Q", record, META.size)
    key = None
    states: list[tuple[int, int, int, int]] = []
    if flags & HAS_KEY:
        cache, length = KEY.unpack_from(record, at)
        at += KEY.size + length
        key = (cache, bytes(record[at - length : at]))
    if flags & HAS_STATES:
        count = int.from_bytes(record[at : at + 2], "little")
        at += 2
        for _ in range(count):
            states.append(STATE.unpack_from(record, at))
            at += STATE.size
    return Stored(message, priority, expiry, not_before, queues, key, states, at)


def payload_start(record: memoryview) -> int:
    """Return the offset of the payload in a MESSAGE or COPY record."""
    _, _, flags, n, _, _ = META.unpack_from(record)
    return parse_message(record).start if flags else META.size + 8 * n


def encode_copy(
    record: memoryview, old: Stored, queues: Sequence[int], states: Sequence[tuple[int, ReferenceState]]
) -> list[bytes | memoryview]:
    """Return the parts of a COPY of a message's record with its current references."""
    return [
        encode_copy_head(old.message, old.priority, old.expiry, old.not_before, queues, states),
        record[old.start :],
    ]


def encode_copy_head(
    message: int,
    priority: int,
    expiry: int,
    not_before: int,
    queues: Sequence[int],
    states: Sequence[tuple[int, ReferenceState]],
) -> bytes:
    """Return the part of a COPY before the payload."""
    head = META.pack(message, priority, HAS_STATES if states else 0, len(queues), expiry, not_before)
    head += struct.pack(f"<{len(queues)}Q", *queues)
    if states:
        head += len(states).to_bytes(2, "little")
        head += b"".join(STATE.pack(q, s.order, s.not_before, s.delivery_count) for q, s in states)
    return head
