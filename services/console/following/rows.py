"""Rows of a resource by key, made when they are wanted, and watchers, which learn the keys of changed ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

R = TypeVar("R")


class Watcher:
    """Keys of rows that have changed since they were last taken. `everything`: all may have."""

    def __init__(self) -> None:
        self.everything = True
        self._keys: set[str] = set()
        self._changed = asyncio.Event()
        self._changed.set()

    def add(self, keys: Collection[str] | None) -> None:
        """Note keys; None: everything; none: the rights of the caller."""
        if keys is None:
            self.everything = True
            self._keys.clear()
        elif not self.everything:
            self._keys.update(keys)
        self._changed.set()

    async def wait(self) -> None:
        """Wait until there are keys."""
        await self._changed.wait()

    def take(self) -> set[str] | None:
        """Return the keys, and forget them; None: everything."""
        found = None if self.everything else self._keys
        self._keys, self.everything = set(), False
        self._changed.clear()
        return found


class Rows(Generic[R]):
    """Rows of a resource. `keys`: the present keys; `make`: the row of a key, or None. `first`: returns when the rows
    are there after following them has begun; None: they are always there."""

    first: Callable[[], Awaitable[None]] | None = None

    def __init__(self, keys: Callable[[], Collection[str]], make: Callable[[str], R | None]) -> None:
        self._keys = keys
        self._make = make
        self._made: dict[str, R] = {}
        self._sorted: list[str] | None = None
        self._watchers: set[Watcher] = set()

    async def fresh(self) -> None:
        """Wait until the rows are those of now."""
        if self.first is not None:
            await self.first()

    def get(self, key: str) -> R | None:
        """Return the row, or None."""
        found = self._made.get(key)
        if found is None:
            found = self._make(key)
            if found is not None:
                self._made[key] = found
        return found

    def keys(self) -> list[str]:
        """Return the keys in order."""
        if self._sorted is None:
            self._sorted = sorted(self._keys())
        return self._sorted

    def __iter__(self) -> Iterator[tuple[str, R]]:
        for key in self.keys():
            row = self.get(key)
            if row is not None:
                yield key, row

    def changed(self, keys: Collection[str] | None, *, other_keys: bool = True) -> None:
        """Note that rows have changed, came or went; None: all may have. `other_keys` False: none came or went."""
        if keys is None:
            self._made.clear()
        else:
            for key in keys:
                self._made.pop(key, None)
        if other_keys:
            self._sorted = None
        for watcher in self._watchers:
            watcher.add(keys)

    @contextmanager
    def watched(self, watcher: Watcher | None = None) -> Iterator[Watcher]:
        """Yield a watcher, by default a new one, which gets the changes until the end of the block."""
        watcher = watcher or Watcher()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
