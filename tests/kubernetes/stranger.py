"""A peer that tries a release's ports: as a module of the tests, and in a Pod as a program (`python3 -c SOURCE JSON`).

As a program it gets `{"places": [[address, port], …], "folders": {name: {file: content}}}`, certificates as Kubernetes
mounts them, and prints which attempts were answered: `{"ADDRESS:PORT": [attempt, …]}`. Attempts are `plain`, `tls`
(without a certificate), `redis`, and the names of the folders.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Any

from enmasse.aio.client import connect
from enmasse.amqp.codec.errors import AmqpError

TRIES = 30
TIMEOUT = 30
"""Seconds until a port that is silent counts as one that does not answer."""


def listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), TIMEOUT).close()
    except OSError:
        return False
    return True


async def answers(address: str, port: int, context: ssl.SSLContext | None) -> bool:
    """Return whether a connection can be opened and used: with a certificate by EXTERNAL, else as anonymous.

    A Service connects a client to a process that stands by as well as to the one that leads and listens
    (docs/contracts.md): then it tries again.
    """
    for _ in range(TRIES):
        try:
            client = connect(host=address, port=port, ssl=context, external=context is not None, timeout=TIMEOUT)
            async with client as c:
                with contextlib.suppress(AmqpError):
                    await c.receiver(None, dynamic=True, timeout=TIMEOUT)
                return c.error is None
        except ConnectionRefusedError:
            continue
        except (AmqpError, OSError):
            return False
    return False


def trusting_all(folder: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if folder is not None:
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def shown_at(address: str, port: int) -> str | None:
    """Return the certificate that a listener shows, as PEM."""
    with (
        socket.create_connection((address, port), 30) as plain,
        trusting_all().wrap_socket(plain) as secure,  # with TLS 1.3 it is seen before ours is missed
    ):
        found = secure.getpeercert(binary_form=True)
    return None if found is None else ssl.DER_cert_to_PEM_cert(found).strip()


def answers_redis(address: str, port: int) -> bool:
    """Return whether a Redis answers a command, and not that it wants a password."""
    try:
        with socket.create_connection((address, port), 30) as server:
            server.sendall(b"INFO server\r\n")
            said = server.recv(64)
    except OSError:
        return False
    assert said.startswith((b"$", b"-NOAUTH")) or not said, said
    return said.startswith(b"$")


async def attempts(address: str, port: int, folders: dict[str, Path]) -> list[str]:
    """Return the names of those that were answered."""
    if port == 6379:
        return ["redis"] if answers_redis(address, port) else []
    contexts = {"plain": None, "tls": trusting_all(), **{name: trusting_all(each) for name, each in folders.items()}}
    return [name for name, context in contexts.items() if await answers(address, port, context)]


async def main(told: dict[str, Any]) -> None:
    folders = {}
    for name, files in told["folders"].items():
        folders[name] = Path(tempfile.mkdtemp())
        for file, content in files.items():
            (folders[name] / file).write_text(content)
    found = {f"{address}:{port}": await attempts(address, port, folders) for address, port in told["places"]}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
