"""Which retained messages there are: a tree by the levels of their names. The messages are in the store. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from typing import Final

from enmasse.identity.authors import Author
from enmasse.identity.shared_room import SharedRoom
from enmasse.model.names import space_of
from enmasse.model.topic_map import escape

PORTION: Final = 1000
"""Names and levels that are looked at in a turn, about 0.5 ms."""


class Retained:
    """A retained message. `arrival`: its place among what came from brokers since the service started (0: before).

    `number` grows with each message that is stored; `expires` (milliseconds since 1970) is 0 if it never does;
    `author`: the user that published it, None: not stated. `topic`: of MQTT when it was stored, if that lacked the name
    of its address; else empty.
    """

    __slots__ = ("arrival", "author", "broker", "expires", "name", "number", "qos", "since", "size", "topic")

    def __init__(
        self,
        name: str,
        broker: str,
        number: int,
        size: int,
        qos: int,
        since: int,
        expires: int,
        arrival: int = 0,
        author: Author | None = None,
        topic: str = "",
    ) -> None:
        self.name = name
        self.broker = broker
        self.number = number
        self.size = size
        self.qos = qos
        self.since = since
        self.expires = expires
        self.arrival = arrival
        self.author = author
        self.topic = topic

    @property
    def prefix(self) -> str:
        """Return what its name has before its topic; empty if the topic is not stated."""
        return self.name[: -len(escape(self.topic))] if self.topic else ""


def user_of(author: Author | None) -> str:
    """Return the full name of the user that published a message; empty: not stated."""
    return "" if author is None else author.full_name


class _Node:
    __slots__ = ("below", "entry")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.entry: Retained | None = None


class RetainedIndex:
    """The retained messages by name; `match` costs what the pattern visits, not what there is."""

    def __init__(self) -> None:
        self.room = SharedRoom()
        """Number of messages."""
        self.bytes = SharedRoom()
        self.prefixes: Counter[str] = Counter()
        """Beginning that a name has before its topic → number of messages."""
        self._by_name: dict[str, _Node] = {}
        self._root = _Node()
        self._ends: list[tuple[int, int, str]] = []
        """(expires, number, name) of each that expires, the soonest first; and some that were replaced."""

    def get(self, name: str) -> Retained | None:
        """Return the retained message of this name, or None."""
        node = self._by_name.get(name)
        return node.entry if node is not None else None

    def put(self, entry: Retained) -> None:
        """Store a retained message in place of the one of the same name."""
        node = self._by_name.get(entry.name)
        if node is None:
            node = self._root
            for level in entry.name.split("/"):
                below = node.below.get(level)
                if below is None:
                    below = node.below[level] = _Node()
                node = below
            self._by_name[entry.name] = node
        if node.entry is not None:
            self._count(node.entry, -1)
        node.entry = entry
        self._count(entry, 1)
        if entry.expires:
            heapq.heappush(self._ends, (entry.expires, entry.number, entry.name))
            if len(self._ends) > 2 * self.count + 1000:
                kept = (node.entry for node in self._by_name.values() if node.entry is not None and node.entry.expires)
                self._ends = [(each.expires, each.number, each.name) for each in kept]
                heapq.heapify(self._ends)

    @property
    def count(self) -> int:
        """Number of messages."""
        return self.room.used

    def _count(self, entry: Retained, one: int) -> None:
        user, space = user_of(entry.author), space_of(entry.name)
        self.room.add(user, one, space)
        self.bytes.add(user, one * entry.size, space)
        if entry.topic:
            self.prefixes[entry.prefix] += one
            if not self.prefixes[entry.prefix]:
                del self.prefixes[entry.prefix]

    def of_topic(self, topic: str, space: str) -> Iterator[Retained]:
        """Yield the messages of this topic that were stored while it lacked the name of its address."""
        for prefix in self.prefixes:
            entry = self.get(prefix + escape(topic)) if space_of(prefix) == space else None
            if entry is not None and entry.topic == topic:
                yield entry

    def remove(self, name: str) -> Retained | None:
        """Remove a retained message. Return it, or None if it is absent."""
        node = self._by_name.pop(name, None)
        if node is None or node.entry is None:
            return None
        entry, node.entry = node.entry, None
        self._count(entry, -1)
        self._prune(name.split("/"))
        return entry

    def _prune(self, levels: list[str]) -> None:
        path = [self._root]
        for level in levels:
            path.append(path[-1].below[level])
        for at in range(len(levels) - 1, -1, -1):
            node = path[at + 1]
            if node.below or node.entry is not None:
                return
            del path[at].below[levels[at]]

    def expired(self, now: int) -> list[Retained]:
        """Return the messages that expired before `now` (milliseconds since 1970), once."""
        found = []
        while self._ends and self._ends[0][0] <= now:
            _, number, name = heapq.heappop(self._ends)
            entry = self.get(name)
            if entry is not None and entry.number == number:
                found.append(entry)
        return found

    def match(self, pattern: str) -> list[Retained]:
        """Return the messages whose name a pattern covers (`+`: one level, `#` at the end: it and all below), in the
        order in which they were stored."""
        return sorted((each for each in self.looks(pattern) if each is not None), key=lambda entry: entry.number)

    def looks(self, pattern: str) -> Iterator[Retained | None]:
        """Yield the messages that a pattern covers, and None after each PORTION of names and levels that were looked
        at: then the caller may let others have their turn, and messages may come and go."""
        levels, looked = pattern.split("/"), 0
        todo = [(self._root, 0)]
        while todo:
            node, at = todo.pop()
            looked += 1
            if looked % PORTION == 0:
                yield None
            if at == len(levels) or levels[at] == "#":
                if node.entry is not None:
                    yield node.entry
                if at < len(levels):
                    todo += [(below, at) for below in node.below.values()]
            elif levels[at] == "+":
                todo += [(below, at + 1) for below in node.below.values()]
            elif (found := node.below.get(levels[at])) is not None:
                todo.append((found, at + 1))
