"""Dispositions that leave: ids as ranges, states encoded once (OASIS AMQP 1.0, 2.7.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any

from enmasse.amqp.codec.codec import MAX_DEPTH
from enmasse.amqp.codec.composite import decode_composite
from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.frames import HEADER, performative, uint
from enmasse.amqp.codec.performatives import ACCEPTED, Disposition, Modified, Rejected
from enmasse.amqp.codec.serial import U32
from enmasse.amqp.output import Output

_KIND = 0x005315C0
_FRAME = Struct(">IHHIBBBBIBIB").pack
_USUAL = Struct(">IBBBBIBIB").unpack_from
_BOOLEANS = (0x41, 0x42)
_ACCEPTED = encode(ACCEPTED)
_USUAL_SIZES = (18 + len(_ACCEPTED), 18 + 1)


def send_dispositions(
    output: Output, channel: int, ids: list[int], receiving: bool, settled: bool, state: bytes
) -> None:
    """Write one encoded state for all these ids; `receiving`: for received deliveries. The caller wakes the output."""
    out = output.buffers
    size = 13 + len(state)
    role = 0x41 if receiving else 0x42
    for first, last in ranges(ids):
        if size < 255:
            frame = _FRAME(
                size + 13,
                0x200,
                channel,
                _KIND,
                size,
                5,
                role,
                0x70,
                first,
                0x70,
                last,
                0x41 if settled else 0x42,
            )
            out.append(frame + state)
        else:
            flag = b"\x41" if settled else b"\x42"
            body = performative(0x15, [bytes((role,)), uint(first), uint(last), flag, state])
            if len(body) + 8 > output.max_frame:
                # A router passes on the state of another peer, which must not cost this one its connection.
                body = performative(0x15, [bytes((role,)), uint(first), uint(last), flag, _shortened(state)])
            out.append(HEADER(len(body) + 8, 2, 0, channel) + body)


def _shortened(state: bytes) -> bytes:
    """A state that is too long for a frame, as far as it fits: rejected with a short error, else modified."""
    value, _ = decode_composite(state, 0, len(state), MAX_DEPTH)
    if isinstance(value, Rejected) and value.error is not None:
        return encode(Rejected(error=value.error.shortened()))
    if isinstance(value, Modified):
        return encode(Modified(delivery_failed=value.delivery_failed, undeliverable_here=value.undeliverable_here))
    return encode(Modified(delivery_failed=True))


def by_state(entries: Iterable[tuple[int, Any]]) -> Iterator[tuple[bytes, list[int]]]:
    """Ids grouped by their encoded state, that of the oldest delivery first: a broker delivers released messages to
    others as soon as it reads of them, and keeps their order only if it reads of the oldest one first."""
    groups: dict[bytes, list[int]] = {}
    last: Any = groups  # no state
    group: list[int] = []
    for delivery_id, state in entries:
        if state is not last:  # most of them are accepted
            last = state
            group = groups.setdefault(b"\x40" if state is None else encode(state), [])
        group.append(delivery_id)
    if len(groups) < 2:
        return iter(groups.items())
    base = (group[0] - 0x80000000) & U32
    return iter(sorted(groups.items(), key=lambda entry: min((i - base) & U32 for i in entry[1])))


def usual_disposition(data: bytes, start: int, end: int) -> Disposition | None:
    """Return the disposition from `start` to `end`, if it is of the form that `send_dispositions` writes, and without a
    state or accepted. None: it is for the tables."""
    if end - start not in _USUAL_SIZES:
        return None
    kind, size, count, role, first_code, first, last_code, last, settled = _USUAL(data, start)
    if (
        kind != _KIND
        or size != end - start - 5
        or count != 5
        or first_code != 0x70
        or last_code != 0x70
        or role not in _BOOLEANS
        or settled not in _BOOLEANS
    ):
        return None
    state = data[start + 18 : end]
    if state == _ACCEPTED:
        return Disposition(role=role == 0x41, first=first, last=last, settled=settled == 0x41, state=ACCEPTED)
    if state == b"\x40":
        return Disposition(role=role == 0x41, first=first, last=last, settled=settled == 0x41)
    return None


def ranges(ids: list[int]) -> list[tuple[int, int]]:
    """Distinct ids as ranges of consecutive ones, in RFC 1982 order."""
    first, last = min(ids), max(ids)
    if last - first == len(ids) - 1:
        return [(first, last)]
    base = (ids[0] - 0x80000000) & U32
    found: list[tuple[int, int]] = []
    ordered = sorted(ids, key=lambda i: (i - base) & U32)
    start = previous = ordered[0]
    for i in ordered[1:]:
        if i != (previous + 1) & U32:
            found.append((start, previous))
            start = i
        previous = i
    found.append((start, previous))
    return found
