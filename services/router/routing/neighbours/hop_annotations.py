"""Annotations of messages between routers: where a message goes (`to`, `phase`), where it came into the network
(`ingress`), and which routers it has passed (`trace`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.errors import malformed
from enmasse.amqp.codec.types import Int, Symbol
from enmasse.amqp.messages.scan import (
    DELIVERY_ANNOTATIONS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    end_of_alike,
    find_to,
    front_end,
)
from enmasse.amqp.messages.sections import Sections, encode_annotations
from enmasse.identity.annotations import OF_ROUTERS

AREA: Final = "0/"
"""Beginning of the ids of routers in annotations."""
_TO: Final = Symbol(f"{OF_ROUTERS}to")
_PHASE: Final = Symbol(f"{OF_ROUTERS}phase")
_INGRESS: Final = Symbol(f"{OF_ROUTERS}ingress")
_TRACE: Final = Symbol(f"{OF_ROUTERS}trace")
_MAX_PHASE: Final = 9
_MAP8, _MAP32, _NULL = 0xC1, 0xD1, 0x40
REMEMBERED: Final = 1024
"""Most annotations of a link that are remembered."""


class StatedWay(NamedTuple):
    """How a message has come from another router. `rest`: the section of its other annotations."""

    to: str | None
    phase: int
    ingress: str
    trace: tuple[str, ...]
    rest: bytes


class StatedWays:
    """Reads the annotations of the messages of one link, which are often the same."""

    def __init__(self) -> None:
        self._known: dict[bytes, StatedWay] = {}
        self._begin = b"\xff"  # how the last message began, up to the end of its annotations
        self._way = StatedWay(None, 0, "", (), b"")
        self._front = b""  # the same without what routers have stated

    def read(self, payload: bytes) -> tuple[StatedWay, bytes]:
        """Return what routers have stated, and the message without it. Raises AmqpError."""
        if payload.startswith(self._begin):
            return self._way, self._front + payload[len(self._begin) :]
        start = front_end(payload, DELIVERY_ANNOTATIONS)
        end = front_end(payload, MESSAGE_ANNOTATIONS)
        section = payload[start:end]
        arrival = self._known.get(section)
        if arrival is None:
            arrival = _arrival(section)
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[section] = arrival
        if arrival.to is not None and payload[end : end + 2] == b"\x00\x53" and section:
            self._begin, self._way, self._front = payload[:end], arrival, payload[:start] + arrival.rest
        message = payload[:start] + arrival.rest + payload[end:]
        if arrival.to is None:
            to = find_to(message)
            arrival = arrival._replace(to=None if to is None else str(to, "utf-8", "replace"))
        return arrival, message

    def read_run(self, payloads: Sequence[bytes], at: int) -> tuple[StatedWay, list[bytes]]:
        """Return what routers have stated of the message at `at`, and without it that one and those behind it that
        begin alike. Raises AmqpError."""
        arrival, message = self.read(payloads[at])
        begin, front = self._begin, self._front
        end = end_of_alike(payloads, at, begin)
        if end <= at + 1:
            return arrival, [message]
        size = len(begin)
        return arrival, [front + payload[size:] for payload in payloads[at:end]]


def _arrival(section: bytes) -> StatedWay:
    given = Sections(section).annotations if section else {}
    stated = {key: value for key, value in given.items() if str(key).startswith(OF_ROUTERS)}
    rest = {key: value for key, value in given.items() if key not in stated}
    to, phase, ingress = stated.get(_TO), stated.get(_PHASE, 0), stated.get(_INGRESS, "")
    trace = stated.get(_TRACE, [])
    if not (to is None or isinstance(to, str)) or not isinstance(ingress, str) or not isinstance(trace, list):
        raise malformed("annotations of routers have other types")
    if not isinstance(phase, int) or not 0 <= phase <= _MAX_PHASE or not all(isinstance(each, str) for each in trace):
        raise malformed("annotations of routers have other types")
    passed = tuple(each.removeprefix(AREA) for each in trace)
    encoded = section if not stated else encode_annotations(MESSAGE_ANNOTATIONS, rest)
    return StatedWay(to, int(phase), ingress.removeprefix(AREA) or (passed[0] if passed else ""), passed, encoded)


@lru_cache(maxsize=4096)
def stated(to: str, phase: int, ingress: str, trace: tuple[str, ...]) -> tuple[bytes, int]:
    """Return entries of the annotations, encoded, and their number. `trace` ends with the router that sends."""
    entries: list[Any] = [_TO, to, _INGRESS, AREA + ingress, _TRACE, [AREA + each for each in trace]]
    if phase:
        entries += [_PHASE, Int(phase)]
    return b"".join(map(encode, entries)), len(entries)


def annotate(payload: bytes, entries: tuple[bytes, int]) -> bytes:
    """Return the message with further annotations behind its own. Raises AmqpError."""
    front, size = annotated_front(payload, entries)
    return front + payload[size:]


def annotated_front(payload: bytes, entries: tuple[bytes, int]) -> tuple[bytes, int]:
    """Return what is before the bare message, with further annotations, and how many bytes of the message that
    replaces. Raises AmqpError."""
    if payload[:2] == b"\x00\x53" and payload[2] >= PROPERTIES:  # neither header nor annotations
        return _section(entries), 0
    start = front_end(payload, DELIVERY_ANNOTATIONS)
    end = front_end(payload, MESSAGE_ANNOTATIONS)
    more, count = entries
    if start == end:
        return payload[:start] + _section(entries), end
    given = b""
    if end > start:
        at = start + 3
        if payload[start : at - 1] != b"\x00\x53":
            raise malformed("the annotations have an unusual descriptor")
        code = payload[at]
        if code == _MAP8:
            count += payload[at + 2]
            given = payload[at + 3 : end]
        elif code == _MAP32:
            count += int.from_bytes(payload[at + 5 : at + 9])
            given = payload[at + 9 : end]
        elif code != _NULL:
            raise malformed("the annotations are no map")
    return b"".join((payload[:start], _head(len(given) + len(more), count), given, more)), end


def _head(size: int, count: int) -> bytes:
    """Return the beginning of a section of annotations with entries of this size."""
    if size < 255 and count < 256:
        return b"\x00\x53\x72\xc1%c%c" % (size + 1, count)
    return b"\x00\x53\x72\xd1" + (size + 4).to_bytes(4) + count.to_bytes(4)


@lru_cache(maxsize=4096)
def _section(entries: tuple[bytes, int]) -> bytes:
    """Return a section that has these entries only."""
    return _head(len(entries[0]), entries[1]) + entries[0]
