"""Errors of requests, as answers of type application/problem+json (RFC 9457), and outcomes of messages as statuses."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from enmasse.bridge.client_refused import ClientRefused, Refusal
from enmasse.bridge.message_outcomes import MessageOutcome

PROBLEM: Final = "application/problem+json"
SOON: Final = 1
LATER: Final = 5
"""Seconds of Retry-After."""
_TITLES: Final = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    410: "Gone",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
_CHALLENGES: Final = (("www-authenticate", 'Basic realm="enmasse", charset="UTF-8"'), ("www-authenticate", "Bearer"))


class Answered(Exception):
    """Ends a request with a problem. `detail`: what is wrong, and what to do; `retry`: seconds of Retry-After;
    `outcome`, `condition`: of the message."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        retry: int | None = None,
        outcome: str = "",
        condition: str = "",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry = retry
        self.outcome = outcome
        self.condition = str(condition)  # a symbol of AMQP is no text of JSON
        self._headers = headers

    @property
    def fields(self) -> dict[str, Any]:
        """The members of the problem."""
        found: dict[str, Any] = {"title": _TITLES.get(self.status, "Error"), "status": self.status}
        for name in ("detail", "outcome", "condition"):
            if value := getattr(self, name):
                found[name] = value
        return found

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers of the answer."""
        found = [("content-type", PROBLEM), *self._headers]
        if self.status == 401:
            found += _CHALLENGES
        if self.retry is not None:
            found.append(("retry-after", str(self.retry)))
        return found

    @property
    def body(self) -> bytes:
        """The body of the answer."""
        return msgspec.json.encode(self.fields)


_REFUSALS: Final = {
    Refusal.CREDENTIALS: (401, None),
    Refusal.METHOD: (401, None),
    Refusal.NOT_ALLOWED: (401, None),
    Refusal.BUSY: (503, SOON),
    Refusal.AWAY: (503, LATER),
    Refusal.QUOTA: (429, LATER),
    Refusal.RATE: (429, LATER),
}


def of_refusal(refused: ClientRefused) -> Answered:
    """Return the answer to a client that is not served."""
    status, retry = _REFUSALS[refused.refusal]
    return Answered(status, refused.text or "log in", retry=retry)


_CONDITIONS: Final = {
    "amqp:not-found": 404,
    "amqp:unauthorized-access": 403,
    "amqp:not-allowed": 403,
    "amqp:link:message-size-exceeded": 413,
    "amqp:resource-limit-exceeded": 429,
}
_OUTCOMES: Final = {
    MessageOutcome.RELEASED: (503, SOON, "released"),
    MessageOutcome.UNAVAILABLE: (503, LATER, "released"),
    MessageOutcome.MODIFIED: (422, None, "modified"),
    MessageOutcome.UNKNOWN: (504, None, "unknown"),
}
ACCEPTED: Final = frozenset((MessageOutcome.ACCEPTED, MessageOutcome.UNHEARD))


def of_outcome(outcome: MessageOutcome, condition: str, text: str) -> Answered:
    """Return the answer for a message that was not accepted."""
    if outcome is MessageOutcome.REJECTED:
        status = _CONDITIONS.get(condition, 422)
        retry = LATER if status == 429 else None
        return Answered(status, text or condition, outcome="rejected", condition=condition, retry=retry)
    status, retry, name = _OUTCOMES[outcome]
    if outcome is MessageOutcome.UNKNOWN:
        text = f"{text}: send it again, with the same Idempotency-Key if it must not come twice"
    return Answered(status, text, outcome=name, retry=retry)
