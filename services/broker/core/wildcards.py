"""Hierarchical names: levels divided by `/`, `+` stands for one level, `#` for any number of levels, also none."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

SEPARATOR = "/"
SINGLE = "+"
ANY = "#"

T = TypeVar("T", bound=Hashable)


def is_pattern(name: str) -> bool:
    """Whether `name` has a wildcard level (a `+` or `#` inside a longer level is an ordinary character)."""
    if SINGLE not in name and ANY not in name:
        return False
    return any(level in (SINGLE, ANY) for level in name.split(SEPARATOR))


def matches(pattern: str, name: str) -> bool:
    """Whether `name` is covered by `pattern`; `a/#` covers `a` too."""
    tree: PatternTree[str] = PatternTree()
    tree.add(pattern, pattern)
    return bool(tree.match(name))


def specificity(pattern: str) -> tuple[int, int, int]:
    """A key that sorts patterns from the most general to the most specific (exact names last)."""
    levels = pattern.split(SEPARATOR)
    any_count = levels.count(ANY)
    single_count = levels.count(SINGLE)
    return (-any_count, -single_count, len(levels)) if any_count else (1, -single_count, len(levels))


def parents(name: str) -> Iterator[str]:
    """`a/b/c` gives `a/b`, then `a`."""
    while SEPARATOR in name:
        name = name.rpartition(SEPARATOR)[0]
        yield name


class _Node(Generic[T]):
    __slots__ = ("any", "children", "values")

    def __init__(self, any: bool) -> None:
        self.any = any  # stands for a `#`
        self.children: dict[str, _Node[T]] = {}
        self.values: dict[T, None] = {}


class PatternTree(Generic[T]):
    """Values under names or patterns; `match(name)` finds those of every pattern that covers the name."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node(False)

    def add(self, pattern: str, value: T) -> None:
        node = self._root
        for level in pattern.split(SEPARATOR):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node(level == ANY)
            node = child
        node.values[value] = None

    def remove(self, pattern: str, value: T) -> None:
        path: list[tuple[_Node[T], str]] = []
        node = self._root
        for level in pattern.split(SEPARATOR):
            path.append((node, level))
            child = node.children.get(level)
            if child is None:
                return
            node = child
        node.values.pop(value, None)
        while path and not node.values and not node.children:
            node, level = path.pop()
            del node.children[level]

    def match(self, name: str) -> list[T]:
        """Values whose pattern covers `name`, each once. Work is bounded by levels x nodes."""
        levels = name.split(SEPARATOR)
        end = len(levels)
        found: dict[T, None] = {}
        seen: set[tuple[int, int]] = set()
        todo: list[tuple[_Node[T], int]] = [(self._root, 0)]
        while todo:
            node, at = todo.pop()
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            if node.any and at < end:
                todo.append((node, at + 1))
            rest = node.children.get(ANY)
            if rest is not None:
                # A last `#` takes everything that is left; one in the middle continues from any level.
                found.update(rest.values)
                if rest.children:
                    todo.append((rest, at))
            if at == end:
                found.update(node.values)
                continue
            child = node.children.get(levels[at])
            if child is not None and levels[at] not in (SINGLE, ANY):
                todo.append((child, at + 1))
            child = node.children.get(SINGLE)
            if child is not None:
                todo.append((child, at + 1))
        return list(found)


class _Level:
    __slots__ = ("below", "name")

    def __init__(self) -> None:
        self.below: dict[str, _Level] = {}
        self.name: str | None = None  # that ends here


class NameTree:
    """Names; `covered(pattern)` finds those that a pattern (or a name) covers without looking at the others."""

    def __init__(self) -> None:
        self._root = _Level()

    def add(self, name: str) -> None:
        node = self._root
        for level in name.split(SEPARATOR):
            found = node.below.get(level)
            if found is None:
                found = node.below[level] = _Level()
            node = found
        node.name = name

    def remove(self, name: str) -> None:
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
        """Each once. A level of a name is taken literally, also if it looks like a wildcard."""
        levels = pattern.split(SEPARATOR)
        end = len(levels)
        found: list[str] = []
        seen: set[tuple[int, int]] = set()
        todo: list[tuple[_Level, int]] = [(self._root, 0)]
        while todo:
            node, at = todo.pop()
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            if at == end:
                if node.name is not None:
                    found.append(node.name)
            elif levels[at] == ANY:
                todo.append((node, at + 1))
                todo += [(below, at) for below in node.below.values()]
            elif levels[at] == SINGLE:
                todo += [(below, at + 1) for below in node.below.values()]
            elif (below := node.below.get(levels[at])) is not None:
                todo.append((below, at + 1))
        return found
