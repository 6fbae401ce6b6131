"""Dispositions by the quick way are those of the tables."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Disposition, Modified, Rejected, decode_performative
from enmasse.amqp.disposition import by_state, send_dispositions, usual_disposition
from enmasse.amqp.output import Output

_states = st.sampled_from((None, ACCEPTED, RELEASED, Modified(delivery_failed=True), Rejected()))
_ids = st.integers(0, 2**32 - 1)


class Collected(Output):
    """The frames, and nobody is woken."""

    def __init__(self) -> None:
        self.buffers: list[Any] = []
        self.max_frame = 1 << 16


def frames(first: int, count: int, receiving: bool, settled: bool, state: Any) -> list[bytes]:
    output = Collected()
    ids = [(first + n) & 0xFFFFFFFF for n in range(count)]
    send_dispositions(output, 3, ids, receiving, settled, encode(state))
    return [frame[8:] for frame in output.buffers]


@given(_ids, st.integers(1, 5), st.booleans(), st.booleans(), _states)
def test_what_we_send_is_read_as_the_tables_read_it(
    first: int, count: int, receiving: bool, settled: bool, state: Any
) -> None:
    for frame in frames(first, count, receiving, settled, state):
        quick = usual_disposition(b"any" + frame, 3, 3 + len(frame))
        if state is None or state is ACCEPTED:
            assert quick is not None
        if quick is not None:
            assert (quick, len(frame)) == decode_performative(frame, 0, len(frame))
            assert quick.state is state


@given(_ids, st.booleans(), st.booleans(), st.sampled_from((None, ACCEPTED)), st.data())
def test_broken_ones_are_left_to_the_tables(
    first: int, receiving: bool, settled: bool, state: Any, data: st.DataObject
) -> None:
    (frame,) = frames(first, 1, receiving, settled, state)
    broken = bytearray(frame)
    broken[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(broken[: data.draw(st.integers(0, len(frame)))])
    for each in (bytes(broken), cut):
        quick = usual_disposition(each, 0, len(each))
        if quick is not None:
            assert (quick, len(each)) == decode_performative(each, 0, len(each))


def test_other_encodings_are_for_the_tables() -> None:
    small = encode(Disposition(role=True, first=1, last=2, settled=True, state=ACCEPTED))
    assert usual_disposition(small, 0, len(small)) is None
    assert decode_performative(small, 0, len(small))[0].state is ACCEPTED


@given(st.lists(_states, max_size=20))
def test_ids_are_grouped_by_state(states: list[Any]) -> None:
    found = dict(by_state(list(enumerate(states))))
    expected: dict[bytes, list[int]] = {}
    for number, state in enumerate(states):
        expected.setdefault(encode(state), []).append(number)
    assert found == expected


def test_the_oldest_delivery_leaves_first_whatever_was_stated_first() -> None:
    stated = [(2, RELEASED), (0, RELEASED), (2**32 - 1, ACCEPTED), (1, Rejected())]
    assert [ids for _, ids in by_state(stated)] == [[2**32 - 1], [2, 0], [1]]
