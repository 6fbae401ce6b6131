"""Deliveries on their way, and the two parties that each link knows of the other: where a delivery came from (Source)
and a delivery that comes in pieces (Streamed).

A delivery in flight is known by its token `(source, delivery_id)`: `source.settle(delivery_id, state)` settles it
towards its sender, `source.update(delivery_id, state)` passes a state on without settling, `source.count(state)` keeps
the books: it follows a settlement with any state but accepted. Sources are the links on which deliveries come in, the
copies of a multicast, routed links. Nothing else is made per message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from enmasse.amqp.link import Sender
from enmasse.amqp.performatives import ACCEPTED, Accepted, Error, Modified, Rejected, Released
from enmasse.amqp.types import Symbol

SHORTEST = 4
"""Bytes of a message of one empty section: some clients' libraries raise an error for less."""


def rejected(condition: str, description: str) -> Rejected:
    return Rejected(error=Error(condition=Symbol(condition), description=description))


NOT_A_MESSAGE = rejected("amqp:decode-error", "the message cannot be decoded")
FAILED = Modified(delivery_failed=True)
"""The state of deliveries that were on the wire when their receiver went away."""


class Source(Protocol):
    """Where a delivery came from; see the module's text."""

    @property
    def settle(self) -> Callable[..., None]: ...

    @property
    def update(self) -> Callable[[int, Any], None]: ...

    def count(self, state: Any) -> None: ...

    def awaits(self, delivery_id: int, sender: Sender, token: Token) -> None:
        """The receiver has a state and has not settled: the sender's settlement is to be passed on to it."""

    def forget(self, delivery_id: int) -> None:
        """The receiver has settled after all."""


Token = tuple[Source, int]


class Streamed(Protocol):
    """A delivery that comes in pieces, as the link on which it goes out knows it."""

    def start(self, out: Any, token: Token | None) -> None:
        """It is this delivery's turn on `out`."""

    def resume(self, out: Any) -> None:
        """There is room again."""

    def move(self, before: Any, now: Any) -> None:
        """It has waited for one receiver and goes to another, which can take it."""

    def lost(self, out: Any) -> None:
        """This receiver is gone."""

    def stalled(self, now: float) -> bool: ...

    def break_off(self) -> None: ...


Held = tuple[Any, Token | None, int]
"""A delivery that waits for credit: payload (bytes or Streamed), token (None: settled already), message format."""


_WHOLE = (bytes, bytearray, memoryview)


def is_whole(payload: Any) -> bool:
    """Bytes, and no stream."""
    return isinstance(payload, _WHOLE)


def for_another(state: Modified) -> Modified:
    """What a broker gets for a message that one of several consumers of its link does not take: undeliverable on that
    link it is not. Counted, so that a message that nobody takes comes to an end."""
    return Modified(delivery_failed=True, message_annotations=state.message_annotations)


class Books(Protocol):
    """Counters of outcomes."""

    accepted: int
    rejected: int
    released: int
    modified: int


def count_outcomes(books: Books, state: Any, n: int) -> None:
    """`n` deliveries have got this state."""
    kind = type(state)
    if kind is Released:
        books.released += n
    elif kind is Modified:
        books.modified += n
    elif kind is Rejected:
        books.rejected += n
    elif kind is Accepted:
        books.accepted += n


_RANK = {Rejected: 3, Accepted: 2, Modified: 1, Released: 0}


class Copies:
    """The copies of one multicast delivery; the sender gets the highest of rejected, accepted, modified, released."""

    __slots__ = ("delivery_id", "left", "source", "state")

    def __init__(self, source: Source, delivery_id: int, copies: int) -> None:
        self.source = source
        self.delivery_id = delivery_id
        self.left = copies
        self.state: Any = None

    def settle(self, delivery_id: int, state: Any = ACCEPTED) -> None:
        best = self.state
        if best is None or _RANK.get(type(state), -1) > _RANK.get(type(best), -1):
            self.state = state
        self.left -= 1
        if not self.left:
            state = self.state
            self.source.settle(self.delivery_id, state)
            if state is not ACCEPTED:
                self.source.count(state)

    def update(self, delivery_id: int, state: Any) -> None:
        """A state without settlement: the copy is settled for the receiver, whose state counts."""
        if type(state) in _RANK:
            self.settle(delivery_id, state)

    def count(self, state: Any) -> None:
        """Counted once, when the last copy is done."""

    def awaits(self, delivery_id: int, sender: Sender, token: Token) -> None:
        sender.settle([token])

    def forget(self, delivery_id: int) -> None:
        """Nothing is kept per copy."""
