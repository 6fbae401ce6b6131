"""Duplicate keys: how the id of a message is remembered for its sender, and which keys of an address are kept.

A key begins with its sender: a zero, the length of the sender's name, the name. So keys of two senders differ whatever
ids they choose. Keys of earlier versions begin otherwise (they state no sender); every sender's id is compared with
those too.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")

LIMIT = 20_000
"""Keys of one sender at an address, unless its settings say otherwise."""
SENDERS = 5
"""An address keeps this many times the keys of one sender, of all its senders together."""
FEW = 4
"""A sender with at most a quarter of what it may have loses none of them to senders with more."""
_LONGEST = 32  # bytes of a sender's name


def key_of(sender: bytes, id: bytes) -> bytes:
    """Return the key of a sender's message."""
    return b"\0%c%b%b" % (len(sender), sender, id)


def _sender_in(key: bytes) -> bytes:
    """Return what a key begins with: the same for keys of one sender. One for all keys without a sender."""
    return key[: 2 + key[1]] if len(key) > 1 and not key[0] and key[1] <= _LONGEST else b""


class Keys(Generic[V]):
    """Keys of one address with a value each, oldest first. The caller removes what is `surplus`."""

    __slots__ = ("_large", "_senders", "_values", "limit")

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._values: OrderedDict[bytes, V] = OrderedDict()
        self._senders: dict[bytes, OrderedDict[bytes, None]] = {}
        self._large: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: bytes) -> V | None:
        """Return the value of a key, None if it is not kept."""
        return self._values.get(key)

    def seen(self, key: bytes) -> bool:
        """Return whether the sender's id is kept, or was by an earlier version, which knew no senders."""
        return key in self._values or (b"" in self._senders and key[2 + key[1] :] in self._senders[b""])

    def add(self, key: bytes, value: V) -> V | None:
        """Add the newest key. Return its former value."""
        former = self.remove(key) if key in self._values else None
        self._values[key] = value
        sender = _sender_in(key)
        own = self._senders.get(sender)
        if own is None:
            own = self._senders[sender] = OrderedDict()
        own[key] = None
        if len(own) * FEW > self.limit:
            self._large.add(sender)
        return former

    def replace(self, key: bytes, value: V) -> None:
        """Give a key that is kept another value; its place stays."""
        self._values[key] = value

    def remove(self, key: bytes) -> V:
        """Remove a key. Return its value."""
        sender = _sender_in(key)
        own = self._senders[sender]
        del own[key]
        if not own:
            del self._senders[sender]
        if len(own) * FEW <= self.limit:
            self._large.discard(sender)
        return self._values.pop(key)

    def surplus(self, newest: bytes) -> bytes | None:
        """Return a key that is to go, after `newest` has come; None: all may stay.

        A sender with more than `limit` loses its oldest. If all have more than SENDERS times as many, the one with the
        most does, or if none has more than a quarter of `limit`, the oldest of all goes.
        """
        own = self._senders.get(_sender_in(newest))
        if own is not None and len(own) > self.limit:
            return next(iter(own))
        if len(self._values) <= SENDERS * self.limit:
            return None
        if self._large:
            return next(iter(self._senders[max(self._large, key=self._count)]))
        return next(iter(self._values))

    def set_limit(self, limit: int) -> list[bytes]:
        """Set the number of keys that a sender may have. Return the last key of each sender, for `surplus`."""
        self.limit = limit
        self._large = {sender for sender, own in self._senders.items() if len(own) * FEW > limit}
        return [next(reversed(own)) for own in self._senders.values()]

    def items(self) -> list[tuple[bytes, V]]:
        """Return all keys with their values."""
        return list(self._values.items())

    def _count(self, sender: bytes) -> int:
        return len(self._senders[sender])
