"""Successful checks of secrets, remembered for a while. No clock of its own.

The key is an HMAC of the texts that were checked, with a key of this process, which is useless elsewhere: its
memory reveals no secret later.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class Remembered(Generic[V]):
    """At most `most` results; the oldest give way. `now`: a clock in seconds."""

    def __init__(self, now: Callable[[], float], most: int) -> None:
        self._now = now
        self._most = most
        self._secret = b""
        self._found: dict[bytes, tuple[float, V]] = {}
        """Key → when it expires, and the result; the oldest first."""

    def key(self, *texts: str) -> bytes:
        """Return the key of these texts."""
        if not self._secret:
            self._secret = secrets.token_bytes(32)  # not before: services are forked (docs/decisions/0033)
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
        return hmac.digest(self._secret, b"".join([len(part).to_bytes(4) + part for part in parts]), hashlib.sha256)

    def get(self, key: bytes) -> V | None:
        """Return the result of a key, None without one that counts still."""
        expires, result = self._found.get(key, (0.0, None))
        if result is not None and expires <= self._now():
            del self._found[key]
            return None
        return result

    def put(self, key: bytes, result: V, seconds: float) -> None:
        """Remember a result for this time."""
        self._found.pop(key, None)
        if len(self._found) >= self._most:
            del self._found[next(iter(self._found))]
        self._found[key] = self._now() + seconds, result
