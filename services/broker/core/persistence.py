"""Protocols of the broker's storage. services/broker/storage implements them; the core imports nothing from there.

Ids (of messages and of definitions alike) are positive integers from one counter and are never used again. Times are
milliseconds since 1970, 0 = none; sizes are bytes. Nothing is durable before a commit that follows it has succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from enmasse.metrics import Histogram

MAX_HOLDERS = 65_535
"""Queues that may refer to one message."""

Committed = Callable[[OSError | None], None]
"""Called with None when everything before the commit is on disk, with the error when it is not and will not be."""

Progress = Callable[[float], None]
"""Called with the part of the work that is done, 0 to 1. What it raises ends the work."""


class FoundReference(Protocol):
    """One message in one queue, as found at the start. `size` is that of the payload."""

    @property
    def message(self) -> int:
        """Id of the message."""

    @property
    def size(self) -> int:
        """Bytes of its payload."""

    @property
    def priority(self) -> int:
        """Priority, 0 to 9."""

    @property
    def expiry(self) -> int:
        """Milliseconds since 1970, 0 = never."""

    @property
    def not_before(self) -> int:
        """Milliseconds since 1970 before which it is not delivered, 0 = at once."""

    @property
    def delivery_count(self) -> int:
        """Failed deliveries from this queue."""


class FoundRun(Protocol):
    """Ids of messages in a queue's order which only this queue refers to, of priority 4, without expiry, never
    delivered and not delayed; and the sizes of their payloads."""

    @property
    def messages(self) -> Sequence[int]:
        """Ids of the messages, ascending."""

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of the payload of each."""


class Found(Protocol):
    """Contents of the disk at the start: definitions by id, and the references of each queue in queue order."""

    @property
    def definitions(self) -> Mapping[int, bytes]:
        """All definitions by id."""

    @property
    def unknown(self) -> Mapping[int, int]:
        """How many references there are to ids whose definition is damaged."""

    def queues(self) -> Iterable[int]:
        """Return ids of those that hold at least one reference."""

    def count(self, queue: int) -> int:
        """Return the number of references from a queue."""

    def parts(self, queue: int, count: int) -> Iterator[FoundRun | Sequence[FoundReference]]:
        """Yield the references, `count` at a time; as a run if all of them are of the usual kind."""

    def holders(self, message: int) -> int:
        """Return how many queues refer to the message."""


class Losses(Protocol):
    """Losses by damage, recorded until an administrator deletes the record."""

    on_cleared: Callable[[], None]
    """The record was deleted."""

    @property
    def queues(self) -> Mapping[str, int]:
        """Messages lost by name of the queue."""

    @property
    def places(self) -> int:
        """Damaged places in files."""

    def add(self, what: str, queue: str = "", messages: int = 0) -> None:
        """Count a damaged place (`what`), and messages of a queue that are lost with it."""

    def report(self) -> str:
        """Return a sentence for people; empty: nothing was lost."""


class MessageStore(Protocol):
    """Durable messages, their references from queues, and definitions (JSON objects as bytes)."""

    identity: str
    """Name of the store, with which its ids are unique among all stores."""
    on_space: Callable[[], None]
    """`full` or `unusable` has changed."""

    @property
    def full(self) -> bool:
        """There is too little space for more messages; removals still fit."""

    @property
    def unusable(self) -> bool:
        """`full` not for want of space: its place on the disk cannot be read, or is not the one it had."""

    @property
    def trouble(self) -> str:
        """Why no more is stored and what to do, a sentence; empty: nothing is wrong."""

    @property
    def failing(self) -> bool:
        """Whether the last commit failed."""

    @property
    def disk_bytes(self) -> int:
        """Bytes of all files."""

    @property
    def disk_free(self) -> int | None:
        """Bytes that are free on the file system; None if it does not say."""

    @property
    def latency(self) -> Histogram:
        """Seconds in which batches were written and synced."""

    @property
    def losses(self) -> Losses:
        """Losses by damage."""

    def take_recovered(self) -> Found:
        """Return the contents found at the start, which the store forgets. To be used up before any change."""

    def new_id(self, count: int = 1) -> int:
        """Reserve `count` ids for definitions, or for messages that are not stored; return the first."""

    def define(self, id: int, value: bytes) -> None:
        """Create or replace a definition. A queue is defined before the commit of its first reference."""

    def undefine(self, id: int) -> None:
        """Delete a definition, its references and its duplicate ids. `discard` follows for each reference held."""

    def add(
        self,
        payload: bytes,
        queues: Sequence[int],
        *,
        priority: int = 4,
        expiry: int = 0,
        not_before: int = 0,
        duplicate: tuple[int, bytes] | None = None,
    ) -> int:
        """Store one copy with a reference from each queue (one to MAX_HOLDERS); returns the message's id.
        `duplicate`: id of the definition whose cache it is, and the key to be remembered there."""

    def add_run(self, payloads: Sequence[bytes], queue: int, priority: int) -> int:
        """`add` of several messages that this one queue refers to; the id of the first, the others' follow it."""

    def remove(self, message: int, queue: int) -> None:
        """The reference is gone; with the last one, the message."""

    def remove_many(self, messages: list[int], queue: int) -> None:
        """Remove the references of a queue to these messages."""

    def discard(self, message: int, queue: int) -> None:
        """Remove a reference of a queue that is no longer defined."""

    def update(self, message: int, queue: int, *, delivery_count: int, not_before: int = 0) -> None:
        """Record deliveries made and the time before which there is to be no other."""

    def change(self, message: int, payload: bytes, *, priority: int, expiry: int) -> None:
        """Replace the payload of a message that is not delayed; its id, its references and their delivery counts
        stay."""

    def split(self, message: int, queue: int, payload: bytes, *, priority: int, expiry: int) -> int:
        """Turn the queue's reference into a message of its own, with another payload. Return its id."""

    def load(self, message: int) -> bytes:
        """Return the payload. Raises LookupError if it is gone for good (no such message, or damaged), OSError if it
        cannot be read now."""

    def load_many(self, messages: Sequence[int]) -> dict[int, bytes]:
        """`load` of messages that were stored one after the other; those that cannot be read are left out."""

    def seen(self, cache: int, key: bytes) -> bool:
        """Return whether `add` was called with this duplicate key and the cache still has it."""

    def limit_duplicates(self, cache: int, count: int) -> None:
        """How many keys the cache keeps."""

    def group(self, size: int) -> AbstractContextManager[None]:
        """Make all changes inside, of some `size` bytes, atomic: after a crash all are there, or none. A commit that
        fails keeps all of them, and the next one writes them. Raises OSError before anything is changed."""

    def commit_now(self, done: Committed | None = None) -> None:
        """`done` may be called inside. If it fails, messages added since the last success are forgotten; removals,
        updates and definitions are written with the next commit."""

    def on_failure(self, uncommitted: Callable[[], Committed]) -> None:
        """A commit that fails takes along what was added since it began. `uncommitted` is called then: it gives the
        `done` of what no commit has been called for yet."""

    def close(self) -> None:
        """Commit all changes and close. Blocks."""


class PageStore(Protocol):
    """Payloads put out of memory that may die with the process. A place is an opaque positive integer."""

    def write(self, payload: bytes) -> int:
        """Put a payload out of memory and return its place. Raises OSError: nothing is kept of this payload."""

    def read(self, place: int) -> bytes:
        """Return a payload. Raises LookupError (no such place), OSError."""

    def release(self, place: int) -> None:
        """Free the place of a payload."""

    def close(self) -> None:
        """Close the files; what is in them is not kept."""
