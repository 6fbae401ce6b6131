"""A console without a supervisor, as in a cluster: health and status are its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.testing import free_port
from tests.configserv.running import Configserv
from tests.console.client import Client
from tests.kit.processes import start_service
from tests.kit.waiting import wait_for


@pytest.fixture
def configserv(tmp_path: Path) -> Iterator[Configserv]:
    service = Configserv(tmp_path)
    service.write("flavors.json", {})
    service.write("addresses.json", {"a": {"type": "anycast"}, "bad": {"type": "nonsense"}})
    yield service
    service.stop()


@pytest.fixture
def client(configserv: Configserv, tmp_path: Path) -> Iterator[Client]:
    port = free_port()
    settings = {
        "name": "console",
        "health": f"127.0.0.1:{free_port()}",
        "listen": f"127.0.0.1:{port}",
        "configserv": configserv.settings["listen"],
    }
    file = tmp_path / "console.json"
    file.write_text(json.dumps(settings))
    process = start_service("console", file)
    try:
        wait_for(lambda: _answers(port), "the console answers")
        with Client(port) as client:
            yield client
    finally:
        process.terminate()
        assert process.wait(60) == 0


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
    assert client.at("GET", "/api/ready").body == {key: status[key] for key in ("schema", "ready", "config")}
    assert client.at("GET", "/api/status", Host="evil.example").status == 403
    assert client("PUT", "addresses/made", {"type": "multicast"}).status == 201
    assert client.items("components") == []
    configserv.kill()
    wait_for(lambda: client.at("GET", "/readyz").status == 503, "it is not ready")
    assert client.at("GET", "/livez").status == 200
