"""Transactions that wait in the gateway: shares of users, their time, and rights that are withdrawn before COMMIT. With
the client of the gateway itself, and without a router."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from enmasse.identity.login import Login
from enmasse.identity.principal import Principal
from enmasse.wire_formats.stomp_frames import V12, StompFrame, StompParser, encoded
from services.stomp_gateway import stomp_transactions
from services.stomp_gateway.stomp_client import StompClient
from services.stomp_gateway.stomp_peers import StompPeer
from services.stomp_gateway.stomp_shared import StompShared
from services.stomp_gateway.stomp_transactions import Open
from tests.kit.running import asyncio_test


class Wire:
    """Frames to a client."""

    blocked, unsent = False, 0

    def __init__(self) -> None:
        self._parser = StompParser(1 << 20)
        self._parser.version = V12

    def write(self, data: bytes) -> None:
        self._parser.feed(data)

    def read(self) -> StompFrame | None:
        return self._parser.next()

    def reading(self, wanted: bool) -> None: ...
    def trust(self) -> None: ...
    def recognised(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Gateway(StompShared):
    """Clients whose names are their users, `USER@SPACE`. `denied`: names that they may not send to."""

    def __init__(self) -> None:
        super().__init__(1 << 20, 1 << 20, 60.0)
        self.denied: set[str] = set()
        self.committed: list[list[tuple[str, bytes]]] = []
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self.tasks: set[asyncio.Task[None]] = set()
        route = SimpleNamespace(traits=SimpleNamespace(stored=True), to=None, wire="jobs")
        topics = SimpleNamespace(relative=str, full=str)
        publishing = SimpleNamespace(way=lambda _: SimpleNamespace(route=route))
        self.lanes: Any = SimpleNamespace(topics=topics, publishing=publishing, commit=self._commit)
        bridge: Any = SimpleNamespace(
            allowances=SimpleNamespace(limits=lambda _: SimpleNamespace(max_message_size=None)),
            rates=SimpleNamespace(count=lambda *_: None),
            note_denied=lambda *_, **__: None,
            note_closed=lambda *_, **__: None,
            spawn=lambda work: self.tasks.add(asyncio.ensure_future(work)),
        )
        self.bridge = bridge

    async def _commit(self, work: Open) -> None:
        await self.may_commit.wait()
        self.committed.append(list(work.posts))

    async def enter(self, client: Any, headers: dict[str, str]) -> tuple[Login, Any]:
        client.rights = SimpleNamespace(covers=lambda _, name: (name not in self.denied, None))
        name, _, space = headers["login"].partition("@")
        return Login(Principal(name, space=space)), self.lanes

    def leave(self, client: Any) -> None: ...


class Client:
    def __init__(self, gateway: Gateway, user: str) -> None:
        self.wire = Wire()
        self.client = StompClient(gateway, self.wire, StompPeer(name="127.0.0.1:1", number=1))
        self._user = user

    async def begin(self) -> Client:
        self.send("CONNECT", login=self._user, accept_version="1.2")
        assert (await self.read()).command == "CONNECTED"
        self.send("BEGIN", transaction="t")
        return self

    def send(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.client.take(encoded(command, named, body, V12))

    async def read(self) -> StompFrame:
        while (found := self.wire.read()) is None:
            await asyncio.sleep(0)
        return found

    async def post(self, size: int) -> StompFrame:
        """Send messages of this size together in the transaction; return the answer to the last one."""
        body = bytes(1 << 10)
        for _ in range(size // len(body)):
            self.send("SEND", body, destination="jobs", transaction="t")
        self.send("SEND", destination="jobs", transaction="t", receipt="r")
        return await self.read()


ALL = 1 << 20


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for 1 MiB in all transactions."""
    monkeypatch.setattr(stomp_transactions, "ALL_BYTES", ALL)


@pytest.mark.usefixtures("little")
@asyncio_test
async def test_a_user_and_a_space_leave_room_for_others() -> None:
    gateway = Gateway()
    for user in ("greedy@one", "greedy@one", "other@one", "greedy@two"):
        client = await Client(gateway, user).begin()
        assert (await client.post(ALL // 16)).command == "RECEIPT", user
    greedy = await Client(gateway, "greedy@one").begin()
    error = await greedy.post(ALL // 2)
    assert error.headers["message"] == "try again later" and b"as many as are left" in error.body


@pytest.mark.usefixtures("little")
@asyncio_test
async def test_what_has_ended_is_no_longer_counted() -> None:
    """Only once its commit has: a client may leave before."""
    gateway = Gateway()
    gateway.may_commit.clear()
    one, other = await Client(gateway, "alice@one").begin(), await Client(gateway, "alice@one").begin()
    for client in (one, other):
        assert (await client.post(ALL // 16)).command == "RECEIPT"
    held = gateway.transacted.total
    one.send("COMMIT", transaction="t", receipt="c")
    one.client.lost()
    assert gateway.transacted.total == held > ALL // 8
    other.client.lost()
    assert 0 < gateway.transacted.total < held
    gateway.may_commit.set()
    await asyncio.gather(*gateway.tasks)
    assert gateway.transacted.total == 0 and len(gateway.committed) == 1


@asyncio_test
async def test_a_right_that_was_withdrawn_is_judged_at_commit() -> None:
    gateway = Gateway()
    client = await Client(gateway, "alice@one").begin()
    assert (await client.post(1 << 10)).command == "RECEIPT"
    gateway.denied.add("jobs")
    client.send("COMMIT", transaction="t", receipt="c")
    error = await client.read()
    assert error.command == "ERROR" and error.headers["message"] == "transaction aborted"
    assert (error.headers["receipt-id"], error.headers["condition"]) == ("c", "amqp:unauthorized-access")
    assert gateway.committed == [] and not gateway.tasks


@pytest.mark.parametrize("command", ["SEND", "COMMIT", "ABORT"])
def test_a_transaction_that_lasts_too_long_is_rolled_back(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stomp_transactions, "LIFE", 0.0)

    @asyncio_test
    async def test() -> None:
        gateway = Gateway()
        client = await Client(gateway, "alice@one").begin()
        client.send("SEND", b"x", destination="jobs", transaction="t")
        assert gateway.transacted.total > 0
        while gateway.transacted.total:
            await asyncio.sleep(0)
        client.send(command, destination="jobs", transaction="t", receipt="r")
        error = await client.read()
        assert (error.command, error.headers["message"]) == ("ERROR", "transaction aborted")
        assert (error.headers["receipt-id"], error.headers["condition"]) == ("r", "amqp:transaction:timeout")
        assert gateway.committed == []

    test()
