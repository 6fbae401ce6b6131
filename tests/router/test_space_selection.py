"""Which address space a client of a listener means: listener, TLS, SASL, the name of its user; and `open` agrees."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio.transport import Hub
from enmasse.amqp.codec.performatives import Close, Open, SaslInit, SaslMechanisms, SaslOutcome
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.sasl.handshake import AMQP_HEADER, SASL_HEADER
from enmasse.identity.proofs.failures import Failures
from enmasse.model import feeds
from enmasse.model.feeds import ReachedSpace
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
from tests.router.test_logins import AUTH, OK, Peer, frame

GRANTED = (Permission(effect="allow", operations=("send", "recv"), addresses=("#",)),)
SPACES = {"one": ReachedSpace(hosts=("one.example", "localhost")), "two": ReachedSpace()}
DEFAULT = {"alice": user("default's", permissions=GRANTED)}
IN_SPACES = {
    "!!one/alice": user("one's", permissions=GRANTED),
    "!!two/alice": user("two's", permissions=GRANTED),
    "!!one/device": User(permissions=GRANTED),
}
PASSWORDS = {"default's": "default", "one's": "one", "two's": "two"}
NOBODY = b""


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with Running() as running:
        running.replace(feeds.Users(users=DEFAULT, spaces=SPACES, in_spaces=IN_SPACES))
        yield running


@pytest.fixture(scope="module")
def open_service() -> Iterator[Running]:
    """The default space has no users."""
    with Running() as running:
        running.replace(feeds.Users(anonymous=True, spaces=SPACES, in_spaces=IN_SPACES))
        yield running


class Front:
    """A router's listener, beside the test."""

    def __init__(self, port: int, router: Router, authority: Authority | None, service: Running) -> None:
        self.port, self.router, self.authority, self.service = port, router, authority, service

    async def login(
        self,
        password: str,
        name: str = "alice",
        *,
        sasl: str | None = None,
        sni: str | None = None,
        host: str | None = None,
        certificate: str = "",
    ) -> Any:
        """Return the code of a failed login, the condition of a refused `open`, or the space of the connection.
        `sasl`, `host`: of sasl-init and open; `password` empty: without SASL; `certificate`: the user in it."""
        self.service.service.logins._failures = Failures(time.monotonic)  # those before do not count
        secure: dict[str, Any] = {}
        if self.authority is not None:
            context = self.authority.client_context()
            context.check_hostname = False
            if certificate:
                context.load_cert_chain(*self.authority.issue(f"client-{certificate}", names=(certificate,)))
            secure = {"ssl": context, "server_hostname": sni or ""}
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **secure)
        peer = Peer(reader, writer)
        try:
            if password:
                writer.write(SASL_HEADER)
                await peer.header()
                offered = await peer.frame()
                assert isinstance(offered, SaslMechanisms)
                init = SaslInit(
                    mechanism=Symbol("PLAIN"), initial_response=f"\0{name}\0{password}".encode(), hostname=sasl
                )
                if certificate:
                    init = SaslInit(mechanism=Symbol("EXTERNAL"), initial_response=b"", hostname=sasl)
                writer.write(frame(init))
                outcome = await peer.frame()
                assert isinstance(outcome, SaslOutcome)
                if outcome.code != OK:
                    return int(outcome.code)
            writer.write(AMQP_HEADER + frame(Open(container_id="c", hostname=host), 0))
            if await peer.header() != AMQP_HEADER:
                return AUTH  # without SASL
            assert isinstance(await peer.frame(), Open)
            if not self.router.connections:
                closed = await peer.frame()
                assert isinstance(closed, Close) and closed.error is not None
                return str(closed.error.condition)
            (record,) = self.router.connections.values()
            assert record.prefix == ("" if record.principal.space == "default" else f"!!{record.principal.space}/")
            if password:  # by which operators, metrics and the log of refusals know the user
                assert record.amqp.user == record.principal.full_name
            return record.principal.space
        finally:
            writer.close()

            async def gone() -> bool:
                return not self.router.connections

            await until(gone, "the connection is gone")


@contextlib.asynccontextmanager
async def front(
    service: Running, *, anonymous: bool = False, space: str | None = None, folder: Path | None = None
) -> AsyncIterator[Front]:
    loop = asyncio.get_running_loop()
    router = Router("r1", LoopClock(loop))
    following = Users(router, time.time)
    sockets = Sockets(ConnectionMaker(router, Hub(loop), users=following))
    sockets.auth_services["auth"] = AuthService(name="auth", host="127.0.0.1", port=str(service.port))
    authority, secure = None, {}
    if folder is not None:
        authority = Authority(folder)
        cert, key = map(str, authority.issue("server"))
        ca = str(authority.file)
        sockets.profiles["tls"] = SslProfile(name="tls", cert_file=cert, private_key_file=key, ca_cert_file=ca)
        secure = {"ssl_profile": "tls"}
    port = free_port()
    config = ListenerConfig(name="c", host="127.0.0.1", port=str(port), sasl_plugin="auth", space=space, **secure)  # type: ignore[arg-type]  # one field
    listener = sockets.new_listener(config)
    following.take(
        feeds.PermissionChanges(
            anonymous=anonymous,
            users={} if anonymous else {name: feeds.granted(each) for name, each in DEFAULT.items()},
            spaces=SPACES,
            in_spaces={name: feeds.granted(each) for name, each in IN_SPACES.items()},
        )
    )
    await sockets.open(listener)
    try:
        yield Front(port, router, authority, service)
    finally:
        await sockets.close(listener)


def expected(space: str, password: str) -> Any:
    return space if PASSWORDS[password] == space else AUTH


@pytest.mark.parametrize("password", PASSWORDS)
@asyncio_test
async def test_host_of_sasl_then_name_then_default(service: Running, password: str) -> None:
    async with front(service) as there:
        for host, space in (
            (None, "default"), ("other.example", "default"), ("one", "one"), ("ONE", "one"), ("One.Example", "one"),
            ("localhost", "one"), ("two", "two"), ("default", "default"), ("!!one", "default"), ("none", "default"),
        ):  # fmt: skip
            assert await there.login(password, sasl=host) == expected(space, password), host
        assert await there.login(password, "alice@two") == expected("two", password)
        assert await there.login(password, "alice@two", sasl="two") == expected("two", password)
        assert await there.login(password, "alice@two", sasl="one") == AUTH
        assert await there.login(password, "alice@none") == AUTH


@pytest.mark.parametrize("of_listener", ["default", "one", "two"])
@asyncio_test
async def test_a_listener_of_one_space(service: Running, of_listener: str) -> None:
    async with front(service, space=of_listener) as there:
        for password in PASSWORDS:
            for host in (None, "one", "two", "other"):
                assert await there.login(password, sasl=host) == expected(of_listener, password)
            for space in ("one", "two"):
                found = await there.login(password, f"alice@{space}")
                assert found == (expected(of_listener, password) if space == of_listener else AUTH)


@asyncio_test
async def test_the_host_of_tls_comes_before_that_of_sasl(service: Running, tmp_path: Path) -> None:
    async with front(service, folder=tmp_path) as there:
        for sni, sasl, space in (
            ("one.example", None, "one"), ("one", "two", "one"), ("two", "one", "two"), ("other.example", "two", "two"),
            ("other.example", None, "default"), ("ONE.example", None, "one"),
        ):  # fmt: skip
            for password in PASSWORDS:
                assert await there.login(password, sni=sni, sasl=sasl) == expected(space, password), (sni, sasl)


@asyncio_test
async def test_a_certificate_names_a_user_of_the_space(service: Running, tmp_path: Path) -> None:
    async with front(service, folder=tmp_path) as there:
        for sni, sasl, found in (
            ("one.example", None, "one"), ("other", "one", "one"), ("two", None, AUTH), ("other", None, AUTH),
        ):  # fmt: skip
            assert await there.login("-", sni=sni, sasl=sasl, certificate="device") == found, (sni, sasl)


@asyncio_test
async def test_the_host_of_open_agrees(service: Running) -> None:
    async with front(service) as there:
        for host, found in (
            (None, "one"), ("one", "one"), ("localhost", "one"), ("other.example", "one"), ("default", "one"),
            ("two", "amqp:not-allowed"), ("TWO", "amqp:not-allowed"),
        ):  # fmt: skip
            assert await there.login("one's", sasl="one", host=host) == found, host
        assert await there.login("default's", host="one") == "amqp:not-allowed"
        assert await there.login("default's", host="other") == "default"


@asyncio_test
async def test_an_open_default_space_beside_spaces(open_service: Running) -> None:
    async with front(open_service, anonymous=True) as there:
        assert await there.login("") == "default"  # without SASL
        assert await there.login("", host="one") == "amqp:not-allowed"
        assert await there.login("anything", "who@ever") == "default"
        assert await there.login("one's", "alice@one") == "one"
        assert await there.login("two's", "alice@one") == AUTH
        assert await there.login("one's", sasl="one") == "one"
        assert await there.login("anything", sasl="one") == AUTH
    async with front(open_service, anonymous=True, space="one") as there:
        assert await there.login("") == AUTH
        assert await there.login("one's") == "one"
        assert await there.login("anything") == AUTH
