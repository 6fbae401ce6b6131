"""Links by the names that users know them by: Link, Sender, Receiver."""

from enmasse.amqp.endpoint import FIRST, MIXED, SECOND, SETTLED, UNSETTLED, Link
from enmasse.amqp.receiver import Receiver
from enmasse.amqp.sender import Sender

__all__ = ["FIRST", "MIXED", "SECOND", "SETTLED", "UNSETTLED", "Link", "Receiver", "Sender"]
