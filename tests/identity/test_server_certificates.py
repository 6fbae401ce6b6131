"""Servers whose certificate has expired, or is of another authority or for another name: no client says a password."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio.transport import Hub
from enmasse.amqp.codec.performatives import SASL_OK, SaslInit, SaslMechanisms, SaslOutcome, decode_performative
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.sasl.handshake import SASL_HEADER
from enmasse.bridge.authentication import Authentication
from enmasse.bridge.client_refused import ClientRefused, Refusal
from enmasse.model import feeds
from enmasse.testing import free_port
from services.router.app import LoopClock
from services.router.network.maker import ConnectionMaker
from services.router.network.port_settings import AuthService, ListenerConfig, SslProfile
from services.router.network.sockets import Sockets
from services.router.routing.router import Router
from services.router.routing.users import Users
from tests.authserv.running import Running, user
from tests.certificates import Authority
from tests.cli.running import enmasse
from tests.identity.kit import DEADLINE, frame
from tests.kit.running import asyncio_test

ALICE = user("right")
PASSWORD = "right"
KINDS = ("right", "expired", "not valid yet", "another name", "another authority")
KIND = pytest.mark.parametrize("kind", KINDS)


def certificate(authority: Authority, kind: str) -> tuple[Path, Path]:
    """Return certificate and key of a server at localhost and 127.0.0.1."""
    if kind == "another authority":
        return Authority(authority.folder / "other").issue("server")
    if kind == "another name":
        return authority.issue("server", ("elsewhere.example",))
    hours = {"expired": (-2.0, -1.0), "not valid yet": (1.0, 2.0)}.get(kind, (-1.0, 1.0))
    return authority.issue("server", hours=hours)


class Listening:
    """A server with TLS in a thread. `read`: what clients have sent after the handshake, in their first piece."""

    def __init__(self, files: tuple[Path, Path]) -> None:
        self.read: list[bytes] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*files)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            plain.settimeout(DEADLINE)
            with plain, contextlib.suppress(OSError), self._context.wrap_socket(plain, server_side=True) as connection:
                self.read.append(connection.recv(4096))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@contextlib.contextmanager
def listening(files: tuple[Path, Path]) -> Iterator[Listening]:
    found = Listening(files)
    try:
        yield found
    finally:
        found.close()


@KIND
@pytest.mark.parametrize(
    "arguments",
    [("send", "-a", "amqps://alice:right@localhost:{}/q", "x"), ("publish", "t", "x", "--server", "mqtts://alice:right@localhost:{}")],
    ids=["amqps", "mqtts"],
)  # fmt: skip
def test_commands_connect_only_to_a_server_with_the_right_certificate(
    kind: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    with listening(certificate(authority, kind)) as server:
        words = [word.replace("{}", str(server.port)) for word in arguments]
        done = enmasse(*words, "--ca", authority.file)
    assert done.returncode == 4, done.stderr
    assert "certificate" in done.stderr or kind == "right", done.stderr
    assert bool(b"".join(server.read)) is (kind == "right")


@KIND
@asyncio_test
async def test_a_gateway_verifies_the_certificate_of_the_authentication_service(kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    cert, key = certificate(authority, kind)
    context = ssl.create_default_context(cafile=str(authority.file))
    with Running(cert=str(cert), key=str(key)) as service:
        service.users({"alice": ALICE})
        logins = Authentication(Hub(), "localhost", service.port, lambda: context, "gateway")
        try:
            found = await logins.login("alice", PASSWORD.encode(), "192.0.2.1:1", lambda: True)
            outcome: Any = found.principal.name
        except ClientRefused as refused:
            outcome = refused.refusal
    assert outcome == ("alice" if kind == "right" else Refusal.AWAY)


@KIND
@asyncio_test
async def test_a_router_verifies_the_certificate_of_the_authentication_service(kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    cert, key = certificate(authority, kind)
    loop, port = asyncio.get_running_loop(), free_port()
    router = Router("r1", LoopClock(loop))
    users = Users(router, time.time)
    sockets = Sockets(ConnectionMaker(router, Hub(loop), users=users))
    sockets.profiles["authority"] = SslProfile(name="authority", ca_cert_file=str(authority.file))
    listener = sockets.new_listener(ListenerConfig(name="c", host="127.0.0.1", port=str(port), sasl_plugin="auth"))
    with Running(cert=str(cert), key=str(key)) as service:
        service.users({"alice": ALICE})
        users.take(feeds.PermissionChanges(users={"alice": feeds.granted(ALICE)}))
        sockets.auth_services["auth"] = AuthService(
            name="auth", host="localhost", port=str(service.port), ssl_profile="authority"
        )
        await sockets.open(listener)
        code = await login(port)
        await sockets.close(listener)
    assert code == (SASL_OK if kind == "right" else 4)  # temporary


async def login(port: int) -> int:
    """Return the outcome of a login as alice."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(SASL_HEADER)
    await reader.readexactly(8)
    code = None
    while code is None:
        async with asyncio.timeout(DEADLINE):
            head = await reader.readexactly(8)
            body = await reader.readexactly(int.from_bytes(head[:4]) - 8)
        found = decode_performative(body, 0, len(body))[0]
        if isinstance(found, SaslMechanisms):
            response = f"\0alice\0{PASSWORD}".encode()
            writer.write(frame(SaslInit(mechanism=Symbol("PLAIN"), initial_response=response), 1))
        elif isinstance(found, SaslOutcome):
            code = int(found.code)
    writer.close()
    return code
