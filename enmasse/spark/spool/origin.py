"""The origin of the messages in a spool: an address, in an address space. It is noted in the spool when the address is
attached, so that a query with another address and a new checkpoint is not given these messages as its own.

A spool without records may become one of another address. One of an earlier version has no note, and gets one.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from enmasse.spark.spool.segment import SpoolError


class Origin(NamedTuple):
    """An address, and its address space; empty: the default one, or none."""

    address: str
    space: str = ""

    def encoded(self) -> bytes:
        """Return the note of it."""
        return json.dumps(self._asdict()).encode()

    def check(self, noted: bytes, place: str) -> None:
        """Return if records of a spool with this note are of this origin, or if that is unknown. Raises SpoolError.
        place: of the spool, for the text."""
        try:
            other = json.loads(noted or b"null")
        except ValueError:
            return
        if isinstance(other, dict) and other != self._asdict():
            raise SpoolError(
                f"{place}: the spool has messages of {_named(other)}, and the query is to read "
                f"{_named(self._asdict())}. Give it a spool and a checkpoint of its own"
            )


def _named(origin: dict[str, str]) -> str:
    space = origin.get("space")
    return f"{origin.get('address')!r}" + (f" in the address space {space!r}" if space else "")
