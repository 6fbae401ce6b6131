"""Dispositions that leave: ids as ranges, states encoded once (OASIS AMQP 1.0, 2.7.6)."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

from enmasse.amqp.codec import MAX_DEPTH
from enmasse.amqp.composite import decode_composite
from enmasse.amqp.encoder import encode
from enmasse.amqp.endpoint import shortened
from enmasse.amqp.frames import HEADER, performative, uint
from enmasse.amqp.output import Output
from enmasse.amqp.performatives import Modified, Rejected
from enmasse.amqp.serial import U32

_FRAME = Struct(">IHHIBBBBIBIB").pack


def send_dispositions(
    output: Output, channel: int, ids: list[int], receiving: bool, settled: bool, state: bytes
) -> None:
    """The same encoded state for all these ids; `receiving`: they came. The caller wakes the output."""
    out = output.buffers
    size = 13 + len(state)
    role = 0x41 if receiving else 0x42
    for first, last in ranges(ids):
        if size < 255:
            frame = _FRAME(
                size + 13,
                0x200,
                channel,
                0x005315C0,
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
        return encode(Rejected(error=shortened(value.error)))
    if isinstance(value, Modified):
        return encode(Modified(delivery_failed=value.delivery_failed, undeliverable_here=value.undeliverable_here))
    return encode(Modified(delivery_failed=True))


def by_state(entries: list[tuple[int, Any]]) -> Iterator[tuple[bytes, list[int]]]:
    """Ids grouped by their encoded state."""
    groups: dict[bytes, list[int]] = {}
    for delivery_id, state in entries:
        groups.setdefault(b"\x40" if state is None else encode(state), []).append(delivery_id)
    return iter(groups.items())


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
