"""Errors between control-plane peers, in AMQP's terms (OASIS AMQP 1.0 part 2.8.14: condition, description)."""

from __future__ import annotations


class ControlError(Exception):
    """An error condition that a peer has sent, or that is sent to a peer."""

    def __init__(self, condition: str, description: str = "") -> None:
        super().__init__(f"{condition}: {description}" if description else condition)
        self.condition = condition
        self.description = description


class LinkClosed(ControlError):
    """The link was refused or detached; `condition` is empty if the peer gave none."""


class ConnectionLost(ControlError):
    """The connection is gone: closed by the peer, timed out, or the socket failed."""


class RequestTimeout(ControlError):
    """A management request was not answered in time; what it did is unknown: read the state again."""


class RequestFailed(ControlError):
    """A management node answered with a failure. `status` is Dispatch's statusCode (400, 404 …), 0 from Artemis."""

    def __init__(self, status: int, description: str) -> None:
        super().__init__(str(status) if status else "failed", description)
        self.status = status


NOT_FOUND = "amqp:not-found"
UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
NOT_ALLOWED = "amqp:not-allowed"
DECODE_ERROR = "amqp:decode-error"
INVALID_FIELD = "amqp:invalid-field"
INTERNAL_ERROR = "amqp:internal-error"
STOLEN = "amqp:link:stolen"
RESOURCE_LIMIT = "amqp:resource-limit-exceeded"
MESSAGE_SIZE = "amqp:link:message-size-exceeded"
PRECONDITION_FAILED = "amqp:precondition-failed"
