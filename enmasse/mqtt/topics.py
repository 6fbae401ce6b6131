"""Topic names and topic filters (4.7): which are valid, which filter matches which topic, `$share` (v5 4.8.2), and a
tree that finds the filters of a topic among many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, NamedTuple, TypeVar

MAX_BYTES: Final = 65535

V = TypeVar("V")


def fault_of_text(text: str) -> str | None:
    """Return why `text` is not an MQTT string (v3.1.1 1.5.3, v5 1.5.4), in a few words; None if it is one."""
    if "\0" in text:
        return "holds U+0000"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "holds a surrogate (U+D800 to U+DFFF)"
    return f"has {size} bytes, at most {MAX_BYTES} are possible" if size > MAX_BYTES else None


def fault_of_topic(topic: str) -> str | None:
    """Return why `topic` is not a topic name, in a few words ("is empty"); None if it is one."""
    if not topic:
        return "is empty"
    if "+" in topic or "#" in topic:
        return "holds a wildcard (+ or #)"
    return fault_of_text(topic)


def fault_of_filter(filter: str) -> str | None:
    """Return why `filter` is not a topic filter, in a few words; None if it is one. `$share` is not checked."""
    if not filter:
        return "is empty"
    if "#" in filter and (filter.index("#") != len(filter) - 1 or (len(filter) > 1 and filter[-2] != "/")):
        return "has a # that is not the whole last level"
    if "+" in filter and any("+" in level and level != "+" for level in filter.split("/")):
        return "has a + that is not a whole level"
    return fault_of_text(filter)


def levels(text: str) -> int:
    """How many levels a topic or filter has: 1 more than slashes."""
    return text.count("/") + 1


def has_wildcard(filter: str) -> bool:
    return "+" in filter or "#" in filter


class Share(NamedTuple):
    """A shared subscription `$share/GROUP/FILTER`."""

    group: str
    filter: str


def is_shared(filter: str) -> bool:
    return filter.startswith("$share/") or filter == "$share"


def parse_share(filter: str) -> Share | None:
    """The parts of a shared subscription (v5 4.8.2), None for an ordinary filter. Raises ValueError, in a few words,
    for an invalid one that begins with `$share`."""
    if not is_shared(filter):
        return None
    group, slash, rest = filter[7:].partition("/")
    if not group:
        raise ValueError("has no share name after $share/")
    if "+" in group or "#" in group:
        raise ValueError("has a wildcard in its share name")
    if not slash or not rest:
        raise ValueError("has no topic filter after the share name")
    return Share(group, rest)


def matches(filter: str, topic: str) -> bool:
    """Whether a valid filter (without `$share`) matches a valid topic. Wildcards at the first level match no topic that
    begins with `$` (v3.1.1 MQTT-4.7.2-1, v5 MQTT-4.7.2-1)."""
    if "+" not in filter and "#" not in filter:
        return filter == topic
    if topic[:1] == "$" and filter[0] in "+#":
        return False
    wanted, found = filter.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        if len(found) < len(wanted):
            return False
    elif len(found) != len(wanted):
        return False
    return all(want in ("+", level) for want, level in zip(wanted, found, strict=False))


class FilterTree(Generic[V]):
    """Many filters, each with values; finds the values of all that match a topic. The cost of `match` grows with the
    levels of the topic and the filters that match so far, not with the filters there are.

    Filters are valid ones without `$share`. A value is there once per filter; values are hashable.
    """

    __slots__ = ("_exact", "_root", "_size")

    def __init__(self) -> None:
        self._exact: dict[str, dict[V, None]] = {}  # the filters without a wildcard
        self._root: _Node[V] = _Node()
        self._size = 0

    def __len__(self) -> int:
        """How many (filter, value) there are."""
        return self._size

    def add(self, filter: str, value: V) -> bool:
        """False if this filter had this value already."""
        values = self._values(filter)
        if value in values:
            return False
        values[value] = None
        self._size += 1
        return True

    def remove(self, filter: str, value: V) -> bool:
        """False if this filter did not have this value."""
        if not has_wildcard(filter):
            exact = self._exact.get(filter)
            if exact is None or value not in exact:
                return False
            del exact[value]
            if not exact:
                del self._exact[filter]
            self._size -= 1
            return True
        path = [self._root]
        parts = filter.split("/")
        many = parts[-1] == "#"
        if many:
            parts.pop()
        for part in parts:
            child = path[-1].children.get(part)
            if child is None:
                return False
            path.append(child)
        values = path[-1].many if many else path[-1].here
        if value not in values:
            return False
        del values[value]
        self._size -= 1
        for depth in range(len(path) - 1, 0, -1):
            if path[depth].children or path[depth].here or path[depth].many:
                break
            del path[depth - 1].children[parts[depth - 1]]
        return True

    def match(self, topic: str) -> list[V]:
        """The values of all filters that match a valid topic, in no order; a value that several filters have comes as
        often."""
        exact = self._exact.get(topic)
        found = list(exact) if exact is not None else []
        root = self._root
        if not root.children and not root.many:
            return found
        reserved = topic[:1] == "$"
        if not reserved:
            found += root.many
        nodes = [root]
        for part in topic.split("/"):
            below: list[_Node[V]] = []
            for node in nodes:
                child = node.children.get(part)
                if child is not None:
                    below.append(child)
                if not reserved:
                    child = node.children.get("+")
                    if child is not None:
                        below.append(child)
            if not below:
                return found
            for node in below:
                found += node.many
            reserved = False
            nodes = below
        for node in nodes:
            found += node.here
        return found

    def items(self) -> Iterator[tuple[str, V]]:
        """Yield all (filter, value), in no order."""
        for filter, values in self._exact.items():
            for value in values:
                yield filter, value
        waiting: list[tuple[str, _Node[V]]] = [("", self._root)]
        while waiting:
            prefix, node = waiting.pop()
            for value in node.here:
                yield prefix[:-1], value
            for value in node.many:
                yield prefix + "#", value
            waiting += [(f"{prefix}{part}/", child) for part, child in node.children.items()]

    def _values(self, filter: str) -> dict[V, None]:
        if not has_wildcard(filter):
            return self._exact.setdefault(filter, {})
        node = self._root
        parts = filter.split("/")
        many = parts[-1] == "#"
        if many:
            parts.pop()
        for part in parts:
            child = node.children.get(part)
            if child is None:
                child = node.children[part] = _Node()
            node = child
        return node.many if many else node.here


class _Node(Generic[V]):
    __slots__ = ("children", "here", "many")

    def __init__(self) -> None:
        self.children: dict[str, _Node[V]] = {}
        self.here: dict[V, None] = {}  # of the filter that ends here
        self.many: dict[V, None] = {}  # of the filter that ends with /# here: this level and all below
