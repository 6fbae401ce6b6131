"""Duplicate keys: how the id of a message is remembered for its sender, and which keys of an address are kept.

A key begins with its sender: a zero, the length of the sender's name, the name. So keys of two senders differ whatever
ids they choose. Keys of earlier versions begin otherwise (they state no sender); every sender's id is compared with
those too.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Generic, TypeVar

V = TypeVar("V")

LIMIT = 20_000
"""Keys of one sender at an address, unless its settings say otherwise."""
SENDERS = 5
"""An address keeps this many times the keys of one sender, of all its senders together."""
FEW = 4
"""A sender with at most a quarter of what it may have loses none of them to senders with more."""
_LONGEST = 32  # bytes of a sender's name


@lru_cache(maxsize=4096)
def _prefix(sender: bytes) -> bytes:
    return bytes((0, len(sender))) + sender


def key_of(sender: bytes, id: bytes) -> bytes:
    """Return the key of a sender's message."""
    return _prefix(sender) + id


def _sender_in(key: bytes) -> bytes:
    """Return what a key begins with: the same for keys of one sender. One for all keys without a sender."""
    return key[: 2 + key[1]] if len(key) > 1 and not key[0] and key[1] <= _LONGEST else b""


class Keys(Generic[V]):
    """Keys of one address with a value each, oldest first."""

    __slots__ = ("_large", "_senders", "_values", "limit")

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._values: OrderedDict[bytes, V] = OrderedDict()
        self._senders: dict[bytes, deque[bytes]] = {}
        self._large: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def get(self, key: bytes) -> V | None:
        """Return the value of a key, None if it is not kept."""
        return self._values.get(key)

    def seen(self, key: bytes) -> bool:
        """Return whether the sender's id is kept, or was by an earlier version, which knew no senders."""
        values = self._values
        if key in values:
            return True
        if b"" not in self._senders:
            return False
        id = key[2 + key[1] :]
        return id in values and not _sender_in(id)

    def add(self, key: bytes, value: V, *, bounded: bool = True) -> Sequence[tuple[bytes, V]]:
        """Add the newest key, and remove those that are to go then if `bounded`. Return the removed ones and the former
        one, with their values."""
        values = self._values
        gone: Sequence[tuple[bytes, V]] = [(key, self.remove(key))] if key in values else ()
        values[key] = value
        own = self._senders.get(key[: 2 + key[1]]) if len(key) > 1 else None  # as `_sender_in`, without a call
        if own is None:
            own = self._senders.setdefault(_sender_in(key), deque())
        own.append(key)
        count, limit = len(own), self.limit
        if bounded and 0 < limit == count - 1 and not gone and len(values) <= SENDERS * limit + 1:
            oldest = own.popleft()  # as `trim`, for a busy sender
            return ((oldest, values.pop(oldest)),)
        if count * FEW > limit:
            self._large.add(_sender_in(key))
        if not bounded or (count <= limit and len(values) <= SENDERS * limit):
            return gone
        return [*gone, *self.trim(_sender_in(key))]

    def replace(self, key: bytes, value: V) -> None:
        """Give a key that is kept another value; its place stays."""
        self._values[key] = value

    def remove(self, key: bytes) -> V:
        """Remove a key. Return its value."""
        sender = _sender_in(key)
        own = self._senders[sender]
        if own[0] == key:
            own.popleft()
        elif own[-1] == key:
            own.pop()
        else:
            own.remove(key)
        if not own:
            del self._senders[sender]
        if len(own) * FEW <= self.limit:
            self._large.discard(sender)
        return self._values.pop(key)

    def trim(self, sender: bytes) -> list[tuple[bytes, V]]:
        """Remove the keys that are to go after one of `sender` has come. Return them with their values."""
        gone: list[tuple[bytes, V]] = []
        while (key := self._surplus(sender)) is not None:
            gone.append((key, self.remove(key)))
        return gone

    def _surplus(self, sender: bytes) -> bytes | None:
        """Return the next key to go. A sender with more than `limit` loses its oldest. If all together have more than
        SENDERS times as many, the one with the most does, or if none has more than a quarter of `limit`, the oldest of
        all goes."""
        own = self._senders.get(sender)
        if own is not None and len(own) > self.limit:
            return own[0]
        if len(self._values) <= SENDERS * self.limit:
            return None
        if self._large:
            return self._senders[max(self._large, key=self._count)][0]
        return next(iter(self._values))

    def set_limit(self, limit: int) -> list[tuple[bytes, V]]:
        """Set the number of keys that a sender may have. Return the keys that go, with their values."""
        self.limit = limit
        self._large = {sender for sender, own in self._senders.items() if len(own) * FEW > limit}
        return [each for sender in list(self._senders) for each in self.trim(sender)]

    def items(self) -> list[tuple[bytes, V]]:
        """Return all keys with their values."""
        return list(self._values.items())

    def _count(self, sender: bytes) -> int:
        return len(self._senders[sender])
