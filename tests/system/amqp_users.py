"""Users of a suite in tests, and AMQP clients that log in: python-qpid-proton by PLAIN, our engine also by SCRAM."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
from proton import Message
from proton.utils import BlockingConnection, LinkDetached

from enmasse.aio.client import Client, connect
from enmasse.amqp.sasl import ClientMechanism, PlainClient, SaslClient
from enmasse.identity.passwords import hashed
from enmasse.identity.scram import ScramClient
from enmasse.testing import Suite, wait_for
from tests.system.mqtt_users import allow, write_users

PATIENCE = 60.0
_numbers = itertools.count()
__all__ = ["PATIENCE", "Plain", "Scram", "allow", "apply", "client", "deny", "entry", "proton", "send_one"]


def deny(*addresses: str, operations: Sequence[str] = ("send", "recv")) -> dict[str, Any]:
    return {"deny": list(operations), "addresses": list(addresses)}


@functools.cache
def proofs(password: str) -> dict[str, Any]:
    made = hashed(password, random=True)
    return {"password": made.password, "scram": msgspec.to_builtins(made.scram)}  # bytes become base64


def entry(password: str, *permissions: dict[str, Any], groups: Sequence[str] = ()) -> dict[str, Any]:
    return {**proofs(password), "groups": list(groups), "permissions": list(permissions)}


def apply(suite: Suite, entries: dict[str, Any]) -> None:
    """Replace users.json, and wait until it is in force: a user has another permission than before. It is the same
    user each time: with 50 failed logins at an address, all users wait there."""
    marker = f"marker-{next(_numbers)}"
    write_users(suite, {**entries, "marker": entry("marker", allow(marker))})

    def may_receive() -> bool:
        try:
            connection = proton(suite, "marker", "marker")
        except Exception:  # every refusal
            return False
        try:
            connection.create_receiver(marker)
        except LinkDetached as detached:
            return bool(detached.condition != "amqp:unauthorized-access")  # there is no such address
        finally:
            connection.close()
        return True

    wait_for("users.json is in force", may_receive)


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
