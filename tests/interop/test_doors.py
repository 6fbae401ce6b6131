"""Other families of clients at the gateways: Go's net/http, h2load and nghttp; Vert.x' STOMP; Californium.

Others are beside the gateway's own tests: curl and Chromium's fetch and EventSource (tests/http_gateway), stomp.py and
@stomp/stompjs in Chromium (tests/stomp_gateway), libcoap's coap-client and aiocoap (tests/coap_gateway)."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.testing import Suite, running
from tests.interop.clients import Broken, doors, gohttp

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # where nobody has built the clients before

LIMIT = 600
QUEUE = {"type": "queue", "flavor": "small-persisted-queue"}
ADDRESSES: dict[str, Any] = {
    "jobs": QUEUE,
    "vertx": QUEUE,
    "loaded": QUEUE,
    "go-1": QUEUE,
    "go-2": QUEUE,
    "events": {"type": "topic", "flavor": "small-persisted-topic"},
}
REQUESTS = 1000


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    options = ("--without", "mqtt", "--tls", "auto", "--with", "http", "--with", "stomp", "--with", "coap")
    with running(tmp_path_factory.mktemp("doors"), ADDRESSES, options=options) as found:
        found.up()
        yield found
        assert found.down() == 0


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def program(name: str) -> str:
    if (found := shutil.which(name)) is None:
        raise Broken(f"{name} is missing: install it (Debian: nghttp2-client; .ci/run does)")
    return found


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2.0"])
def test_net_http_of_go(suite: Suite, version: str) -> None:
    if version == "HTTP/1.1":
        run(*gohttp(), f"http://127.0.0.1:{8088 + suite.offset}", version, "go-1")
    else:
        ca = suite.data / "tls" / "ca.crt"
        run(*gohttp(), f"https://localhost:{8448 + suite.offset}", version, "go-2", str(ca))


@pytest.mark.parametrize("version", ["--h1", "-m20"])
def test_h2load(suite: Suite, tmp_path: Path, version: str) -> None:
    body = tmp_path / "body"
    body.write_bytes(bytes(100))
    url = f"http://127.0.0.1:{8088 + suite.offset}/v1/loaded/messages"
    said = run(program("h2load"), version, f"-n{REQUESTS}", "-c10", "-d", str(body), url)
    assert f"status codes: {REQUESTS} 2xx, 0 3xx, 0 4xx, 0 5xx" in said, said
    assert f"{REQUESTS} succeeded, 0 failed, 0 errored, 0 timeout" in said, said


def test_nghttp(suite: Suite, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(bytes(range(256)) * 400)
    url = f"https://localhost:{8448 + suite.offset}/v1/loaded/messages"
    said = run(program("nghttp"), "-nv", "--no-verify-peer", "-d", str(body), "-H", "content-type: image/png", url)
    assert re.findall(r":status: \d+", said) == [":status: 201"], said
    assert "GOAWAY" in said, "nghttp ends the connection"


@pytest.mark.parametrize(("door", "port"), [("stomp", 61613), ("coap", 5683)], ids=["vertx", "californium"])
def test_clients_of_java(suite: Suite, door: str, port: int) -> None:
    run(*doors(), door, str(port + suite.offset))
