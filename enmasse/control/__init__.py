"""The control plane's AMQP: python-qpid-proton's engine on asyncio.

connection = await connect(host, port, container="me")          keep_connected(...) for ever
listener = await listen(host, port, accepted, container="me")
sender, receiver = connection.sender("address"), connection.receiver("address")
router = await Dispatch(connection).opened()                    Artemis(connection) for a broker
"""

from enmasse.control.connection import Connection
from enmasse.control.dial import Listener, connect, keep_connected, listen
from enmasse.control.errors import AmqpError, ConnectionLost, LinkClosed, RequestTimeout
from enmasse.control.link import Delivery, Link, Outcome, Receiver, Sender
from enmasse.control.management import Artemis, Dispatch, Management, ManagementError, Reply

__all__ = [
    "AmqpError",
    "Artemis",
    "Connection",
    "ConnectionLost",
    "Delivery",
    "Dispatch",
    "Link",
    "LinkClosed",
    "Listener",
    "Management",
    "ManagementError",
    "Outcome",
    "Receiver",
    "Reply",
    "RequestTimeout",
    "Sender",
    "connect",
    "keep_connected",
    "listen",
]
