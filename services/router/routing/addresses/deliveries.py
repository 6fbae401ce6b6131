"""Deliveries in flight: the interface of their origin (Source), and the copies of a multicast.

A delivery in flight is known by its token `(source, delivery_id)`: `source.settle(delivery_id, state)` settles it
towards its sender, `source.pass_state(sender, tokens, state)` passes a state of several on without settling,
`source.count(state)` keeps the books: it follows a settlement with any state but accepted. Sources are the links on
which deliveries come in, the copies of a multicast, routed links. Nothing else is made per message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Accepted, Error, Modified, Rejected, Released
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import Sender

SHORTEST = 4
"""Bytes of a message with one empty section: some client libraries raise an error for shorter ones."""


def rejected(condition: str, description: str) -> Rejected:
    """Return the outcome rejected with this error."""
    return Rejected(error=Error(condition=Symbol(condition), description=description))


NOT_A_MESSAGE = rejected("amqp:decode-error", "the message cannot be decoded")
FAILED = Modified(delivery_failed=True)
"""State of deliveries that a receiver may have seen when its link ended."""


class Source(Protocol):
    """Origin of a delivery (see the module)."""

    @property
    def sender(self) -> bytes:
        """Return the sender for brokers (enmasse/identity/senders.py)."""

    @property
    def is_queue(self) -> bool:
        """True for a broker's queue, which redelivers: what its receivers leave is released."""

    @property
    def settle(self) -> Callable[..., None]:
        """Function of delivery-id and state: settles the delivery towards its sender. Default state: accepted."""

    @property
    def accept(self) -> Callable[[list[int]], None]:
        """`settle` with accepted, for deliveries whose outcomes arrived together."""

    def count(self, state: Any) -> None:
        """Count a delivery that was settled with a state other than accepted."""

    def pass_state(self, sender: Sender, tokens: Sequence[Token], state: Any) -> None:
        """Pass on a state that the receiver at `sender` has sent without settling: the sender's settlement of these
        deliveries will be passed back to it."""

    def forget(self, delivery_id: int) -> None:
        """Record that the receiver has settled."""

    def refused(self, error: AmqpError) -> None:
        """Note that a broker, which does not know whose it is, has refused a message."""


Token = tuple[Source, int]


Held = tuple[Any, Token | None, int]
"""A delivery that waits for credit: payload (bytes or a Stream), token (None: presettled), message format."""


def settle_others(sender: Sender, tokens: Sequence[Token], stated: Sequence[int]) -> Sequence[Token]:
    """Settle towards the receiver at `sender` those deliveries that their own sender has settled before the receiver
    stated anything; return those in `stated`, for which it waits."""
    waiting = set(stated)
    sender.settle([token for token in tokens if token[1] not in waiting])
    return [token for token in tokens if token[1] in waiting]


_WHOLE = (bytes, bytearray, memoryview)


def is_whole(payload: Any) -> bool:
    """Return True for bytes, False for a stream."""
    return isinstance(payload, _WHOLE)


def for_another(state: Modified) -> Modified:
    """Return the state for a broker when one of several consumers of its link refuses a message: other consumers of the
    link may take it, so it is not undeliverable here. The attempt is counted, so that attempts end."""
    return Modified(delivery_failed=True, message_annotations=state.message_annotations)


class Books(Protocol):
    """Counters of outcomes."""

    accepted: int
    rejected: int
    released: int
    modified: int


def count_outcomes(books: Books, state: Any, n: int) -> None:
    """Count `n` deliveries with this state."""
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


class DeliveryCopies:
    """The copies of one multicast delivery; the sender gets the highest of rejected, accepted, modified, released."""

    __slots__ = ("delivery_id", "left", "sender", "source", "state")
    is_queue = False

    def __init__(self, source: Source, delivery_id: int, copies: int) -> None:
        self.sender = source.sender
        self.source = source
        self.delivery_id = delivery_id
        self.left = copies
        self.state: Any = None

    def settle(self, delivery_id: int, state: Any = ACCEPTED) -> None:
        """Settle one copy. With the last one the sender gets the outcome that ranks highest among all."""
        best = self.state
        if best is None or _RANK.get(type(state), -1) > _RANK.get(type(best), -1):
            self.state = state
        self.left -= 1
        if not self.left:
            state = self.state
            self.source.settle(self.delivery_id, state)
            if state is not ACCEPTED:
                self.source.count(state)

    def accept(self, delivery_ids: list[int]) -> None:
        """Settle copies as accepted."""
        for delivery_id in delivery_ids:
            self.settle(delivery_id)

    def count(self, state: Any) -> None:
        """Do nothing: the delivery is counted once, after its last copy."""

    def pass_state(self, sender: Sender, tokens: Sequence[Token], state: Any) -> None:
        """Settle towards the receiver at once, and the copies with this state: the sender gets one outcome for all."""
        sender.settle(tokens)
        if type(state) in _RANK:
            for _, delivery_id in tokens:
                self.settle(delivery_id, state)

    def forget(self, delivery_id: int) -> None:
        """Do nothing: copies have no state of their own."""

    def refused(self, error: AmqpError) -> None:
        """As of the delivery."""
        self.source.refused(error)
