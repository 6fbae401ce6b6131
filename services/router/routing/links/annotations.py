"""Annotations that are removed where messages arrive: those that routers of a mesh exchange, and from clients all that
the suite reads as facts (enmasse/identity/annotations.py).

No client may inject or receive annotations of routers (`x-opt-qd.…`). This router neither makes nor reads any, so it
removes them on every link that is not routed; facts it removes on all links of clients, routed ones too.
"""

from __future__ import annotations

import re
from typing import Any, Final

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.scan import MESSAGE_ANNOTATIONS, PROPERTIES, front_end
from enmasse.amqp.messages.sections import Sections
from enmasse.identity.annotations import (
    DEATH,
    OF_FACTS,
    OF_ROUTERS,
    ORIGINAL_ADDRESS,
    ORIGINAL_QUEUE,
    TABLE,
    Names,
)

_OF_ROUTERS: Final = Names(each for each in TABLE if each.name == OF_ROUTERS)
_LONGEST_BEGIN = 256
"""Bytes before the bare message that are remembered."""
_BEGINS = 4
_BARE: Final[tuple[bytes, ...]] = (b"\x00\x53\x73", b"\x00\x53\x74", b"\x00\x53\x75", b"\x00\x53\x76", b"\x00\x53\x77")
"""How messages without sections before the bare message begin."""


class Stripper:
    """Removes annotations from the messages of one link. They usually begin in few ways: how the last ones without
    such annotations began is remembered. `client`: it is the link of a client."""

    __slots__ = ("_client", "_names", "clean")

    def __init__(self, *, client: bool = False) -> None:
        self._client = client
        self._names = OF_FACTS if client else _OF_ROUTERS
        self.clean = _BARE
        """Beginnings of messages that have nothing to remove."""

    def strip(self, payload: bytes) -> bytes:
        """Return the message without such annotations; the payload itself if it has none. One that cannot be decoded is
        no client's way to state them: their names are changed to others of the same length."""
        if payload.startswith(self.clean):
            return payload
        try:
            end = front_end(payload, MESSAGE_ANNOTATIONS)
            if self._names.pattern.search(payload, 0, end):
                return self._without(payload)
        except AmqpError:
            return self._renamed(payload) if self._client else payload
        if end <= _LONGEST_BEGIN and payload[end : end + 2] == b"\x00\x53":
            self.clean = (payload[: end + 3], *self.clean[: -len(_BARE)][: _BEGINS - 1], *_BARE)
        return payload

    def _without(self, payload: bytes) -> bytes:
        """Raises AmqpError."""
        sections = Sections(payload)
        given = sections.annotations
        kept = self._names.without(given)
        if len(kept) < len(given):
            payload = sections.replace_annotations(kept)
        sections.begin(PROPERTIES)  # raises for annotations behind annotations, of which readers may take either
        start = sections.begin(MESSAGE_ANNOTATIONS)
        if self._client and self._names.pattern.search(payload, 0, start):  # others may not find them where we do
            return self._renamed(payload[:start]) + payload[start:]
        return payload

    def _renamed(self, data: bytes) -> bytes:
        return self._names.pattern.sub(_other, data)


class LocalNames(Stripper):
    """Also writes the names of addresses in annotations of brokers (where a message comes from, why it died) as the
    consumers of an address space know them: without its prefix."""

    __slots__ = ("_prefix", "_stated")

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix
        self._stated = prefix.encode()

    def strip(self, payload: bytes) -> bytes:
        """Return the message with such names, and without what other strippers remove."""
        if payload.startswith(self.clean):
            return payload
        try:
            if payload.find(self._stated, 0, front_end(payload, MESSAGE_ANNOTATIONS)) >= 0:
                sections = Sections(payload)
                payload = sections.replace_annotations(
                    dict(self._local(*each) for each in sections.annotations.items())
                )
        except AmqpError:
            return super().strip(payload)
        return super().strip(payload)

    def _local(self, key: Any, value: Any) -> tuple[Any, Any]:
        if key in (ORIGINAL_ADDRESS, ORIGINAL_QUEUE) and isinstance(value, str):
            return key, value.removeprefix(self._prefix)
        if key == DEATH and isinstance(value, dict):
            texts = {name: text.replace(self._prefix, "") for name, text in value.items() if isinstance(text, str)}
            return key, {**value, **texts}
        return key, value


def _other(name: re.Match[bytes]) -> bytes:
    return b"x-not-" + name[0][6:]


def complete(data: bytes) -> bool:
    """Return True if `data`, the beginning of a message, contains all sections before the bare message."""
    if data[2:3] > b"\x72":  # the usual encoding of a section that comes after them
        return True
    try:
        return bool(Sections(data).bare)
    except AmqpError:
        return False
