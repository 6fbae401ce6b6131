"""Logins by certificate (SASL EXTERNAL) at a listener with `saslPlugin`."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio.transport import Hub
from enmasse.amqp.codec.performatives import Close, Open, SaslInit, SaslMechanisms, SaslOutcome
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.sasl.handshake import AMQP_HEADER, SASL_HEADER
from enmasse.model.users import Permission, User
from enmasse.testing import free_port
from services.router.app import LoopClock
from services.router.network.maker import ConnectionMaker
from services.router.network.port_settings import AuthService, ListenerConfig, SslProfile
from services.router.network.sockets import Sockets
from services.router.routing.router import Router
from services.router.routing.users import Users
from tests.authserv.running import Running, user
from tests.certificates import Authority
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.router.test_logins import AUTH, OK, PLAIN, TEMPORARY, Front, Peer, frame

GRANTED = (Permission(effect="allow", operations=("send",), addresses=("#",)),)
DEVICE = User(permissions=GRANTED)
"""A user without a password."""
USERS: dict[str, User] = {"device": DEVICE, "alice": user("right", permissions=GRANTED)}
OPENING = frame(Open(container_id="c"), 0)


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with Running() as running:
        running.users(USERS)
        yield running


class Secure:
    """A listener with TLS, and the certificates of its clients."""

    def __init__(self, there: Front, authority: Authority) -> None:
        self.there = there
        self._authority = authority

    @contextlib.asynccontextmanager
    async def dial(self, *names: str) -> AsyncIterator[tuple[Peer, list[str]]]:
        """A client that presents a certificate with these common names, and the mechanisms that it is offered."""
        context = self._authority.client_context()
        if names:
            context.load_cert_chain(*self._authority.issue("client", names=names))
        reader, writer = await asyncio.open_connection("127.0.0.1", self.there.port, ssl=context)
        writer.write(SASL_HEADER)
        peer = Peer(reader, writer)
        try:
            await peer.header()
            offer = await peer.frame()
            assert isinstance(offer, SaslMechanisms)
            yield peer, list(map(str, offer.sasl_server_mechanisms))
        finally:
            writer.close()

    async def outcome(self, *names: str, response: bytes | None = b"") -> int:
        """The outcome of EXTERNAL."""
        async with self.dial(*names) as (peer, _):
            peer.writer.write(external(response))
            found = await peer.frame()
            assert isinstance(found, SaslOutcome)
            return int(found.code)


def external(response: bytes | None = b"") -> bytes:
    return frame(SaslInit(mechanism=Symbol("EXTERNAL"), initial_response=response))


@contextlib.asynccontextmanager
async def secure(folder: Path, service_port: int, mechanisms: tuple[str, ...] = ()) -> AsyncIterator[Secure]:
    loop = asyncio.get_running_loop()
    authority = Authority(folder)
    cert, key = map(str, authority.issue("server"))
    router = Router("r1", LoopClock(loop))
    following = Users(router, time.time)
    sockets = Sockets(ConnectionMaker(router, Hub(loop), users=following))
    sockets.auth_services["auth"] = AuthService(name="auth", host="127.0.0.1", port=str(service_port))
    sockets.profiles["tls"] = SslProfile(
        name="tls", cert_file=cert, private_key_file=key, ca_cert_file=str(authority.file)
    )
    port = free_port()
    config = ListenerConfig(
        name="c", host="127.0.0.1", port=str(port), sasl_plugin="auth", ssl_profile="tls", sasl_mechanisms=mechanisms
    )
    listener = sockets.new_listener(config)
    await sockets.open(listener)
    try:
        yield Secure(Front(port, sockets, following), authority)
    finally:
        await sockets.close(listener)


async def opened(peer: Peer) -> None:
    peer.writer.write(AMQP_HEADER + OPENING)
    assert await peer.header() == AMQP_HEADER
    assert isinstance(await peer.frame(), Open)


@asyncio_test
async def test_who_is_let_in(service: Running, tmp_path: Path) -> None:
    async with secure(tmp_path, service.port) as listener:
        listener.there.feed(USERS)
        assert await listener.outcome("device") == OK
        assert await listener.outcome("device", response=None) == OK
        assert await listener.outcome("device", response=b"device") == OK
        assert await listener.outcome("alice") == OK
        for response in (b"alice", b"device\0", b"\xff", b"anonymous", b"x" * 5000):
            assert await listener.outcome("device", response=response) == AUTH
        assert await listener.outcome("stranger") == AUTH
        assert await listener.outcome("DEVICE") == AUTH
        for names in ((), ("device", "alice"), ("device\0",), ("@device",), ("anonymous",)):
            async with listener.dial(*names) as (_, offered):
                assert "EXTERNAL" not in offered and "PLAIN" in offered
            assert await listener.outcome(*names) == AUTH
        await listener.there.until_idle()


@pytest.mark.parametrize(
    ("names", "response", "user", "reason"),
    [
        (["stranger"], b"", "stranger", "the certificate names 'stranger', which is no known user"),
        (["device"], b"secret", "device", "the certificate names 'device', and the client asks for another user"),
        (["a", "b"], b"", "", "the subject of the certificate has 2 common names, not one; its subject: "),
    ],
)
@asyncio_test
async def test_the_event_of_a_refusal_names_the_certificate(
    service: Running, tmp_path: Path, names: list[str], response: bytes, user: str, reason: str
) -> None:
    async with secure(tmp_path, service.port) as listener:
        listener.there.feed(USERS)
        seen: list[dict[str, Any]] = []
        listener.there.users.router.refusals.seen = seen.append
        assert await listener.outcome(*names, response=response) == AUTH
        await until(lambda: seen)
        assert seen[0]["user"] == user and seen[0]["reason"].startswith(reason)


@asyncio_test
async def test_a_client_with_a_certificate_may_use_a_password(service: Running, tmp_path: Path) -> None:
    """It is the user of the password; also if the service was not asked for its mechanisms again."""
    async with secure(tmp_path, service.port) as listener:
        listener.there.feed(USERS)
        for _ in range(2):
            async with listener.dial("device") as (peer, offered):
                assert offered[0] == "EXTERNAL" and "PLAIN" in offered
                peer.writer.write(frame(PLAIN))
                assert (await peer.frame()).code == OK
                await opened(peer)
                assert list(listener.there.users.enforcer._members) == ["alice"]
        await listener.there.until_idle()


@asyncio_test
async def test_everything_in_one_write(service: Running, tmp_path: Path) -> None:
    async with secure(tmp_path, service.port) as listener:
        listener.there.feed(USERS)
        for login in (external(), frame(PLAIN)) * 2:
            async with listener.dial("device") as (peer, _):
                peer.writer.write(login + AMQP_HEADER + OPENING)
                assert (await peer.frame()).code == OK
                assert await peer.header() == AMQP_HEADER
                assert isinstance(await peer.frame(), Open)
        await listener.there.until_idle()


@asyncio_test
async def test_without_the_service_certificates_are_enough(tmp_path: Path) -> None:
    async with secure(tmp_path, free_port()) as listener:
        assert await listener.outcome("device") == TEMPORARY  # the users are not known yet
        listener.there.feed(USERS)
        assert await listener.outcome("device") == OK
        assert await listener.outcome("stranger") == AUTH
        async with listener.dial("device") as (peer, _):
            peer.writer.write(frame(PLAIN))
            assert (await peer.frame()).code == TEMPORARY


@asyncio_test
async def test_the_service_goes_after_it_was_asked(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(Running())
        running.users(USERS)
        async with secure(tmp_path, running.port) as listener:
            listener.there.feed(USERS)
            assert await listener.outcome("device") == OK
            stack.close()
            assert await listener.outcome("device") == OK
            async with listener.dial("device") as (peer, _):
                peer.writer.write(frame(PLAIN))
                assert (await peer.frame()).code == TEMPORARY
            await listener.there.until_idle()


@asyncio_test
async def test_a_listener_without_external(service: Running, tmp_path: Path) -> None:
    async with secure(tmp_path, service.port, ("PLAIN",)) as listener:
        listener.there.feed(USERS)
        async with listener.dial("device") as (_, offered):
            assert offered == ["PLAIN"]
        assert await listener.outcome("device") == AUTH


@asyncio_test
async def test_changes_on_open_connections(service: Running, tmp_path: Path) -> None:
    async with secure(tmp_path, service.port) as listener, contextlib.AsyncExitStack() as stack:
        listener.there.feed(USERS)
        peers: dict[str, Peer] = {}
        for name in USERS:
            peer, _ = await stack.enter_async_context(listener.dial(name))
            peer.writer.write(external())
            assert (await peer.frame()).code == OK
            await opened(peer)
            peers[name] = peer
        # A password has nothing to do with a certificate.
        listener.there.feed({"device": user("first", permissions=GRANTED), "alice": user("new", permissions=GRANTED)})
        assert sorted(listener.there.users.enforcer._members) == ["alice", "device"]
        listener.there.feed({"alice": USERS["alice"]})
        closed: Any = await peers["device"].frame()
        assert isinstance(closed, Close) and closed.error is not None
        assert closed.error.condition == "amqp:unauthorized-access"
        assert closed.error.description == "the user device was removed"
        assert await listener.outcome("device") == AUTH
        assert await listener.outcome("alice") == OK


@asyncio_test
async def test_without_users_everyone_is_anonymous(service: Running, tmp_path: Path) -> None:
    async with secure(tmp_path, service.port) as listener:
        listener.there.feed(None)
        async with listener.dial("stranger") as (peer, offered):
            assert set(offered) == {"EXTERNAL", "ANONYMOUS"}
            peer.writer.write(external())
            assert (await peer.frame()).code == OK
            await opened(peer)
            assert list(listener.there.users.enforcer._members) == ["anonymous"]


@asyncio_test
async def test_certificates_of_others_open_no_connection(service: Running, tmp_path: Path) -> None:
    async with secure(tmp_path, service.port) as listener:
        listener.there.feed(USERS)
        context = listener._authority.client_context()
        context.load_cert_chain(*Authority(tmp_path / "other").issue("device"))
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.there.port, ssl=context)
            writer.write(SASL_HEADER + external() + AMQP_HEADER)
            await reader.readexactly(8)
