"""Make queues and topics on a broker by Artemis' management, with python-qpid-proton."""

from __future__ import annotations

import json

from proton import Message
from proton.utils import BlockingConnection


def create_queue(port: int, name: str) -> None:
    """A durable anycast queue `name` on an address of that name. Raises RuntimeError with the broker's words."""
    _ask(port, "createQueue", [name, "ANYCAST", name, None, True, -1, False, True])


def create_topic(port: int, name: str) -> None:
    """A multicast address. Raises RuntimeError with the broker's words."""
    _ask(port, "createAddress", [name, "MULTICAST"])


def _ask(port: int, operation: str, parameters: list[object]) -> None:
    connection = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=20)
    try:
        receiver = connection.create_receiver(None, dynamic=True)
        sender = connection.create_sender("activemq.management")
        sender.send(
            Message(
                reply_to=receiver.link.remote_source.address,
                correlation_id="1",
                properties={"_AMQ_ResourceName": "broker", "_AMQ_OperationName": operation},
                body=json.dumps(parameters),
            )
        )
        reply = receiver.receive(timeout=20)
        if not reply.properties.get("_AMQ_OperationSucceeded"):
            raise RuntimeError(f"{operation} {parameters[0]}: {reply.body}")
    finally:
        connection.close()
