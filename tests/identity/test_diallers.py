"""Services authenticate wherever they connect, and open nothing at a listener that does not prove itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from enmasse.control import ControlConnection, listen
from enmasse.identity.processes.credentials import Peers
from enmasse.identity.processes.roles import Listener, Peer, Role
from enmasse.model.feeds import BrokerEndpoint, Placement, Placements
from enmasse.model.names import AddressName
from enmasse.stores import SqliteSettings, make_store
from enmasse.testing import free_port
from services.subserv.service import SubscriptionService
from tests.identity.kit import Suite, name_of
from tests.kit.processes import Process, start_service
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until
from tests.storage_controller.conftest import World

ROUTED = (Role.SUBSERV, Role.LWT, Role.GATEWAY)
DIALLERS = (*ROUTED, Role.AGENT, Role.STORAGE_CONTROLLER)


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


class Stub:
    """A listener that services dial: the peers that have opened a connection, and how many have tried."""

    def __init__(self) -> None:
        self.opened: list[Peer | None] = []
        self.tries = 0
        self.port = 0

    def accepted(self, connection: ControlConnection) -> None:
        self.tries += 1
        connection.on_open = lambda: self.opened.append(connection.identity)


@asynccontextmanager
async def stub(place: Listener, suite: Suite | None) -> AsyncIterator[Stub]:
    """Listen; without a suite every peer may open a connection."""
    made = Stub()
    peers = None if suite is None else (place, Peers(suite.file))
    listener = await listen("127.0.0.1", 0, made.accepted, container="stub", peers=peers)
    made.port = listener.port
    yield made
    await listener.close()


def settings(role: Role, folder: Path, configserv: int, router: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name_of(role), "health": f"127.0.0.1:{free_port()}", "configserv": f"127.0.0.1:{configserv}",
    }  # fmt: skip
    if role in ROUTED:
        found["router"] = f"127.0.0.1:{router}"
    if role is Role.GATEWAY:
        found["listeners"] = []
    elif role in ROUTED:
        found["store"] = {"kind": "sqlite", "path": str(folder / "store")}
    elif role is Role.AGENT:
        found["listen"] = f"127.0.0.1:{free_port()}"
    else:
        (folder / "desired").mkdir()
        files = {"desired": str(folder / "desired"), "actual": str(folder / "actual.json")}
        found["driver"] = {"kind": "local", **files, "engine": "embedded"}
    return found


@contextmanager
def running(role: Role, folder: Path, whole: dict[str, Any]) -> Iterator[Process]:
    file = folder / "settings.json"
    file.write_text(json.dumps(whole))
    with (folder / "log").open("wb") as log:
        process = start_service(str(role), file, log=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("role", DIALLERS)
@asyncio_test
async def test_a_service_authenticates_by_its_credential(suite: Suite, tmp_path: Path, role: Role) -> None:
    async with stub(Listener.CONFIGSERV, suite) as configserv, stub(Listener.SERVICES, suite) as router:
        whole = settings(role, tmp_path, configserv.port, router.port)
        whole["credential"] = str(suite.credential_file(role))
        with running(role, tmp_path, whole):
            await until(lambda: configserv.opened)
            await until(lambda: router.opened or role not in ROUTED)
        assert {*configserv.opened, *router.opened} == {Peer(name_of(role), role)}


@pytest.mark.parametrize("role", DIALLERS)
@asyncio_test
async def test_a_service_opens_no_connection_to_a_server_without_its_verifier(
    suite: Suite, tmp_path: Path, role: Role
) -> None:
    """The impostor offers ANONYMOUS; the service tries again and again, and offers nothing less."""
    async with stub(Listener.CONFIGSERV, None) as configserv, stub(Listener.SERVICES, None) as router:
        whole = settings(role, tmp_path, configserv.port, router.port)
        whole["credential"] = str(suite.credential_file(role))
        with running(role, tmp_path, whole):
            await until(lambda: configserv.tries > 2)
            await until(lambda: router.tries > 2 or role not in ROUTED)
        assert configserv.opened == router.opened == []


@pytest.mark.parametrize("role", DIALLERS)
@pytest.mark.parametrize("content", [None, "{", '{"name": "a", "role": "king", "secret": "hush-hush"}'])
def test_a_credential_that_cannot_be_read_ends_the_service(tmp_path: Path, role: Role, content: str | None) -> None:
    file = tmp_path / "credential"
    if content is not None:
        file.write_text(content)
    with running(role, tmp_path, {**settings(role, tmp_path, 1, 1), "credential": str(file)}) as process:
        assert process.wait(DEADLINE) == 2
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 1 and str(file) in lines[0] and "[service.setting.invalid]" in lines[0], lines
    assert "hush-hush" not in lines[0]


@asyncio_test
async def test_placements_decide_how_subserv_dials_brokers(suite: Suite, tmp_path: Path) -> None:
    async with (
        stub(Listener.BROKER, suite) as inner,
        stub(Listener.BROKER, None) as plain,
        stub(Listener.BROKER, None) as by_hand,
        stub(Listener.BROKER, None) as impostor,
    ):
        endpoints = {
            "inner": BrokerEndpoint(host="127.0.0.1", port=inner.port, scram=True),
            "plain": BrokerEndpoint(host="127.0.0.1", port=plain.port),
            "by-hand": BrokerEndpoint(host="127.0.0.1", port=by_hand.port, by_hand=True),
            "impostor": BrokerEndpoint(host="127.0.0.1", port=impostor.port, scram=True),
        }
        topics = {AddressName("t"): [Placement(broker="by-hand", type="topic")]}
        store = make_store(SqliteSettings(str(tmp_path / "store")))
        brokers = SubscriptionService(store, suite.credential(Role.SUBSERV)).brokers
        brokers.follow(Placements(brokers=endpoints, addresses=topics))
        await until(lambda: inner.opened and plain.opened and by_hand.opened and impostor.tries > 2)
        brokers.close()
        assert {*inner.opened} == {Peer("subserv-0", Role.SUBSERV)}
        assert {*plain.opened, *by_hand.opened} == {None} and impostor.opened == []


@asyncio_test
async def test_the_storage_controller_manages_brokers_that_ask_for_its_credential(suite: Suite, tmp_path: Path) -> None:
    credential = suite.credential_file(Role.STORAGE_CONTROLLER)
    world = World(tmp_path, "embedded", peers=suite.file, credential=credential)
    await world.start()
    try:
        world.configserv.addresses({"q": {"type": "queue", "flavor": "memory"}})
        await world.ready("q")
        await until(lambda: world.configserv.placements)
        assert [broker["scram"] for broker in world.configserv.placements["brokers"].values()] == [True]
    finally:
        await world.stop()
