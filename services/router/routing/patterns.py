"""Finds the pattern that an address matches best, for configured addresses, link routes, and policies."""

from __future__ import annotations

from typing import Generic, TypeVar

from services.router.routing.names import tokens

V = TypeVar("V")


class _Node(Generic[V]):
    __slots__ = ("children", "rest", "star", "tail", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node[V]] | None = None
        self.star: _Node[V] | None = None
        self.rest: _Node[V] | None = None  # words after a '#' that is not the last word
        self.tail: V | None = None  # the pattern that ends here with '#'
        self.value: V | None = None  # the pattern that ends here

    def empty(self) -> bool:
        return not self.children and self.star is self.rest is self.tail is self.value is None


class AddressPatterns(Generic[V]):
    """Patterns in canonical form, with a value each: those without wildcards in a dict, the rest in a trie of words."""

    __slots__ = ("_exact", "_root", "_wild")

    def __init__(self) -> None:
        self._exact: dict[str, V] = {}
        self._wild: dict[str, V] = {}
        self._root: _Node[V] = _Node()

    def __len__(self) -> int:
        return len(self._exact) + len(self._wild)

    def get(self, pattern: str) -> V | None:
        """Return the value stored for exactly this pattern; None without one."""
        value = self._exact.get(pattern)
        return value if value is not None else self._wild.get(pattern)

    def add(self, pattern: str, value: V) -> None:
        """Store `value`. Raises KeyError if the pattern exists."""
        if self.get(pattern) is not None:
            raise KeyError(pattern)
        parts = pattern.split("/")
        if "*" not in parts and "#" not in parts:
            self._exact[pattern] = value
            return
        self._wild[pattern] = value
        node = self._root
        for i, word in enumerate(parts):
            if word == "#":
                if i == len(parts) - 1:
                    node.tail = value
                    return
                node.rest = node.rest or _Node()
                node = node.rest
            elif word == "*":
                node.star = node.star or _Node()
                node = node.star
            else:
                if node.children is None:
                    node.children = {}
                node = node.children.setdefault(word, _Node())
        node.value = value

    def remove(self, pattern: str) -> None:
        """Remove a pattern. Raises KeyError if it does not exist."""
        if pattern in self._exact:
            del self._exact[pattern]
            return
        del self._wild[pattern]
        self._prune(self._root, pattern.split("/"), 0)

    def _prune(self, node: _Node[V], parts: list[str], at: int) -> None:
        if at == len(parts):
            node.value = None
            return
        word = parts[at]
        if word == "#" and at == len(parts) - 1:
            node.tail = None
        elif word == "#":
            if node.rest is not None:
                self._prune(node.rest, parts, at + 1)
                if node.rest.empty():
                    node.rest = None
        elif word == "*":
            if node.star is not None:
                self._prune(node.star, parts, at + 1)
                if node.star.empty():
                    node.star = None
        elif node.children and word in node.children:
            self._prune(node.children[word], parts, at + 1)
            if node.children[word].empty():
                del node.children[word]

    def match(self, address: str) -> V | None:
        """Return the value of the best pattern for an address (without decoration), or None."""
        parts = tokens(address)
        if self._exact:
            value = self._exact.get("/".join(parts))
            if value is not None:
                return value
        if not self._wild:
            return None
        return self._walk(self._root, parts, 0, set(), {})

    def _walk(
        self, node: _Node[V], parts: list[str], at: int, dead: set[tuple[int, int]], tried: dict[int, int]
    ) -> V | None:
        """Search depth first: literal, `*`, `#`. For long hostile addresses no place is tried twice: `dead` has the
        places from which nothing matches, `tried` the first tried place for the words after each `#`."""
        where = (id(node), at)
        if where in dead:
            return None
        if at == len(parts):
            if node.value is not None:
                return node.value
        else:
            if node.children is not None and (child := node.children.get(parts[at])) is not None:
                found = self._walk(child, parts, at + 1, dead, tried)
                if found is not None:
                    return found
            if node.star is not None:
                found = self._walk(node.star, parts, at + 1, dead, tried)
                if found is not None:
                    return found
        if node.rest is not None:
            rest = id(node.rest)
            skip = at
            while skip < tried.get(rest, len(parts) + 1):
                found = self._walk(node.rest, parts, skip, dead, tried)
                if found is not None:
                    return found
                skip += 1
            tried[rest] = min(at, tried.get(rest, at))
        if node.tail is not None:
            return node.tail
        dead.add(where)
        return None
