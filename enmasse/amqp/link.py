"""Links by the names that users know them by: Link, Sender, Receiver."""

from enmasse.amqp.endpoint import (
    FIRST,
    MIXED,
    SECOND,
    SETTLED,
    UNSETTLED,
    Link,
    LinkFault,
    from_error,
    serial_difference,
)
from enmasse.amqp.receiver import OnDelivery, Receiver
from enmasse.amqp.sender import Sender

__all__ = [
    "FIRST",
    "MIXED",
    "SECOND",
    "SETTLED",
    "UNSETTLED",
    "Link",
    "LinkFault",
    "OnDelivery",
    "Receiver",
    "Sender",
    "from_error",
    "serial_difference",
]
