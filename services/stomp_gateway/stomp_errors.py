"""Errors that clients get as ERROR frames, after which their connection is closed (STOMP 1.2, ERROR)."""

from __future__ import annotations

from typing import Final

from enmasse.bridge.client_refused import ClientRefused, Refusal
from enmasse.bridge.message_outcomes import NOT_TAKEN, MessageOutcome


class StompError(Exception):
    """Ends a connection. `message`: in a few words; `detail`: what is wrong, and what to do. `condition`: of AMQP;
    `receipt`: the receipt that the frame in question has asked for. `noted`: it needs no event of its own."""

    def __init__(
        self, message: str, detail: str = "", *, condition: str = "", receipt: str = "", noted: bool = False
    ) -> None:
        super().__init__(detail or message)
        self.message = message
        self.detail = detail or message
        self.condition = condition
        self.receipt = receipt
        self.noted = noted


_REFUSALS: Final = {
    Refusal.CREDENTIALS: "access refused",
    Refusal.METHOD: "access refused",
    Refusal.NOT_ALLOWED: "access refused",
    Refusal.BUSY: "try again",
    Refusal.AWAY: "try again later",
    Refusal.QUOTA: "too many connections",
    Refusal.RATE: "connected too often",
}


def of_refusal(refused: ClientRefused) -> StompError:
    """Return the error for a client that is not served."""
    return StompError(_REFUSALS[refused.refusal], refused.text or "log in", noted=True)


TAKEN: Final = frozenset((MessageOutcome.ACCEPTED, MessageOutcome.UNHEARD))
_OUTCOMES: Final = {
    MessageOutcome.RELEASED: "released",
    MessageOutcome.UNAVAILABLE: "released",
    MessageOutcome.MODIFIED: "modified",
    MessageOutcome.UNKNOWN: "outcome unknown",
    MessageOutcome.REJECTED: "rejected",
}


def of_outcome(outcome: MessageOutcome, condition: str, text: str, receipt: str) -> StompError:
    """Return the error for a message that was not accepted."""
    if outcome is MessageOutcome.UNKNOWN:
        text = f"{text}: send it again, with the same _AMQ_DUPL_ID if it must not come twice"
    noted = outcome in NOT_TAKEN
    return StompError(_OUTCOMES[outcome], text or condition, condition=condition, receipt=receipt, noted=noted)
