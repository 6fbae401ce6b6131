"""Datagrams of CoAP beside those of aiocoap, malformed ones, and the tables of the documentation."""

from __future__ import annotations

import contextlib
from pathlib import Path

import aiocoap
import pytest
from aiocoap.numbers.contentformat import ContentFormat
from hypothesis import given
from hypothesis import strategies as st

from enmasse.bridge.message_fields import documented
from enmasse.wire_formats.coap_messages import (
    CON,
    LONGEST,
    MOST_OPTIONS,
    BadDatagram,
    CoapBlock,
    CoapMessage,
    block,
    block_option,
    decoded,
    encoded,
)
from services.coap_gateway import coap_mapping

_options = st.lists(
    st.tuples(st.sampled_from((1, 4, 12, 60, 252, 292, 2000, 65001)), st.binary(max_size=300)), max_size=8
)
_head = st.integers(0, 3), st.sampled_from((1, 2, 3, 69, 132)), st.integers(0, 0xFFFF), st.binary(max_size=8)


@given(*_head, _options, st.binary(max_size=40))
def test_as_aiocoap(
    kind: int, code: int, id: int, token: bytes, options: list[tuple[int, bytes]], payload: bytes
) -> None:
    data = encoded(kind, code, id, token, options, payload)
    ours, theirs = decoded(data), aiocoap.Message.decode(data)
    assert (ours.type, ours.code, ours.id, ours.token) == (theirs.mtype, theirs.code, theirs.mid, theirs.token)
    assert ours == CoapMessage(kind, code, id, token, tuple(sorted(options, key=lambda each: each[0])), payload)
    assert ours.payload == theirs.payload
    theirs.direction = aiocoap.message.Direction.OUTGOING
    assert len(theirs.opt._options) == len({number for number, _ in options})


@pytest.mark.parametrize(
    ("data", "reset"),
    [
        (b"", False),
        (b"\x40\x01\x00", False),
        (b"\x80\x01\x00\x01", False),
        (b"\x40\x00\x00\x01x", True),
        (b"\x49\x01\x00\x01123456789", True),
        (b"\x44\x01\x00\x01abc", True),
        (b"\x40\x01\x00\x01\xff", True),
        (b"\x40\x01\x00\x01\xf0", True),
        (b"\x40\x01\x00\x01\x1f", True),
        (b"\x40\x01\x00\x01\x1d", True),
        (b"\x40\x01\x00\x01\x1e\x01", True),
        (b"\x40\x01\x00\x01\x15abcd", True),
        (b"\x40\x01\x00\x01" + b"\xe0\xff\xff" * 2, True),
        (b"\x40\x01\x00\x01" + b"\x00" * (MOST_OPTIONS + 1), True),
        (b"\x50\x01\x00\x01\xff", False),
    ],
)
def test_malformed(data: bytes, reset: bool) -> None:
    with pytest.raises(BadDatagram) as found:
        decoded(data)
    assert found.value.id == (1 if reset else None)


@given(st.binary(max_size=LONGEST))
def test_any_bytes(data: bytes) -> None:
    with contextlib.suppress(BadDatagram):
        decoded(data)
    try:
        decoded(b"\x40\x02\x00\x01" + data)
    except BadDatagram as error:
        assert error.id == 1


@given(st.integers(0, (1 << 20) - 1), st.booleans(), st.integers(0, 6))
def test_blocks(number: int, more: bool, exponent: int) -> None:
    stated = CoapBlock(number, more, exponent)
    assert block(block_option(stated)) == stated


@pytest.mark.parametrize("value", [b"\x07", b"\0\0\0\0"])
def test_no_block(value: bytes) -> None:
    with pytest.raises(ValueError):
        block(value)


def test_an_empty_message() -> None:
    assert decoded(encoded(CON, 0, 7)) == CoapMessage(CON, 0, 7)


def test_tables_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "coap.md").read_text()
    assert (shown := documented(coap_mapping.TABLE, "parameter")) in page, shown
    assert coap_mapping.formats_table() in page, coap_mapping.formats_table()
    for number, media in coap_mapping.FORMATS:
        assert ContentFormat(number).media_type in (media, media.replace("; ", ";")), number
