"""Stalls: queues and browsers that wait because a message cannot be read, and the time of the next try.

A file that was moved away, descriptors that are used up, a disk that does not answer: none of it means that a message
is gone. Its queue (or browser) waits with the message in its place, and the message is read again after a while, later
and later, until it can be read or is known to be gone.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol

from services.broker.core.messages.stored_message import StoredMessage

FIRST, LONGEST = 250, 5000  # milliseconds from one try to the next

_REMEDIES = {
    errno.ENOENT: "put the file back",
    errno.EACCES: "make the file readable for the broker",
    errno.EMFILE: "allow the broker more open files (ulimit -n), or let clients disconnect",
    errno.ENFILE: "allow the machine more open files (fs.file-max)",
}
_REMEDY = "look at the disk of the data directory"


class Named(Protocol):
    """A queue."""

    @property
    def name(self) -> str:
        """Name of the queue."""


class Standing(Protocol):
    """A queue or a browser that stands still."""

    def resume(self) -> None:
        """Continue: the message can be read again, or never will be."""


class _Stall:
    __slots__ = ("delay", "due", "error", "message", "queue")

    def __init__(self, queue: Named, message: StoredMessage, error: OSError, delay: int, due: int) -> None:
        self.queue = queue
        self.message = message
        self.error = error
        self.delay = delay
        self.due = due


class Stalls:
    """`read` gives the payload of a message, None if it is gone for good; it raises OSError if that cannot be
    known. Times are milliseconds."""

    def __init__(self, read: Callable[[StoredMessage], bytes | None]) -> None:
        self._read = read
        self._stalls: dict[Standing, _Stall] = {}

    def add(self, who: Standing, queue: Named, message: StoredMessage, error: OSError, now: int) -> int:
        """Record that `message` of `queue` could not be read for `who`. Return when reading it is tried again."""
        stall = self._stalls[who] = _Stall(queue, message, error, FIRST, now + FIRST)
        return stall.due

    def drop(self, queue: Named) -> None:
        """Forget a deleted queue."""
        for who in [who for who, stall in self._stalls.items() if stall.queue is queue]:
            del self._stalls[who]

    def retry(self, now: int) -> None:
        """Read the messages that are due again; the queues and browsers of those that can be read continue."""
        for who, stall in list(self._stalls.items()):
            if stall.due > now:
                continue
            try:
                self._read(stall.message)  # also if it is gone meanwhile: then there is nothing to be read
            except OSError as error:
                stall.error = error
                stall.delay = min(2 * stall.delay, LONGEST)
                stall.due = now + stall.delay
                continue
            del self._stalls[who]
            who.resume()

    @property
    def due(self) -> int:
        """When something is to be tried again, 0 = nothing is."""
        return min((stall.due for stall in self._stalls.values()), default=0)

    def reasons(self) -> dict[str, str]:
        """Return name of the queue → why it, or a browser of it, stands still, and what to do."""
        return {
            stall.queue.name: f"a message cannot be read: {stall.error}; {remedy(stall.error)}, it is tried again"
            " by itself"
            for stall in self._stalls.values()
        }

    def __contains__(self, who: Standing) -> bool:
        return who in self._stalls

    def __bool__(self) -> bool:
        return bool(self._stalls)


def remedy(error: OSError) -> str:
    """Return what an administrator can do about the error."""
    return _REMEDIES.get(error.errno or 0, _REMEDY)
