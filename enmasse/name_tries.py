"""Tries of names with levels divided by `/`: one finds the patterns that cover a name, one the names that a pattern
covers.

In a pattern one word stands for a single level (`+` for MQTT and brokers, `*` for routers) and `#` for any number of
levels, also none. Inside a longer level both are ordinary characters. A level of a name is always taken literally.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Sequence
from typing import Final, Generic, TypeVar

SEPARATOR: Final = "/"
SINGLE: Final = "+"
ANY: Final = "#"

V = TypeVar("V", bound=Hashable)


class _Node(Generic[V]):
    __slots__ = ("children", "rest", "single", "tail", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Node[V]] = {}
        self.single: _Node[V] | None = None
        self.rest: _Node[V] | None = None  # the levels after a `#` that is not the last
        self.tail: dict[V, None] | None = None  # of the pattern that ends with a `#` here
        self.values: dict[V, None] | None = None  # of the pattern that ends here

    def empty(self) -> bool:
        return not (self.children or self.single or self.rest or self.tail or self.values)


class PatternTrie(Generic[V]):
    """Patterns with their values; finds the patterns that cover a name. The cost of a search grows with the levels of
    the name and the patterns that match so far, not with the number of patterns.

    A pattern has a value once. `#/#` is the same pattern as `#`. `single`: the word for one level. `reserved`: a
    wildcard at the first level does not cover names that begin with this character.
    """

    __slots__ = ("_exact", "_reserved", "_root", "_single", "_size", "_wild")

    def __init__(self, single: str = SINGLE, reserved: str | None = None) -> None:
        self._single = single
        self._reserved = reserved
        self._exact: dict[str, dict[V, None]] = {}  # of patterns without wildcards
        self._root: _Node[V] = _Node()
        self._wild = 0  # values in the trie
        self._size = 0

    def __len__(self) -> int:
        """Return the number of (pattern, value)."""
        return self._size

    def add(self, pattern: str, value: V) -> bool:
        """Return False if the pattern had this value already."""
        levels = self._levels(pattern)
        if levels is None:
            values = self._exact.setdefault(pattern, {})
        else:
            node = self._path(levels, make=True)[-1]
            if levels[-1] == ANY:
                node.tail = values = node.tail or {}
            else:
                node.values = values = node.values or {}
        if value in values:
            return False
        values[value] = None
        self._size += 1
        self._wild += levels is not None
        return True

    def remove(self, pattern: str, value: V) -> bool:
        """Return False if the pattern did not have this value."""
        values = self._find(pattern)
        if values is None or value not in values:
            return False
        del values[value]
        self._size -= 1
        levels = self._levels(pattern)
        if levels is not None:
            self._wild -= 1
            self._prune(levels)
        elif not values:
            del self._exact[pattern]
        return True

    def first(self, pattern: str) -> V | None:
        """Return the value that exactly this pattern got first; None without one."""
        values = self._find(pattern)
        return next(iter(values)) if values else None

    def match(self, name: str) -> list[V]:
        """Return the values of all patterns that cover the name, in no order. A value that several patterns have may
        come as often."""
        exact = self._exact.get(name)
        found = list(exact) if exact is not None else []
        if not self._wild:
            return found
        levels = name.split(SEPARATOR)
        nodes = [self._root]
        if name[:1] == self._reserved:
            child = self._root.children.get(levels.pop(0))
            if child is None:
                return found
            nodes = [child]
        lasting: dict[_Node[V], None] = {}  # nodes after a `#`: from any further level they are reached too
        for level in levels:
            below: list[_Node[V]] = []
            for node in nodes:
                if node.tail is not None:
                    found += node.tail
                if node.rest is not None and node.rest not in lasting:
                    lasting[node.rest] = None
                    nodes.append(node.rest)
                if node.single is not None:
                    below.append(node.single)
                child = node.children.get(level)
                if child is not None:
                    below.append(child)
            if lasting:
                below += lasting
            elif not below:
                return found
            nodes = below
        for node in nodes:
            if node.tail is not None:
                found += node.tail
            if node.values is not None:
                found += node.values
        return list(dict.fromkeys(found)) if lasting else found  # below a `#`, a tail is found at several levels

    def best(self, levels: Sequence[str]) -> V | None:
        """Return the first value of the best pattern that covers the name of these levels; None without one. At each
        level from the left, a literal is better than a single, and that better than `#`."""
        if self._exact:
            exact = self._exact.get(SEPARATOR.join(levels))
            if exact is not None:
                for value in exact:
                    return value
        return _best(self._root, levels, 0, set(), {}) if self._wild else None

    def _levels(self, pattern: str) -> list[str] | None:
        """Return the levels of a pattern; None if it has no wildcards."""
        if self._single not in pattern and ANY not in pattern:
            return None
        levels = pattern.split(SEPARATOR)
        if ANY not in levels:
            return levels if self._single in levels else None
        return [level for at, level in enumerate(levels) if not (at and level == levels[at - 1] == ANY)]

    def _path(self, levels: list[str], make: bool = False) -> list[_Node[V]]:
        """Return the nodes from the root as far as they exist. The last `#` has no node: it is the tail of the node
        before it."""
        path = [self._root]
        for level in levels[:-1] if levels[-1] == ANY else levels:
            node = path[-1]
            if level == ANY:
                if make and node.rest is None:
                    node.rest = _Node()
                child = node.rest
            elif level == self._single:
                if make and node.single is None:
                    node.single = _Node()
                child = node.single
            else:
                child = node.children.get(level)
                if make and child is None:
                    child = node.children[level] = _Node()
            if child is None:
                break
            path.append(child)
        return path

    def _find(self, pattern: str) -> dict[V, None] | None:
        levels = self._levels(pattern)
        if levels is None:
            return self._exact.get(pattern)
        path, many = self._path(levels), levels[-1] == ANY
        if len(path) <= len(levels) - many:
            return None
        return path[-1].tail if many else path[-1].values

    def _prune(self, levels: list[str]) -> None:
        """Remove nodes of a pattern that have nothing left."""
        path = self._path(levels)
        path[-1].tail = path[-1].tail or None
        path[-1].values = path[-1].values or None
        while len(path) > 1 and path[-1].empty():
            path.pop()
            parent, level = path[-1], levels[len(path) - 1]
            if level == ANY:
                parent.rest = None
            elif level == self._single:
                parent.single = None
            else:
                del parent.children[level]


def _best(
    node: _Node[V], levels: Sequence[str], at: int, dead: set[tuple[int, int]], tried: dict[int, int]
) -> V | None:
    """Search depth first. For long hostile names no place is tried twice below a `#`: `dead` has the places from which
    nothing matches, `tried` the first tried place for the levels after each `#`."""
    if tried and (id(node), at) in dead:
        return None
    if at == len(levels):
        if node.values is not None:
            for value in node.values:
                return value
    else:
        child = node.children.get(levels[at])
        if child is not None and (found := _best(child, levels, at + 1, dead, tried)) is not None:
            return found
        if node.single is not None and (found := _best(node.single, levels, at + 1, dead, tried)) is not None:
            return found
    if node.rest is not None:
        rest = id(node.rest)
        for skip in range(at, tried.setdefault(rest, len(levels) + 1)):
            found = _best(node.rest, levels, skip, dead, tried)
            if found is not None:
                return found
        tried[rest] = min(at, tried[rest])
    if node.tail is not None:
        for value in node.tail:
            return value
    if tried:
        dead.add((id(node), at))
    return None


class _Level:
    __slots__ = ("below", "name")

    def __init__(self) -> None:
        self.below: dict[str, _Level] = {}
        self.name: str | None = None  # that ends here


class NameTrie:
    """Names; finds those that a pattern covers without looking at the others."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Level()

    def add(self, name: str) -> None:
        """Add a name."""
        node = self._root
        for level in name.split(SEPARATOR):
            found = node.below.get(level)
            if found is None:
                found = node.below[level] = _Level()
            node = found
        node.name = name

    def remove(self, name: str) -> None:
        """Remove a name, if present."""
        path: list[tuple[_Level, str]] = []
        node = self._root
        for level in name.split(SEPARATOR):
            path.append((node, level))
            found = node.below.get(level)
            if found is None:
                return
            node = found
        node.name = None
        while path and node.name is None and not node.below:
            node, level = path.pop()
            del node.below[level]

    def covered(self, pattern: str) -> list[str]:
        """Return the names that a pattern (with `+` and `#`) covers, each once."""
        return self.covered_within(pattern, sys.maxsize) or []

    def covered_within(self, pattern: str, most: int) -> list[str] | None:
        """Return what `covered` does; None if that takes more than `most` looks at levels of names."""
        levels = pattern.split(SEPARATOR)
        end = len(levels)
        found: list[str] = []
        seen: set[tuple[int, int]] = set()
        todo: list[tuple[_Level, int]] = [(self._root, 0)]
        while todo:
            if len(seen) + len(todo) > most:
                return None
            node, at = todo.pop()
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            if at == end:
                if node.name is not None:
                    found.append(node.name)
            elif levels[at] in (ANY, SINGLE):
                if len(node.below) > most:
                    return None
                if levels[at] == ANY:
                    todo.append((node, at + 1))
                below_at = at + (levels[at] == SINGLE)
                todo += [(below, below_at) for below in node.below.values()]
            elif (below := node.below.get(levels[at])) is not None:
                todo.append((below, at + 1))
        return found

    def above(self, levels: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Yield each name that is covered by the first levels of a pattern, whose only `#` may be its last, and the
        number of these levels. Below a `#` that is the number of those before it."""
        todo = [(self._root, 0)]
        while todo:
            node, at = todo.pop()
            if node.name is not None:
                yield node.name, at
            if at == len(levels):
                continue
            if levels[at] == ANY:
                todo += [(below, at) for below in node.below.values()]
            elif levels[at] == SINGLE:
                todo += [(below, at + 1) for below in node.below.values()]
            elif (below := node.below.get(levels[at])) is not None:
                todo.append((below, at + 1))
