"""maxMessageSize of the policy: larger messages are rejected, and their link is detached.

A link without a limit has no cost: the check is placed before the link's callback only if it has one.
"""

from __future__ import annotations

from collections.abc import Callable

from enmasse.amqp.codec.errors import MESSAGE_SIZE_EXCEEDED, AmqpError
from enmasse.amqp.codec.performatives import Error, Rejected, TransactionalState
from enmasse.amqp.link import Receiver
from services.router.routing.connection import LinkRecord, RouterConnection, stated_address

OnDelivery = Callable[[Receiver, int, bool, bytes, bytes, int], None]


def limited(link: Receiver, forward: OnDelivery) -> OnDelivery:
    """Return the callback for deliveries of one frame: `forward`, after a check if the link has a limit."""
    limit = link.max_message_size
    if not limit:
        return forward

    def check(link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int) -> None:
        if len(payload) > limit:
            refuse_size(link, delivery_id, settled)
        else:
            forward(link, delivery_id, settled, payload, tag, message_format)

    return check


def refuse_size(link: Receiver, delivery_id: int, settled: bool, transaction: TransactionalState | None = None) -> None:
    """Refuse a message that is larger than its link allows; forwarded pieces are aborted with the link (2.7.3)."""
    connection: RouterConnection = link.session.connection.context
    connection.owner.policy.size_denied += 1
    error = AmqpError(MESSAGE_SIZE_EXCEEDED, f"a message of more than {link.max_message_size} bytes")
    if transaction is not None:
        connection.fail_transaction(bytes(transaction.txn_id), error)
    connection.refused("close", error, stated_address(link))
    record: LinkRecord = link.context
    record.refuse_large(delivery_id, settled, Rejected(error=Error.of(error)))
    link.detach(error)
