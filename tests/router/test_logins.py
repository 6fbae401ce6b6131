"""Logins at a listener with `saslPlugin`: hostile clients, services that misbehave or are away, and turns of hosts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

from enmasse.aio.transport import Hub
from enmasse.amqp.codec.frames import HEADER
from enmasse.amqp.codec.performatives import (
    Close,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    decode_performative,
    encode_performative,
)
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.sasl.handshake import AMQP_HEADER, SASL_HEADER
from enmasse.identity import enforcer
from enmasse.model import feeds
from enmasse.model.users import Permission, User
from enmasse.testing import free_port
from services.router.app import LoopClock
from services.router.network import delegation
from services.router.network.delegation import Client, LoginQueue, RelayedLogin
from services.router.network.maker import ConnectionMaker
from services.router.network.port_settings import AuthService, ListenerConfig
from services.router.network.sockets import Sockets
from services.router.routing.router import Router
from services.router.routing.users import Users
from tests.authserv.running import Running, user
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, wait_for

ALICE = user("right", permissions=(Permission(effect="allow", operations=("send",), addresses=("#",)),))
USERS: dict[str, User] = {"alice": ALICE}
PLAIN = SaslInit(mechanism=Symbol("PLAIN"), initial_response=b"\0alice\0right")
OK, AUTH, TEMPORARY = 0, 1, 4


def frame(performative: Any, kind: int = 1) -> bytes:
    body = encode_performative(performative)
    return HEADER(len(body) + 8, 2, kind, 0) + body


class Front:
    """A router's listener for clients, beside the test."""

    def __init__(self, port: int, sockets: Sockets, users: Users) -> None:
        self.port = port
        self.users = users
        self.logins = sockets._maker.logins

    def feed(self, entries: dict[str, User] | None) -> None:
        """Put users in force; None: there are none."""
        granted = {name: feeds.granted(each) for name, each in (entries or {}).items()}
        self.users.take(feeds.PermissionChanges(anonymous=entries is None, users=granted))

    async def until_idle(self) -> None:
        """Wait until no login is under way, and none waits."""
        logins = self.logins
        idle = "no login is under way"
        await asyncio.to_thread(wait_for, lambda: not (logins._under_way or logins._waiting or logins._number), idle)


@contextlib.asynccontextmanager
async def front(service_port: int, today: Callable[[], float] = time.time) -> AsyncIterator[Front]:
    loop = asyncio.get_running_loop()
    router = Router("r1", LoopClock(loop))
    following = Users(router, today)
    sockets = Sockets(ConnectionMaker(router, Hub(loop), users=following))
    sockets.auth_services["auth"] = AuthService(name="auth", host="127.0.0.1", port=str(service_port))
    port = free_port()
    listener = sockets.new_listener(ListenerConfig(name="c", host="127.0.0.1", port=str(port), sasl_plugin="auth"))
    await sockets.open(listener)
    try:
        yield Front(port, sockets, following)
    finally:
        await sockets.close(listener)


class Peer:
    """A client, frame by frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def header(self) -> bytes:
        async with asyncio.timeout(DEADLINE):
            return await self.reader.readexactly(8)

    async def frame(self) -> Any:
        async with asyncio.timeout(DEADLINE):
            head = await self.reader.readexactly(8)
            size = int.from_bytes(head[:4])
            body = await self.reader.readexactly(size - 8)
        return decode_performative(body, 0, len(body))[0]

    async def rest(self) -> bytes:
        async with asyncio.timeout(DEADLINE):
            return await self.reader.read()


@contextlib.asynccontextmanager
async def dial(port: int, *sent: bytes) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(sent))
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with Running() as running:
        running.users(USERS)
        yield running


async def outcome(port: int) -> int:
    """Return the outcome of a login as alice."""
    async with dial(port, SASL_HEADER) as peer:
        await peer.header()
        assert isinstance(await peer.frame(), SaslMechanisms)
        peer.writer.write(frame(PLAIN))
        return int((await peer.frame()).code)


@asyncio_test
async def test_everything_in_one_write(service: Running) -> None:
    async with front(service.port) as there:
        there.feed(USERS)
        opening = frame(Open(container_id="c"), 0) + frame(Close(), 0)
        async with dial(there.port, SASL_HEADER, frame(PLAIN), AMQP_HEADER, opening) as peer:
            assert await peer.header() == SASL_HEADER
            assert isinstance(await peer.frame(), SaslMechanisms)
            assert (await peer.frame()).code == OK
            assert await peer.header() == AMQP_HEADER
            opened = await peer.frame()
            assert isinstance(opened, Open) and opened.container_id == "r1"
        await there.until_idle()


@pytest.mark.parametrize(
    "sent",
    [
        (frame(SaslResponse(response=b"")),),
        (frame(SaslOutcome(code=0)),),
        (frame(SaslMechanisms(sasl_server_mechanisms=(Symbol("PLAIN"),))),),
        (frame(SaslInit(mechanism=Symbol("SCRAM-SHA-256"), initial_response=b"n,,n=alice,r=a")), frame(PLAIN)),
        (frame(SaslInit(mechanism=Symbol("PLAIN"), initial_response=b"x" * 9000)),),
        (b"\xff" * 8,),
        (frame(Open(container_id="c"), 0),),
        (AMQP_HEADER, frame(Open(container_id="c"), 0)),
        (frame(SaslInit(mechanism=Symbol("NONE"))), AMQP_HEADER, frame(Open(container_id="c"), 0)),
        (frame(SaslInit(mechanism=Symbol("ANONYMOUS"))), AMQP_HEADER, frame(Open(container_id="c"), 0)),
        (b"\0" * 600,),
    ],
)
@asyncio_test
async def test_frames_out_of_order_open_nothing(service: Running, sent: tuple[bytes, ...]) -> None:
    """Sent at once, while the service is asked, and after it has answered."""
    async with front(service.port) as there:
        there.feed(USERS)
        async with dial(there.port, SASL_HEADER, *sent) as peer:
            assert AMQP_HEADER not in await peer.rest()
        async with dial(there.port, SASL_HEADER) as peer:
            await peer.header()
            await peer.frame()
            peer.writer.write(b"".join(sent))
            assert AMQP_HEADER not in await peer.rest()
        await there.until_idle()


@asyncio_test
async def test_without_sasl_and_before_the_users_are_known(service: Running) -> None:
    async with front(service.port) as there:
        assert await outcome(there.port) == TEMPORARY
        async with dial(there.port, AMQP_HEADER) as peer:
            assert await peer.rest() == SASL_HEADER
        there.feed(None)
        async with dial(there.port, AMQP_HEADER) as peer:
            assert await peer.header() == AMQP_HEADER
        there.feed(USERS)
        assert await outcome(there.port) == OK
        async with dial(there.port, AMQP_HEADER) as peer:
            assert await peer.rest() == SASL_HEADER


@asyncio_test
async def test_a_login_that_began_without_users_ends_with_them(service: Running) -> None:
    async with front(service.port) as there:
        there.feed(None)
        async with dial(there.port, AMQP_HEADER) as peer:
            assert await peer.header() == AMQP_HEADER
            there.feed(USERS)
            peer.writer.write(frame(Open(container_id="c"), 0))
            await peer.frame()
            closed = await peer.frame()
            assert closed.error.description == "clients without credentials are not allowed"


@asyncio_test
async def test_a_password_that_changed_meanwhile(service: Running) -> None:
    """The service has checked another password than the one that the router knows of."""
    async with front(service.port) as there:
        there.feed({"alice": user("new")})
        opening = frame(Open(container_id="c"), 0)
        async with dial(there.port, SASL_HEADER, frame(PLAIN), AMQP_HEADER, opening) as peer:
            assert await peer.header() == SASL_HEADER
            assert [type(await peer.frame()) for _ in range(2)] == [SaslMechanisms, SaslOutcome]
            assert await peer.header() == AMQP_HEADER
            await peer.frame()
            assert (await peer.frame()).error.description == "the password of alice has changed"


# --- tokens -----------------------------------------------------------------------------------------------------------


EXPIRES = 1_800_000_000


def states(expires: Any) -> bytes:
    """Return the Open of a service that has accepted a token."""
    properties = {"authenticated-identity": {"sub": "alice"}, "exp": expires}
    return AMQP_HEADER + frame(Open(container_id="authserv", properties=properties), 0)


@contextlib.asynccontextmanager
async def token_of(expires: Any, today: Callable[[], float]) -> AsyncIterator[tuple[Front, Peer]]:
    """A client whose token expires then, in seconds since 1970, has sent its Open."""
    answer = says(OFFER, frame(SaslOutcome(code=OK)) + states(expires))
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with front(server.sockets[0].getsockname()[1], today) as there:
        there.feed(USERS)
        opening = frame(Open(container_id="c"), 0)
        async with dial(there.port, SASL_HEADER, frame(PLAIN), AMQP_HEADER, opening) as peer:
            await peer.header()
            assert isinstance(await peer.frame(), SaslMechanisms)
            yield there, peer
    server.close()


async def closed(peer: Peer) -> str:
    """Return why the connection is closed."""
    assert (await peer.frame()).code == OK
    assert await peer.header() == AMQP_HEADER
    assert isinstance(await peer.frame(), Open)
    found = await peer.frame()
    assert isinstance(found, Close) and found.error is not None
    assert found.error.condition == "amqp:unauthorized-access"
    return str(found.error.description)


@asyncio_test
async def test_a_connection_ends_when_its_token_expires() -> None:
    begun = time.monotonic()
    async with token_of(EXPIRES, lambda: EXPIRES - 0.3 + time.monotonic() - begun) as (there, peer):
        assert await closed(peer) == "the login of alice has expired"
        await asyncio.to_thread(wait_for, lambda: not there.users.enforcer._members, "the connection is forgotten")


@asyncio_test
async def test_a_token_that_expired_before_the_open() -> None:
    async with token_of(EXPIRES, lambda: EXPIRES) as (_, peer):
        assert await closed(peer) == "the login of alice has expired"


@asyncio_test
async def test_the_clock_of_the_machine_may_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that was good for years has expired when the time is looked at again."""
    monkeypatch.setattr(enforcer, "LONGEST_WAIT", 0.05)
    times = iter([EXPIRES - 1e9] * 3)
    async with token_of(EXPIRES, lambda: next(times, EXPIRES + 1)) as (_, peer):
        assert await closed(peer) == "the login of alice has expired"


@pytest.mark.parametrize("expires", ["soon", 1.5e9, None])
@asyncio_test
async def test_an_expiry_that_is_no_time(expires: Any) -> None:
    async with token_of(expires, lambda: EXPIRES) as (_, peer):
        assert (await peer.frame()).code == (OK if expires is None else TEMPORARY)


# --- services ---------------------------------------------------------------------------------------------------------

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OFFER = SASL_HEADER + frame(SaslMechanisms(sasl_server_mechanisms=(Symbol("PLAIN"),)))


def says(*data: bytes, closes: bool = True) -> Answer:
    """Return a service that says this, each part after something has come."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for each in data:
            await reader.read(65536)
            writer.write(each)
        if not closes:
            await reader.read()
        writer.close()

    return answer


STATES_NOBODY = AMQP_HEADER + frame(Open(container_id="authserv"), 0)
STATES_WRONG = AMQP_HEADER + frame(
    Open(container_id="authserv", properties={Symbol("authenticated-identity"): {"sub": 7}}), 0
)
SERVICES = {
    "closes": says(),
    "closes after its offer": says(OFFER),
    "has an outcome first": says(SASL_HEADER + frame(SaslOutcome(code=0))),
    "offers twice": says(OFFER + frame(SaslMechanisms(sasl_server_mechanisms=(Symbol("PLAIN"),))), closes=False),
    "speaks another protocol": says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "sends a frame that is too long": says(SASL_HEADER + b"\0\1\0\0\2\1\0\0", closes=False),
    "states no user": says(OFFER, frame(SaslOutcome(code=0)) + STATES_NOBODY),
    "states something else": says(OFFER, frame(SaslOutcome(code=0)) + STATES_WRONG),
    "accepts and closes": says(OFFER, frame(SaslOutcome(code=0))),
    "is busy": says(OFFER, frame(SaslOutcome(code=TEMPORARY)), closes=False),
    "says nothing": says(closes=False),
    "says nothing about the outcome": says(OFFER, closes=False),
}


@pytest.mark.parametrize("name", SERVICES)
@asyncio_test
async def test_a_service_that_misbehaves_lets_nobody_in(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if "nothing" in name:
            patch.setattr(delegation, "SECONDS", 0.2)
        server = await asyncio.start_server(SERVICES[name], "127.0.0.1", 0)
        async with front(server.sockets[0].getsockname()[1]) as there:
            there.feed(USERS)
            assert await outcome(there.port) == TEMPORARY
            await there.until_idle()
        server.close()


@asyncio_test
async def test_a_service_that_is_not_there() -> None:
    async with front(free_port()) as there:
        there.feed(USERS)
        assert await outcome(there.port) == TEMPORARY
        await there.until_idle()


@asyncio_test
async def test_an_exchange_without_end() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(OFFER)
        while await reader.read(65536):
            writer.write(frame(SaslChallenge(challenge=b"again")))
        writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    async with front(server.sockets[0].getsockname()[1]) as there:
        there.feed(USERS)
        async with dial(there.port, SASL_HEADER) as peer:
            await peer.header()
            await peer.frame()
            peer.writer.write(frame(PLAIN))
            rounds = 0
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while isinstance(await peer.frame(), SaslChallenge):
                    rounds += 1
                    peer.writer.write(frame(SaslResponse(response=b"")))
            assert 0 < rounds <= delegation.MOST_ROUNDS + 2
        await there.until_idle()
    server.close()


@asyncio_test
async def test_a_client_that_leaves_ends_its_login(service: Running) -> None:
    async with front(service.port) as there:
        there.feed(USERS)
        for sent in (b"", frame(SaslInit(mechanism=Symbol("SCRAM-SHA-256"), initial_response=b"n,,n=alice,r=a"))):
            async with dial(there.port, SASL_HEADER, sent) as peer:
                await peer.header()
                await peer.frame()
            await there.until_idle()


# --- turns ------------------------------------------------------------------------------------------------------------


class _Waiting:
    def __init__(self, host: str, begun: list[str]) -> None:
        self.client = Client(host, True)
        self._begun = begun

    def ask_service(self) -> None:
        self._begun.append(self.client.host)


@asyncio_test
async def test_hosts_take_turns() -> None:
    begun: list[str] = []

    def waiting(host: str) -> RelayedLogin:
        return cast(RelayedLogin, _Waiting(host, begun))

    logins = LoginQueue(Hub(asyncio.get_running_loop()), "r1", lambda name: pytest.fail(name))
    flood = [waiting("a") for _ in range(delegation.MOST_WAITING + delegation.MOST_OF_A_HOST)]
    assert all(logins.begin(each) for each in flood)
    assert begun == ["a"] * delegation.MOST_OF_A_HOST
    assert not logins.begin(waiting("a")) and not logins.begin(waiting("b"))
    for each in flood[-100:]:
        logins.leave(each)
    assert logins.begin(waiting("b")) and begun[-1] == "b"
    rest = [waiting(host) for host in "ccddee" for _ in range(10)]
    assert all(logins.begin(each) for each in rest)
    logins.leave(flood[0])
    assert begun[-1] == "a"
    assert len(begun) == delegation.MOST_OF_A_HOST + 62


@asyncio_test
async def test_addresses_of_one_subnet_are_one_host() -> None:
    begun: list[str] = []
    logins = LoginQueue(Hub(asyncio.get_running_loop()), "r1", lambda name: pytest.fail(name))
    flood = [cast(RelayedLogin, _Waiting(f"2001:db8::{n:x}", begun)) for n in range(2 * delegation.MOST_OF_A_HOST)]
    assert all(logins.begin(each) for each in flood)
    assert len(begun) == delegation.MOST_OF_A_HOST
    for each in (flood[-1], flood[0]):  # one that waits, and one under way
        logins.leave(each)
    assert len(begun) == delegation.MOST_OF_A_HOST + 1
