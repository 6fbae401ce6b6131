"""The codec against Proton's: what one writes the other reads, over all types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.amqp.codec.codec import decode, encode
from tests.amqp.codec_values import (
    OF_TYPE,
    VALUES,
    arrays,
    proton_decode,
    proton_encode,
    proton_same,
    same,
    to_proton,
)


@given(VALUES)
def test_proton_reads_what_we_write(value: Any) -> None:
    assert proton_same(proton_decode(encode(value)), to_proton(value))


@given(VALUES)
def test_we_read_what_proton_writes(value: Any) -> None:
    encoded = proton_encode(value)
    decoded, pos = decode(encoded)
    assert same(decoded, value)
    assert pos == len(encoded)


@pytest.mark.parametrize("kind", list(OF_TYPE), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_each_type_both_ways(kind: type, data: st.DataObject) -> None:
    for value in (data.draw(OF_TYPE[kind]), data.draw(arrays(kind))):
        assert proton_same(proton_decode(encode(value)), to_proton(value))
        assert same(decode(proton_encode(value))[0], value)
