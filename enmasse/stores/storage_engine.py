"""Interface of a store to the product that keeps its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Change(NamedTuple):
    """A value put under a key of a table; `value` None: the key is deleted, if it exists."""

    table: str
    key: str
    value: bytes | None


Tables = dict[str, dict[bytes, bytes | None]]
"""The changes of one transaction: table → key in UTF-8 → its value, None if it is deleted."""


class Page(NamedTuple):
    """Some entries of a table and where to go on; `next` None: these were the last."""

    entries: list[tuple[bytes, bytes]]
    next: bytes | None


class EngineError(Exception):
    """Failure of the engine: the reason, the place, and what to do. The engine must be opened again before it is
    used."""

    def __init__(self, reason: str, *, undone: bool = False, full: bool = False) -> None:
        super().__init__(reason)
        self.undone = undone
        """True if nothing of a failed commit was stored, nor will be. False: unknown."""
        self.full = full
        """There is no space for a write: an operator has to make room."""


class Engine(Protocol):
    """SQLite or Redis. Its methods are called one after the other, each when the one before has returned or raised.

    All raise EngineError.
    """

    place: str
    """Place of the data, for people; without passwords."""

    async def open(self) -> bytes:
        """Open the engine, after closing what was open.

        Gives the name that the tables got when they were made: other tables have another one.
        """

    async def check(self) -> None:
        """Whether it can still be used."""

    async def commit(self, tables: Tables) -> None:
        """Store all of these changes or none. They are durable when it returns. Doing it twice changes nothing."""

    async def get(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values in the order of the keys; None for missing ones."""

    async def page(self, table: str, after: bytes) -> Page:
        """Entries from `after` on: empty, or the `next` of a page. An entry that changes meanwhile may come twice."""

    async def close(self) -> None:
        """Close the store; errors are ignored."""
