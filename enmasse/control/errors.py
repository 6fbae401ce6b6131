"""What goes wrong between control-plane peers, in AMQP's terms (OASIS AMQP 1.0 part 2.8.14: condition, description)."""

from __future__ import annotations


class AmqpError(Exception):
    """An error condition a peer told us, or that we tell a peer."""

    def __init__(self, condition: str, description: str = "") -> None:
        super().__init__(f"{condition}: {description}" if description else condition)
        self.condition = condition
        self.description = description


class LinkClosed(AmqpError):
    """The link was refused or detached; `condition` is empty where the peer gave none."""


class ConnectionLost(AmqpError):
    """The connection is gone: closed by the peer, timed out, or the socket failed."""


class RequestTimeout(AmqpError):
    """A management request was not answered in time; what it did is unknown: read the state again."""


NOT_FOUND = "amqp:not-found"
NOT_ALLOWED = "amqp:not-allowed"
DECODE_ERROR = "amqp:decode-error"
INVALID_FIELD = "amqp:invalid-field"
INTERNAL_ERROR = "amqp:internal-error"
RESOURCE_LIMIT = "amqp:resource-limit-exceeded"
MESSAGE_SIZE = "amqp:link:message-size-exceeded"
PRECONDITION_FAILED = "amqp:precondition-failed"
