"""AMQP clients that log in: python-qpid-proton by PLAIN, our engine also by SCRAM."""

from __future__ import annotations

from typing import Any

from proton import Message
from proton.utils import BlockingConnection

from enmasse.aio.client import Client, connect
from enmasse.amqp.sasl.layer import ClientMechanism, PlainClient, SaslClient
from enmasse.identity.processes.scram import ScramClient
from enmasse.testing import Suite
from tests.kit.waiting import DEADLINE

PATIENCE = DEADLINE


def proton(suite: Suite, user: str | None, password: str | None = None, **more: Any) -> BlockingConnection:
    """Return a connection by PLAIN; user None: by ANONYMOUS."""
    mechanism = "ANONYMOUS" if user is None else "PLAIN"
    return BlockingConnection(
        suite.url, timeout=PATIENCE, user=user, password=password, allowed_mechs=mechanism, allow_insecure_mechs=True,
        sasl_enabled=True, **more,
    )  # fmt: skip


def client(port: int, mechanism: ClientMechanism | None, hostname: str = "127.0.0.1", **more: Any) -> Client:
    """Return a client of our engine that uses this mechanism only; None: ANONYMOUS. It is not connected yet."""
    made = connect(host="127.0.0.1", port=port, timeout=PATIENCE, **more)
    if mechanism is not None:
        made._settings["sasl"] = SaslClient([mechanism], hostname)
    return made


Plain, Scram = PlainClient, ScramClient


def send_one(connection: BlockingConnection, address: str, body: str = "x") -> None:
    sender = connection.create_sender(address)
    sender.send(Message(body=body, durable=True))
    sender.close()
