"""Outcomes of the messages that clients of a gateway have sent, whatever their protocol calls them."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class MessageOutcome(Enum):
    """MessageOutcome of one message, which is final for the gateway."""

    ACCEPTED = auto()
    """A broker has stored it, or a receiver has it."""
    UNHEARD = auto()
    """The address broadcasts, and has no receivers: no failure."""
    RELEASED = auto()
    """No receiver took it in time."""
    UNAVAILABLE = auto()
    """The broker of its address did not take it in time. That passes: it may be sent again."""
    MODIFIED = auto()
    """No receiver can take this message."""
    REJECTED = auto()
    """Refused, with a condition of AMQP."""
    UNKNOWN = auto()
    """Sent, and the connection was lost before the outcome came, or none came in time: maybe the message is stored."""

    __hash__ = object.__hash__  # that of Enum is slow, and each message is counted


NOT_TAKEN: Final = frozenset(
    (MessageOutcome.REJECTED, MessageOutcome.RELEASED, MessageOutcome.UNAVAILABLE, MessageOutcome.MODIFIED)
)
"""Outcomes of messages that no broker and no receiver has."""

OUTCOME_WITHIN: Final = 60.0
"""Seconds after which clients whose protocol has an answer to each request get one: a receiver may keep a message for
as long as it likes, and a full address lets its senders wait."""
OVERDUE: Final = (MessageOutcome.UNKNOWN, "", f"no outcome came in {OUTCOME_WITHIN:g} s")
"""Outcome, condition and text then."""
