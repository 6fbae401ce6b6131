"""The fast path takes the usual encodings of transfer and disposition, list8 and list32, and nothing it should not."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED
from enmasse.amqp.link import Sender
from enmasse.amqp.reader import Reader
from tests.amqp.engine_kit import Raw, Recorder, attach, by_tables, frame


def wide(code: int, count: int, fields: bytes) -> bytes:
    """A performative as a list32."""
    size = (len(fields) + 4).to_bytes(4, "big")
    return b"\x00\x53" + bytes((code,)) + b"\xd0" + size + count.to_bytes(4, "big") + fields


def narrow(code: int, count: int, fields: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + b"\xc0" + bytes((len(fields) + 1, count)) + fields


def uint(value: int) -> bytes:
    return b"\x70" + value.to_bytes(4, "big")


SHAPES = {"list8": narrow, "list32": wide}
HANDLES = {"uint0": (0, b"\x43"), "smalluint": (200, b"\x52\xc8"), "uint": (1000, uint(1000))}
TAILS = {
    "format": (1, b"\x43", False),
    "smalluint format": (1, b"\x52\x00", False),
    "settled": (2, b"\x43\x41", True),
    "unsettled, no more": (3, b"\x43\x42\x42", False),
    "booleans in two bytes": (3, b"\x43\x56\x01\x56\x00", True),
    "all fields": (8, b"\x70\x00\x00\x00\x00\x41\x42\x40\x40\x42\x42\x42", True),
    "nulls": (4, b"\x40\x40\x40\x40", False),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("handle", HANDLES)
@pytest.mark.parametrize("tail", TAILS)
def test_usual_transfers(shape: str, handle: str, tail: str) -> None:
    number, encoded = HANDLES[handle]
    fields, end, settled = TAILS[tail]
    raw = Raw("begun", Recorder(window=1000))
    raw.feed(frame(0, attach("l", number, sending=True)))

    def transfer(i: int) -> bytes:
        body = SHAPES[shape](0x14, 3 + fields, encoded + uint(i) + b"\xa0\x03" + b"%03d" % i + end)
        return frame(0, None, body + b"payload that is long enough %d" % i)

    raw.feed(transfer(300))  # by the tables: learnt
    counted = by_tables(raw)
    raw.feed(b"".join(transfer(i) for i in range(301, 400)) + b"\x00\x00\x00\x08\x02\x00\x00\x00" * 5)
    assert counted == []
    assert raw.handler.received == [b"payload that is long enough %d" % i for i in range(300, 400)]
    assert all(e[2] == settled for e in raw.handler.events if e[0] == "delivery")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("state", [(b"\x00\x53\x24\x45", ACCEPTED), (b"\x00\x53\x26\x45", RELEASED)])
@pytest.mark.parametrize("end", [b"", b"\x42", b"\x40"])
@pytest.mark.parametrize("single", [False, True])
def test_usual_dispositions(shape: str, state: tuple[bytes, Any], end: bytes, single: bool) -> None:
    raw = Raw("attached", limits=None)
    sender = raw.handler.links["out"]
    assert isinstance(sender, Sender)
    for i in range(9):
        sender.send(b"x", i)
    raw.feed(b"")

    def disposition(first: int, last: int) -> bytes:
        fields = b"\x41" + uint(first) + (b"\x40" if single else uint(last)) + b"\x41" + state[0] + end
        return frame(0, None, SHAPES[shape](0x15, 5 + len(end), fields))

    padding = b"\x00\x00\x00\x08\x02\x00\x00\x00" * 5  # a list32 at the very end of a read goes by the tables
    raw.feed(disposition(0, 2) + padding)
    counted = by_tables(raw)
    raw.feed(disposition(3, 5) + disposition(6, 8) + padding)
    assert counted == []
    tokens = [0, 3, 6] if single else list(range(9))
    assert raw.handler.outcomes == [(token, state[1], True) for token in tokens]


def test_lies_about_sizes_do_not_get_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that look like those learnt, with a list longer than its frame, or fields that overlap its end."""
    quiet = b"\x00\x00\x00\x08\x02\x00\x00\x00" * 8
    good = frame(0, None, narrow(0x14, 4, b"\x43" + uint(0) + b"\xa0\x04abcd\x43") + b"payload of this message")
    next_one = frame(0, None, narrow(0x14, 4, b"\x43" + uint(1) + b"\xa0\x04abcd\x43") + b"payload")
    whole = Raw("attached", Recorder(window=10))
    whole.feed(good)
    counted = by_tables(whole)
    whole.feed(next_one + quiet)
    assert counted == []
    for damage in range(4, len(next_one)):
        for value in (0, 1, 0x20, 0x7F, 0xFF):
            bad = next_one[:damage] + bytes((value,)) + next_one[damage + 1 :]
            fast, slow = (Raw("attached", Recorder(window=10)) for _ in range(2))
            fast.feed(good)
            with monkeypatch.context() as patch:
                patch.setattr(Reader, "learn", lambda *_: None)
                slow.feed(good)
            fast.feed(bad + quiet)
            slow.feed(bad + quiet)
            assert fast.handler.events == slow.handler.events, (damage, value)
            assert fast.connection.state == slow.connection.state
