"""Frames of STOMP: whatever bytes come in whatever pieces, and as stomp.py reads and writes them."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stomp import utils
from stomp.protocol import Protocol11, Protocol12

from enmasse.bridge.message_fields import documented
from enmasse.wire_formats.stomp_frames import V10, V11, V12, BadFrame, StompFrame, StompParser, encoded
from services.stomp_gateway.stomp_mapping import TABLE

COMMANDS = ("SEND", "MESSAGE", "ERROR", "SUBSCRIBE")
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NAMES = TEXT.filter(lambda name: bool(name) and name != "content-length")
HEADERS = st.dictionaries(NAMES, TEXT, max_size=5)


def parse(data: bytes, version: str | None, cuts: list[int] | None = None) -> list[StompFrame]:
    parser = StompParser(1 << 20)
    parser.version = version
    found = []
    last = 0
    for cut in [*sorted(each % (len(data) + 1) for each in cuts or ()), len(data)]:
        parser.feed(data[last:cut])
        last = cut
        while (frame := parser.next()) is not None:
            found.append(frame)
    assert parser.kept == 0 or parser.under_way
    return found


@given(
    st.lists(st.tuples(st.sampled_from(COMMANDS), HEADERS, st.binary(max_size=50)), max_size=4),
    st.sampled_from((V11, V12)),
    st.lists(st.integers(0, 2000), max_size=6),
    st.sampled_from((b"", b"\n", b"\r\n\n")),
)
def test_frames_in_any_pieces(
    frames: list[tuple[str, dict[str, str], bytes]], version: str, cuts: list[int], between: bytes
) -> None:
    if version == V11:  # which has no escape for it
        frames = [
            (command, {n.replace("\r", "") or "x": v.replace("\r", "") for n, v in headers.items()}, body)
            for command, headers, body in frames
        ]
    data = b"".join(encoded(command, headers.items(), body, version) + between for command, headers, body in frames)
    found = parse(data, version, cuts)
    assert [frame.command for frame in found] == [command for command, _, _ in frames]
    for frame, (_, headers, body) in zip(found, frames, strict=True):
        assert frame.body == body
        assert {n: v for n, v in frame.headers.items() if n != "content-length" or n in headers} == headers


@given(st.binary(max_size=300), st.sampled_from((None, V10, V11, V12)), st.lists(st.integers(0, 300), max_size=4))
def test_any_bytes_are_frames_or_are_refused(data: bytes, version: str | None, cuts: list[int]) -> None:
    """And the pieces in which they come make no difference."""

    def outcome(cuts: list[int]) -> list[StompFrame] | str:
        try:
            return parse(data, version, cuts)
        except BadFrame as error:
            return str(error)

    one, other = outcome([]), outcome(cuts)
    assert type(one) is type(other)
    if isinstance(one, list):
        assert one == other


@given(HEADERS, st.binary(min_size=1, max_size=50), st.sampled_from((V11, V12)))
def test_stomp_py_reads_what_we_write(headers: dict[str, str], body: bytes, version: str) -> None:
    """It splits lines at carriage returns too, which are none of its headers then, and strips what is around them."""
    plain = {n: v for n, v in headers.items() if (n + v).isprintable() and n.strip() == n and v.strip() == v}
    data = encoded("MESSAGE", plain.items(), body, version)
    found = utils.parse_frame(data[:-1])  # its transport takes the NUL
    assert found.cmd == "MESSAGE"
    read = found.body if isinstance(found.body, bytes) else found.body.encode()
    assert read == body
    assert {n: v for n, v in found.headers.items() if n != "content-length"} == plain


@given(
    st.dictionaries(st.text(string.ascii_letters + "-_", min_size=1), TEXT, max_size=5),
    st.binary(max_size=50),
    st.sampled_from((V11, V12)),
)
def test_we_read_what_stomp_py_writes(headers: dict[str, str], body: bytes, version: str) -> None:
    headers.pop("content-length", None)
    if version == V11:
        headers = {n: v.replace("\r", "") for n, v in headers.items()}
    kind = Protocol11 if version == V11 else Protocol12
    escaped = dict(headers)
    kind._escape_headers(kind, escaped)
    frame = utils.Frame("SEND", {**escaped, "content-length": len(body)}, body)
    (found,) = parse(b"".join(utils.convert_frame(frame)), version)
    assert found.body == body
    assert {n: v for n, v in found.headers.items() if n != "content-length"} == headers


@pytest.mark.parametrize(
    ("version", "head", "headers"),
    [
        (V12, "a:b\\c\\\\\\n\\r", {"a": "b:\\\n\r"}),
        (V12, "a:\\\\c", {"a": "\\c"}),
        (V12, "a\\cb:c:d", {"a:b": "c:d"}),
        (V12, "a: b ", {"a": " b "}),
        (V10, "a : b\\c ", {"a": "b\\c"}),
        (V12, "a:1\na:2", {"a": "1"}),
        (V11, "a:\\n", {"a": "\n"}),
    ],
)
def test_headers(version: str, head: str, headers: dict[str, str]) -> None:
    for end in ("\n", "\r\n"):
        data = f"SEND\n{head}".replace("\n", end) + end + end + "\0"
        assert parse(data.encode(), version) == [StompFrame("SEND", headers)]


def test_connect_has_no_escapes() -> None:
    data = b"CONNECT\naccept-version:1.2\npasscode: a\\b \n\n\0"
    (frame,) = parse(data, None)
    assert frame.headers["passcode"] == " a\\b "
    (old,) = parse(b"CONNECT\nlogin: me\npasscode: x\n\n\0", None)
    assert old.headers == {"login": "me", "passcode": "x"}


@pytest.mark.parametrize("head", ["a:\\t", "a:\\", "a:b\\", ":b", "a", "a:\\r"])
def test_bad_headers(head: str) -> None:
    with pytest.raises(BadFrame):
        parse(f"SEND\n{head}\n\n\0".encode(), V11)


def test_the_table_of_headers_is_that_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "stomp.md").read_text()
    assert (shown := documented(TABLE, "header")) in page, shown
