"""Durable messages, their references from queues, and definitions, on the journal.

All methods belong to the thread of the event loop. Nothing is durable before the `commit` that follows it has reported
success. Ids (messages, queues, addresses, caches alike) are positive integers from one counter, never used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

Done = Callable[[OSError | None], None]
Payload = bytes | bytearray | memoryview


class StoreError(Exception):
    """The data directory cannot be used (in use, of a newer version, unreadable): says which, and what to do."""


class Reference(NamedTuple):
    """One message in one queue, as found at start. Times are milliseconds since 1970, 0 = none; `size` is that of the payload."""

    message: int
    size: int
    priority: int
    expiry: int
    not_before: int
    delivery_count: int


@dataclass
class Recovered:
    """What was found on disk: definitions by id, and the references of each defined queue in queue order."""

    definitions: dict[int, bytes] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)  # one line per damaged place: file, offset, what was lost

    def references(self, queue: int) -> Iterator[Reference]:
        """The messages of a queue in order of arrival; made on the fly, payloads stay on disk."""
        raise NotImplementedError

    def queues(self) -> Iterable[int]:
        """Ids of the definitions that hold at least one reference."""
        raise NotImplementedError


class Store:
    """See the module. `Store.open` replays; then `recovered` tells what was there."""

    recovered: Recovered

    @classmethod
    def open(cls, directory: Path, *, loop: asyncio.AbstractEventLoop | None = None) -> Store:
        """Locks and replays the directory (made when missing). Raises StoreError. Without a loop, commits happen in `flush`."""
        raise NotImplementedError

    def close(self) -> None:
        """Commits what is appended, unlocks. Blocks."""

    def new_id(self) -> int:
        """An id for a definition."""
        raise NotImplementedError

    # -- definitions: queues, addresses, settings; the value is the caller's (JSON) -----------------------------------
    def define(self, id: int, value: bytes) -> None:
        """Creates or replaces the definition. A queue must be defined before the commit of its first reference: references
        to ids without a definition are dropped at start."""

    def undefine(self, id: int) -> None:
        """Deletes a definition. Its references and its duplicate cache are gone with it; call `discard` for each reference
        still held, so that memory and disk are given back."""

    # -- messages ------------------------------------------------------------------------------------------------------
    def add(
        self,
        payload: Payload | Sequence[Payload],
        queues: Sequence[int],
        *,
        priority: int = 4,
        expiry: int = 0,
        not_before: int = 0,
        duplicate: tuple[int, bytes] | None = None,
    ) -> int:
        """Stores one copy with a reference from each queue (at least one), in one atomic record; returns the message's id.
        `duplicate` = (id of the definition whose cache it is, key): remembered together with the message."""
        raise NotImplementedError

    def reference(self, message: int, queue: int) -> None:
        """One more queue refers to the message, at the end of that queue."""

    def remove(self, message: int, queue: int) -> None:
        """Acknowledged, expired or purged: the reference is gone; with the last one, the message. Unknown ones are ignored."""

    def move(self, message: int, source: int, target: int) -> None:
        """The reference leaves `source` and arrives at the end of `target`, atomically; its delivery count starts at 0."""

    def update(self, message: int, queue: int, *, delivery_count: int, not_before: int = 0) -> None:
        """Records deliveries made and the time before which there is to be no other."""

    def discard(self, message: int, queue: int) -> None:
        """Forgets a reference whose queue was undefined: nothing is written."""

    def load(self, message: int) -> bytes:
        """The payload, from disk. Raises KeyError (no such message), OSError (unreadable)."""
        raise NotImplementedError

    # -- duplicates ----------------------------------------------------------------------------------------------------
    def seen(self, cache: int, key: bytes) -> bool:
        """Whether `add` was called with this duplicate key and it is still among the newest of its cache."""
        raise NotImplementedError

    def limit_duplicates(self, cache: int, count: int) -> None:
        """How many keys the cache keeps (default 20,000)."""

    # -- durability ----------------------------------------------------------------------------------------------------
    def commit(self, done: Done | None = None) -> None:
        """`done(None)` once everything called so far is on disk, `done(error)` when it is not and will not be: then messages
        added since the last success are forgotten (reject them; their ids are unknown from here on), while removals,
        moves, updates and definitions are kept in memory and written with the next commit. `done` runs in the loop, never
        inside this call (without a loop: inside `flush`)."""

    def flush(self) -> None:
        """Writes and syncs now, blocking; calls what waits."""

    @property
    def full(self) -> bool:
        """Too little disk space is left to take more messages (removals still fit): refuse or block senders. Cheap to ask."""
        raise NotImplementedError

    @property
    def disk_bytes(self) -> int:
        """What the directory takes."""
        raise NotImplementedError
