"""A client that is to be the only one of its container-id (AMQP 1.0, sole connection enforcement; JMS: its client id).

It asks with a desired capability of `open`. The second one is refused: our `open` carries the property
amqp:connection-establishment-failed, and a `close` with the reason follows.
"""

from __future__ import annotations

from enmasse.amqp.codec.errors import INVALID_FIELD, AmqpError
from enmasse.amqp.codec.performatives import Open
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection

SOLE_CONNECTION = Symbol("sole-connection-for-container")
_FAILED = Symbol("amqp:connection-establishment-failed")


def wants_sole(peer: Open) -> bool:
    """Return whether the peer asks to be the only one of its container-id."""
    return SOLE_CONNECTION in (peer.desired_capabilities or ())


def refuse_second(connection: Connection, peer: Open) -> AmqpError:
    """Marks our `open`, not yet sent, as that of a connection that does not come about; returns the error to close
    with."""
    ours = connection.open_fields
    ours.properties = {**(ours.properties or {}), _FAILED: True}
    return AmqpError(
        INVALID_FIELD,
        f"the container-id {peer.container_id!r} is in use by another connection",
        {Symbol("invalid-field"): Symbol("container-id")},
    )
