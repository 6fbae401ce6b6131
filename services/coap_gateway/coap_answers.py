"""Codes of answers: of refusals, and of the outcomes of messages."""

from __future__ import annotations

from typing import Final

from enmasse.bridge.client_refused import ClientRefused, Refusal
from enmasse.bridge.message_outcomes import MessageOutcome
from enmasse.wire_formats.coap_messages import MAX_AGE, Options, uint

SOON: Final = 1
LATER: Final = 5
"""Seconds of Max-Age, after which a request may be sent again."""


class CoapAnswer(Exception):
    """Ends a request with a code. `text`: what is wrong, and what to do; `retry`: seconds of Max-Age."""

    def __init__(self, code: str, text: str, *, retry: int | None = None, options: Options = ()) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.options = options if retry is None else (*options, (MAX_AGE, uint(retry)))


_REFUSALS: Final = {
    Refusal.CREDENTIALS: ("4.01", None),
    Refusal.METHOD: ("4.01", None),
    Refusal.NOT_ALLOWED: ("4.01", None),
    Refusal.BUSY: ("5.03", SOON),
    Refusal.AWAY: ("5.03", LATER),
    Refusal.QUOTA: ("4.29", LATER),
    Refusal.RATE: ("4.29", LATER),
}
_CONDITIONS: Final = {
    "amqp:not-found": "4.04",
    "amqp:unauthorized-access": "4.03",
    "amqp:not-allowed": "4.03",
    "amqp:link:message-size-exceeded": "4.13",
    "amqp:resource-limit-exceeded": "4.29",
}
_OUTCOMES: Final = {
    MessageOutcome.RELEASED: ("5.03", SOON),
    MessageOutcome.UNAVAILABLE: ("5.03", LATER),
    MessageOutcome.MODIFIED: ("4.22", None),
    MessageOutcome.UNKNOWN: ("5.04", None),
}


def of_refusal(refused: ClientRefused) -> CoapAnswer:
    """Return the answer to a client that is not served."""
    code, retry = _REFUSALS[refused.refusal]
    return CoapAnswer(code, refused.text or "the anonymous user may not be here", retry=retry)


def of_condition(condition: str, text: str, other: str = "4.22") -> CoapAnswer:
    """Return the answer for a condition of AMQP. `other`: the code of one that is not known here."""
    code = _CONDITIONS.get(condition, other)
    return CoapAnswer(code, text or condition, retry=LATER if code in ("4.29", "5.03") else None)


def of_outcome(outcome: MessageOutcome, condition: str, text: str) -> CoapAnswer:
    """Return the answer for a message that was not accepted."""
    if outcome is MessageOutcome.REJECTED:
        return of_condition(condition, text)
    code, retry = _OUTCOMES[outcome]
    return CoapAnswer(code, text, retry=retry)
