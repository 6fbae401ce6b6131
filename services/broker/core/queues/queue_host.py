"""The part of the broker that a queue uses. `Q` is the queue's own type. Times are milliseconds of the broker's
clock."""

from __future__ import annotations

from typing import Protocol, TypeVar

from services.broker.core.jobs import Jobs
from services.broker.core.limits.usage import BrokerTotals
from services.broker.core.messages.dead_letter_reasons import Death
from services.broker.core.messages.payloads import Payloads
from services.broker.core.messages.stored_message import StoredMessage
from services.broker.core.persistence import MessageStore
from services.broker.core.queues.stalls import Standing
from services.broker.core.turn_shares import Share

Q = TypeVar("Q", contravariant=True)


class DeadLettering(Protocol[Q]):
    """Moves messages that are not delivered to another address, or ends them. The message is out of the queue's order
    already. False: it could not be read, is back in its place, and the queue stands still."""

    def expire(self, queue: Q, message: StoredMessage) -> bool:
        """See `DeadLetters.expire`."""

    def kill(self, queue: Q, message: StoredMessage, death: Death) -> bool:
        """See `DeadLetters.kill`."""


class ContentsHost(Protocol):
    """Needs of the messages of a queue."""

    ledger: BrokerTotals
    payloads: Payloads
    store: MessageStore | None

    def removed_some(self) -> None:
        """References were removed: to be recorded soon, and senders may go on if there was no room."""


class QueueHost(ContentsHost, Protocol[Q]):
    """Needs of a queue."""

    jobs: Jobs
    share: Share
    turn: int

    @property
    def now(self) -> int:
        """Milliseconds of the broker's clock."""

    @property
    def dead_letters(self) -> DeadLettering[Q]:
        """Destination of messages that are not delivered."""

    def next_id(self) -> int:
        """An id for a message that is not stored."""

    def to_wall(self, time: int) -> int:
        """Milliseconds since 1970."""

    def postpone(self, queue: Q) -> None:
        """`dispatch` is to be called in a later turn."""

    def is_postponed(self, queue: Q) -> bool:
        """Whether a later turn will call it."""

    def wake_at(self, queue: Q, due: int) -> None:
        """`wake` is to be called when this time has come."""

    def watch_expiries(self, queue: Q) -> None:
        """`expire_due` is to be called now and then."""

    def stall(self, who: Standing, queue: Q, message: StoredMessage, error: OSError) -> None:
        """`who.resume` is to be called when the message can be read again."""

    def lose(self, queue: Q, message: StoredMessage) -> None:
        """A message, already out of the queue's order, is gone for good."""

    def forget_queue(self, queue: Q) -> None:
        """The queue is deleted."""
