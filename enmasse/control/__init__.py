"""The control plane's AMQP: python-qpid-proton's engine on asyncio.

connection = await connect(host, port, container="me")          keep_connected(...) indefinitely
listener = await listen(host, port, accepted, container="me")
sender, receiver = connection.sender("address"), connection.receiver("address")
router = await Dispatch(connection).opened()                    Artemis(connection) for a broker

Imports proton, enmasse.reconcile, enmasse.model and the codec of enmasse.amqp; nothing of the data plane's engine.
"""

from enmasse.control.connection import ControlConnection
from enmasse.control.dial import Listener, connect, keep_connected, keep_connected_to, listen
from enmasse.control.errors import ConnectionLost, ControlError, LinkClosed, RequestFailed, RequestTimeout
from enmasse.control.link import ControlLink, ControlReceiver, ControlSender, Delivery, Outcome
from enmasse.control.management import Artemis, Dispatch, Management, Reply

__all__ = [
    "Artemis",
    "ConnectionLost",
    "ControlConnection",
    "ControlError",
    "ControlLink",
    "ControlReceiver",
    "ControlSender",
    "Delivery",
    "Dispatch",
    "LinkClosed",
    "Listener",
    "Management",
    "Outcome",
    "Reply",
    "RequestFailed",
    "RequestTimeout",
    "connect",
    "keep_connected",
    "keep_connected_to",
    "listen",
]
