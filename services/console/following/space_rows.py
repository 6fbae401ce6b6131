"""Rows of one address space among those of all: each view has the keys that callers in the space see."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from enmasse.model.names import SPACE, space_prefix
from services.console.following.rows import Rows, Watcher

R = TypeVar("R")


class _WatcherOfSpace(Watcher):
    """A watcher of the rows of all spaces. `local`: key → key in the space, None: a row of another one."""

    def __init__(self, local: Callable[[str], str | None]) -> None:
        super().__init__()
        self._local = local

    def add(self, keys: Collection[str] | None) -> None:
        found = None if keys is None else [local for key in keys if (local := self._local(key)) is not None]
        if found or not keys:  # without keys a stream looks at the rights of its caller
            super().add(found)


class _SpaceRows(Generic[R]):
    def __init__(self, rows: Rows[R], space: str) -> None:
        self._rows = rows
        self._space = space

    async def fresh(self) -> None:
        """As Rows."""
        await self._rows.fresh()

    def get(self, key: str) -> R | None:
        """As Rows."""
        raise NotImplementedError

    def keys(self) -> list[str]:
        """As Rows."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[tuple[str, R]]:
        for key in self.keys():
            row = self.get(key)
            if row is not None:
                yield key, row

    @contextmanager
    def watched(self) -> Iterator[Watcher]:
        """As Rows."""
        with self._rows.watched(_WatcherOfSpace(self._local)) as watcher:
            yield watcher

    def _local(self, key: str) -> str | None:
        raise NotImplementedError


class NamedRows(_SpaceRows[R]):
    """View of rows whose keys are full names: the keys are the names in the space."""

    def __init__(self, rows: Rows[R], space: str) -> None:
        super().__init__(rows, space)
        self._prefix = space_prefix(space)

    def get(self, key: str) -> R | None:
        """As Rows."""
        if not self._prefix and key.startswith(SPACE):
            return None
        return self._rows.get(self._prefix + key)

    def keys(self) -> list[str]:
        """As Rows."""
        every, prefix = self._rows.keys(), self._prefix
        if prefix:
            return [key[len(prefix) :] for key in between(every, prefix)]
        first, end = bisect_left(every, SPACE), bisect_left(every, _behind(SPACE))
        return every if first == end else every[:first] + every[end:]

    def _local(self, key: str) -> str | None:
        if self._prefix:
            return key[len(self._prefix) :] if key.startswith(self._prefix) else None
        return None if key.startswith(SPACE) else key


class PickedRows(_SpaceRows[R]):
    """View of rows whose keys name no space. `space_of(key)`: the space of a row."""

    def __init__(self, rows: Rows[R], space: str, space_of: Callable[[str], str]) -> None:
        super().__init__(rows, space)
        self._space_of = space_of

    def get(self, key: str) -> R | None:
        """As Rows."""
        return self._rows.get(key) if self._space_of(key) == self._space else None

    def keys(self) -> list[str]:
        """As Rows."""
        return [key for key, _ in self._rows if self._space_of(key) == self._space]

    def _local(self, key: str) -> str | None:
        return key  # the space of a row that is gone is not known; streams remove only rows that they have sent


AnyRows = Rows[R] | NamedRows[R] | PickedRows[R]


def between(names: Sequence[str], prefix: str) -> Sequence[str]:
    """Return the names of a sorted list that begin with this."""
    return names[bisect_left(names, prefix) : bisect_left(names, _behind(prefix))]


def _behind(prefix: str) -> str:
    """Return the least text behind all that begin with this."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
