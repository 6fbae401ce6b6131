"""Errors of AMQP: one exception, and the error conditions of the specification (2.8.15 to 2.8.18, 4.5.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from enmasse.amqp.codec.types import Symbol


class AmqpError(Exception):
    """An AMQP error: `condition` (a symbol), `description` (for people), `info` (a map, may be empty).

    Raised by the codec and the engine, and raised by handlers to send the peer just this.
    """

    def __init__(self, condition: str, description: str = "", info: Mapping[str, Any] | None = None) -> None:
        super().__init__(condition, description)
        self.condition = condition if type(condition) is Symbol else Symbol(condition)
        self.description = description
        self.info: dict[str, Any] = dict(info) if info else {}

    def __str__(self) -> str:
        return f"{self.condition}: {self.description}" if self.description else str(self.condition)


class LoginError(AmqpError):
    """The server did not let this client in. `code`: sasl-code of the outcome (5.3.3.6), None without one. `offered`:
    mechanisms of the server if this client can use none of them."""

    def __init__(self, description: str, code: int | None = None, offered: Sequence[str] | None = None) -> None:
        super().__init__(UNAUTHORIZED_ACCESS, description)
        self.code = code
        self.offered = offered

    @property
    def temporary(self) -> bool:
        """Return True if the server could not check the credentials."""
        return self.code is not None and self.code != _SASL_AUTH


_SASL_AUTH = 1

# amqp-error (2.8.15)
INTERNAL_ERROR = Symbol("amqp:internal-error")
NOT_FOUND = Symbol("amqp:not-found")
UNAUTHORIZED_ACCESS = Symbol("amqp:unauthorized-access")
DECODE_ERROR = Symbol("amqp:decode-error")
RESOURCE_LIMIT_EXCEEDED = Symbol("amqp:resource-limit-exceeded")
NOT_ALLOWED = Symbol("amqp:not-allowed")
INVALID_FIELD = Symbol("amqp:invalid-field")
NOT_IMPLEMENTED = Symbol("amqp:not-implemented")
RESOURCE_LOCKED = Symbol("amqp:resource-locked")
PRECONDITION_FAILED = Symbol("amqp:precondition-failed")
RESOURCE_DELETED = Symbol("amqp:resource-deleted")
ILLEGAL_STATE = Symbol("amqp:illegal-state")
FRAME_SIZE_TOO_SMALL = Symbol("amqp:frame-size-too-small")

# connection-error (2.8.16)
CONNECTION_FORCED = Symbol("amqp:connection:forced")
FRAMING_ERROR = Symbol("amqp:connection:framing-error")
CONNECTION_REDIRECT = Symbol("amqp:connection:redirect")

# session-error (2.8.17)
WINDOW_VIOLATION = Symbol("amqp:session:window-violation")
ERRANT_LINK = Symbol("amqp:session:errant-link")
HANDLE_IN_USE = Symbol("amqp:session:handle-in-use")
UNATTACHED_HANDLE = Symbol("amqp:session:unattached-handle")

# link-error (2.8.18)
DETACH_FORCED = Symbol("amqp:link:detach-forced")
TRANSFER_LIMIT_EXCEEDED = Symbol("amqp:link:transfer-limit-exceeded")
MESSAGE_SIZE_EXCEEDED = Symbol("amqp:link:message-size-exceeded")
LINK_REDIRECT = Symbol("amqp:link:redirect")
STOLEN = Symbol("amqp:link:stolen")

# transaction-error (4.5.8)
TRANSACTION_UNKNOWN_ID = Symbol("amqp:transaction:unknown-id")
TRANSACTION_ROLLBACK = Symbol("amqp:transaction:rollback")
TRANSACTION_TIMEOUT = Symbol("amqp:transaction:timeout")


def no_transactions() -> AmqpError:
    """Return the error for a transaction (4.2): an attach to a coordinator, or work that names one."""
    return AmqpError(
        NOT_IMPLEMENTED,
        "Transactions are not supported here: they hold for queues and topics, over links that are attached in the "
        "session of the link to the coordinator, behind the one to the coordinator",
    )


def not_acknowledged() -> AmqpError:
    """Return the error for an outcome that was to hold with a transaction, and was not taken."""
    return AmqpError(TRANSACTION_ROLLBACK, "an outcome of it is of no delivery that it could be applied to")


def malformed(description: str) -> AmqpError:
    """The error for bytes that are not AMQP: raise what this returns. A long description is cut: the peer gets it."""
    return AmqpError(DECODE_ERROR, description if len(description) <= 300 else description[:299] + "…")
