"""Logins of the gateway at an authentication service: answers, no answer, and how many there are at once."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from enmasse.aio.transport import Hub
from enmasse.bridge import authentication as logins
from enmasse.bridge.authentication import Authentication
from enmasse.bridge.client_refused import ClientRefused, Refusal
from enmasse.bridge.password_link import PasswordLink
from enmasse.identity.login import Login
from enmasse.identity.principal import Principal
from enmasse.identity.processes.credentials import Credential
from enmasse.identity.processes.roles import Role
from enmasse.identity.processes.scram import ScramClient
from enmasse.testing import free_port
from services.authserv import authenticator as authserv
from tests.authserv.running import Running, user
from tests.certificates import Authority
from tests.identity.kit import Suite
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

ALICE = user("right", groups=("staff",))
PEER = "192.0.2.7:1234"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(tmp_path_factory.mktemp("peers"), (Role.GATEWAY,))


@pytest.fixture(scope="module")
def service(suite: Suite) -> Iterator[Running]:
    with Running(peers=str(suite.file), logins="127.0.0.1:0") as running, pytest.MonkeyPatch.context() as patch:
        patch.setattr(authserv, "DELAY", 0.0)
        running.users({"alice": ALICE})
        yield running


@pytest.fixture(params=["one connection", "a connection for each login"])
def own(request: pytest.FixtureRequest, suite: Suite) -> Credential | None:
    """Return the gateway's credential, if it has passwords checked over one connection."""
    return suite.credential(Role.GATEWAY) if request.param == "one connection" else None


def inside(
    port: int, test: Callable[[Authentication], Awaitable[None]], tls: ssl.SSLContext | None = None,
    logins: int = 0, own: Credential | None = None,
) -> None:  # fmt: skip
    @asyncio_test
    async def run() -> None:
        hub = Hub()
        link = None if own is None else PasswordLink(hub, "127.0.0.1", logins, "gateway", own)
        await test(
            Authentication(hub, "localhost" if tls is not None else "127.0.0.1", port, lambda: tls, "gateway", link)
        )

    run()


async def refused_login(found: Authentication, name: str, password: bytes, peer: str = PEER) -> ClientRefused:
    with pytest.raises(ClientRefused) as refused:
        await found.login(name, password, peer, lambda: True)
    return refused.value


async def refusal(found: Authentication, name: str, password: bytes, peer: str = PEER) -> Refusal:
    return (await refused_login(found, name, password, peer)).refusal


def test_a_right_password_gives_the_principal(service: Running, own: Credential | None) -> None:
    async def test(found: Authentication) -> None:
        login = await found.login("alice", b"right", PEER, lambda: True)
        assert login == Login(Principal("alice", ("staff",)), service.service.logins.credentials(Principal("alice")))
        assert login.credentials
        assert found.outcomes == {"accepted": 1}
        assert found.waiting == 0

    inside(service.port, test, None, service.logins, own)


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("alice", b"wrong"),
        ("bob", b"right"),
        ("", b"right"),
        ("al\0ice", b"right"),
        ("alice", b"\xff\xfe"),
        ("alice", b"right\0"),
        ("alice", b"x" * 20_000),
        ("anonymous", b"right"),
    ],
)
def test_what_is_wrong_is_refused(service: Running, own: Credential | None, name: str, password: bytes) -> None:
    async def test(found: Authentication) -> None:
        assert await refusal(found, name, password, f"{name[:1] or 'x'}:1") == Refusal.CREDENTIALS
        assert found.outcomes == {"refused": 1}
        assert not found.trouble

    inside(service.port, test, None, service.logins, own)


def test_operators_learn_whether_a_password_was_wrong_or_not_checked(service: Running, suite: Suite) -> None:
    async def test(found: Authentication) -> None:
        refused = [await refused_login(found, "alice", b"wrong", "192.0.2.99:1") for _ in range(8)]
        assert (refused[0].noted, refused[-1].noted[:12]) == ("user name or password is wrong", "not checked:")
        assert len({each.text for each in refused}) == 1, "the client does not"

    inside(service.port, test, None, service.logins, suite.credential(Role.GATEWAY))


def test_without_the_service_logins_fail_as_unavailable(own: Credential | None) -> None:
    async def test(found: Authentication) -> None:
        for _ in range(2):
            assert await refusal(found, "alice", b"right") == Refusal.AWAY
        assert found.outcomes == {"failed": 2}
        assert found.trouble

    inside(free_port(), test, None, free_port(), own)


def test_passwords_are_checked_again_after_the_connection_was_lost(suite: Suite) -> None:
    own, port = suite.credential(Role.GATEWAY), free_port()

    @asyncio_test
    async def run() -> None:
        hub = Hub()
        found = Authentication(
            hub, "127.0.0.1", 1, lambda: None, "gateway", PasswordLink(hub, "127.0.0.1", port, "g", own)
        )
        for user_name in ("alice", "bob"):
            running = Running(peers=str(suite.file), logins=f"127.0.0.1:{port}")
            await asyncio.to_thread(running.__enter__)
            await asyncio.to_thread(running.users, {user_name: ALICE})
            several = [found.login(user_name, b"right", f"192.0.2.{n}:1", lambda: True) for n in range(20)]
            assert {login.principal.name for login in await asyncio.gather(*several)} == {user_name}
            assert len(hub.connections) == 1
            await asyncio.to_thread(running.__exit__)
            await until(lambda: not hub.connections)
            assert await refusal(found, user_name, b"right") == Refusal.AWAY

    run()


def test_a_gateway_with_another_secret_has_no_passwords_checked(service: Running) -> None:
    async def test(found: Authentication) -> None:
        assert await refusal(found, "alice", b"right") == Refusal.AWAY

    inside(service.port, test, None, service.logins, Credential("mqtt_gateway-0", Role.GATEWAY, "a guess"))


def test_a_service_without_users_proves_nothing(suite: Suite, own: Credential | None) -> None:
    async def test(found: Authentication) -> None:
        assert await refusal(found, "alice", b"anything") == Refusal.AWAY

    with Running(peers=str(suite.file), logins="127.0.0.1:0") as running:
        inside(running.port, test, None, running.logins, own)  # users have not come
        running.users()
        inside(running.port, test, None, running.logins, own)  # it lets in everybody, as the anonymous user


def test_a_service_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "PATIENCE", 0.2)

    @asyncio_test
    async def run() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        found = Authentication(Hub(), "127.0.0.1", port, lambda: None, "gateway")
        assert await refusal(found, "alice", b"right") == Refusal.AWAY
        assert found.waiting == 0
        server.close()

    run()


def test_logins_at_once_are_bounded_in_all_and_for_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "AT_ONCE", 5)
    monkeypatch.setattr(logins, "OF_ADDRESS", 3)
    monkeypatch.setattr(logins, "WAITING", 8)
    order: list[str] = []
    doors: list[asyncio.Future[Login]] = []

    class Slow(Authentication):
        async def _ask(
            self, mechanism: object, ask: object, space: str | None, host: str
        ) -> tuple[Login, bytes | None]:
            order.append(host)
            doors.append(asyncio.get_running_loop().create_future())
            return await doors[-1], None

    @asyncio_test
    async def run() -> None:
        found = Slow(Hub(), "127.0.0.1", 1, lambda: None, "gateway")

        def login(host: str, wanted: bool = True) -> asyncio.Task[Login]:
            return asyncio.ensure_future(found.login("alice", b"right", f"{host}:1", lambda: wanted))

        tasks = [login(host) for host in ("a", "a", "a", "a")] + [login("b"), login("b"), login("c")]
        gone = login("a", wanted=False)
        await asyncio.sleep(0)
        assert order == ["a", "a", "a", "b", "b"]
        assert await refusal(found, "alice", b"right", "d:1") == Refusal.BUSY
        while not all(task.done() for task in tasks):
            for door in doors:
                if not door.done():
                    door.set_result(Login(Principal("alice")))
            await asyncio.sleep(0)
        with pytest.raises(ClientRefused):
            await gone
        assert sorted(order) == ["a"] * 4 + ["b"] * 2 + ["c"]
        assert found.waiting == 0
        assert not found._passwords._addresses

    run()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_is_relayed(service: Running, mechanism: str) -> None:
    async def test(found: Authentication) -> None:
        for password in ("right", "wrong"):
            scram = ScramClient("alice", password, mechanism)

            async def ask(challenge: bytes, scram: ScramClient = scram) -> bytes:
                return scram.respond(challenge)

            first = scram.start()
            if password == "right":
                login, last = await found.exchange(mechanism, first, ask, PEER, lambda: True)
                scram.finish(last)  # raises if the service has not proved that it knows the user
                assert login.principal == Principal("alice", ("staff",))
            else:
                with pytest.raises(ClientRefused) as refused:
                    await found.exchange(mechanism, first, ask, PEER, lambda: True)
                assert refused.value.refusal == Refusal.CREDENTIALS
        assert found.outcomes == {"accepted": 1, "refused": 1}

    inside(service.port, test)


def test_a_client_that_does_not_respond_is_refused(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "RESPONSE", 0.1)

    async def ask(challenge: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def test(found: Authentication) -> None:
        first = ScramClient("alice", "right", "SCRAM-SHA-256").start()
        with pytest.raises(ClientRefused) as refused:
            await found.exchange("SCRAM-SHA-256", first, ask, PEER, lambda: True)
        assert refused.value.refusal == Refusal.NOT_ALLOWED
        assert (found.waiting, found.trouble) == (0, "")

    inside(service.port, test)


@pytest.mark.parametrize("first", [b"x", b"y" * 20_000, b"n,,n=alice"])
def test_first_messages_that_are_none(service: Running, first: bytes) -> None:
    async def ask(challenge: bytes) -> bytes:
        raise AssertionError(challenge)

    async def test(found: Authentication) -> None:
        with pytest.raises(ClientRefused) as refused:
            await found.exchange("SCRAM-SHA-256", first, ask, "192.0.2.9:1", lambda: True)
        assert refused.value.refusal == Refusal.CREDENTIALS
        assert not found.trouble

    inside(service.port, test)


def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")

    async def good(found: Authentication) -> None:
        assert (await found.login("alice", b"right", PEER, lambda: True)).principal.name == "alice"

    async def bad(found: Authentication) -> None:
        assert await refusal(found, "alice", b"right") == Refusal.AWAY

    with Running(cert=str(cert), key=str(key)) as running:
        running.users({"alice": ALICE})
        inside(running.port, good, authority.client_context())
        inside(running.port, bad, ssl.create_default_context())
        inside(running.port, bad)
