"""A console without a supervisor, as in a cluster: health and status are its own."""

from __future__ import annotations

import asyncio
import ctypes
import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from enmasse.process.settings import host_port
from enmasse.testing import free_port
from services.console import app
from services.console.app import Door
from services.console.rest import listing
from services.console.settings import ConsoleSettings
from tests.configserv.running import Configserv
from tests.console.client import Client
from tests.kit.processes import start_service
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until, wait_for

SO_ATTACH_FILTER = 26
"""Of Linux; the module socket lacks it."""


@pytest.fixture
def configserv(tmp_path: Path) -> Iterator[Configserv]:
    service = Configserv(tmp_path)
    service.write("flavors.json", {})
    service.write("addresses.json", {"a": {"type": "anycast"}, "bad": {"type": "nonsense"}})
    yield service
    service.stop()


def settings_of(configserv: Configserv) -> dict[str, str]:
    return {
        "name": "console",
        "health": f"127.0.0.1:{free_port()}",
        "listen": f"127.0.0.1:{free_port()}",
        "configserv": configserv.settings["listen"],
    }


@pytest.fixture
def client(configserv: Configserv, tmp_path: Path) -> Iterator[Client]:
    settings = settings_of(configserv)
    port = host_port(settings["listen"])[1]
    file = tmp_path / "console.json"
    file.write_text(json.dumps(settings))
    process = start_service("console", file)
    try:
        wait_for(lambda: _answers(port), "the console answers")
        with Client(port) as client:
            yield client
    finally:
        process.terminate()
        assert process.wait(DEADLINE) == 0


def _answers(port: int) -> bool:
    try:
        with Client(port) as client:
            return client.at("GET", "/livez").status == 200
    except OSError:
        return False


def test_health_and_status_come_from_the_feeds(configserv: Configserv, client: Client) -> None:
    assert client.at("GET", "/healthz").body == {"ready": False, "detail": "the configuration service is not reached"}
    configserv.start()
    wait_for(lambda: client.at("GET", "/readyz").status == 200, "it is ready")
    status = client.at("GET", "/api/status").body
    assert [each["name"] for each in status["addresses"]] == ["a", "bad"]
    assert [(each["file"], each["entry"]) for each in status["errors"]] == [("addresses.json", "bad")]
    assert (status["components"], status["ca"]) == ([], None)
    assert client.at("GET", "/api/ready").body == {
        key: status[key] for key in ("schema", "ready", "settled", "degraded", "config")
    }
    assert client.at("GET", "/api/status", Host="evil.example").status == 403
    assert client("PUT", "addresses/made", {"type": "multicast"}).status == 201
    assert client.items("components") == []
    configserv.kill()
    degraded = {"ready": True, "detail": "the configuration service is not reached"}
    wait_for(lambda: client.at("GET", "/readyz").body == degraded, "it says so, and is ready still")
    status = client.at("GET", "/api/ready").body
    assert (status["settled"], len(status["degraded"])) == (False, 1)
    assert client.at("GET", "/livez").status == 200


def test_a_client_that_vanishes_without_a_word_is_forgotten(
    configserv: Configserv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a stream, and answers to no packet any more: nothing comes from it that would end the connection."""
    monkeypatch.setattr(app, "LOST_SECONDS", 1.0)
    monkeypatch.setattr(listing, "HEARTBEAT", 0.1)
    configserv.start()
    settings = msgspec.convert(settings_of(configserv), ConsoleSettings)
    address = host_port(settings.listen)

    async def main() -> None:
        door = Door(settings)

        def counts() -> dict[str, float]:
            return {each.name: each.samples[0].value for each in door.metrics()}

        await door.open()
        try:
            with socket.socket() as gone:
                gone.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(gone, address)
                await loop.sock_sendall(gone, b"GET /api/v1/addresses?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert (await loop.sock_recv(gone, 12)).endswith(b"200")
                await until(lambda: counts()["enmasse_console_streams"] == 1, "a stream")
                _vanish(gone)
                await until(lambda: set(counts().values()) == {0}, "no stream and no connection")
        finally:
            await door.close()

    asyncio_test(main)()


def _vanish(client: socket.socket) -> None:
    """Have the kernel drop whatever comes for a socket, before TCP sees it: a filter that takes nothing."""
    take_nothing = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    client.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(take_nothing)))
