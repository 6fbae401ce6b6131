"""The ends of a load: messages in bulk and in several frames, and columns of rows, compared with plain loops."""

from __future__ import annotations

import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.load.amqp import ReceivingEnd, SendingEnd, Work
from enmasse.load.fixed_rows import alike, column, fill, numbers, packed
from tests.cli.statuses.of_messaging import passing_on
from tests.cli.test_client import peer
from tests.kit.waiting import wait_for


@given(st.integers(1, 9), st.integers(1, 40), st.binary(min_size=360, max_size=360), st.sets(st.integers(0, 8)))
def test_rows_that_are_alike(size: int, most: int, text: bytes, places: set[int]) -> None:
    places = {place for place in places if place < size}
    text = text.translate(bytes(value % 2 for value in range(256)))
    rows = [text[at * size : (at + 1) * size] for at in range(most)]
    expected = next((at for at, row in enumerate(rows) if any(row[place] != rows[0][place] for place in places)), most)
    assert alike(text, size, most, places) == expected


@given(st.lists(st.integers(0, 2**16 - 1), min_size=1), st.integers(0, 3), st.integers(0, 3))
def test_columns_of_numbers(values: list[int], before: int, behind: int) -> None:
    size = before + 2 + behind
    rows = bytearray(b"\xff" * size * len(values))
    fill(rows, size, before, packed(values, 2), 2)
    row = b"\xff" * before + b"%b" + b"\xff" * behind
    assert bytes(rows) == b"".join(row % struct.pack(">H", value) for value in values)
    assert numbers(column(bytes(rows), size, len(values), before, 2), 2) == tuple(values)


@pytest.mark.parametrize("size", [24, 100, 20_000, 200_000])
def test_each_message_is_accepted_and_timed(size: int) -> None:
    work = Work(address="q", size=size, mark=b"m" * 16, credit=10, window=7)
    with peer(passing_on()) as port:
        receiver = ReceivingEnd(work, "receiver", "127.0.0.1", None)
        receiver.open("127.0.0.1", port)
        receiver.restart(timing=True)
        receiver.grant()
        sender = SendingEnd(work, "sender", "127.0.0.1", None)
        sender.open("127.0.0.1", port)
        found: dict[str, int] = {}
        sending = threading.Thread(target=lambda: found.update(sender.run(count=25)))
        sending.start()
        wait_for(lambda: (receiver.take(0.1), receiver.received == 25)[1], "25 messages")
        sending.join()
        sender.close()
        receiver.close()
    assert (found["sent"], found["accepted"], receiver.received) == (25, 25, 25)
    assert len(receiver.waits) == 25 and all(0 < wait < 60e9 for wait in receiver.waits)
