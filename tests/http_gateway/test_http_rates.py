"""Rates of a space's plan: they hold for all connections of all its users together, and for the lines of a batch."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from tests.http_gateway.environment import Answer, Running, beside
from tests.kit.waiting import DEADLINE, wait_for
from tests.mqtt_gateway.environment import Router
from tests.router.tenants import Installation

RATE = 1
PATH = "/v1/news/messages"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("rates")
    news = {"name": "three", "pattern": "!!three/news", "distribution": "multicast"}
    router = Router(tmp_path_factory.mktemp("router"), [["address", news]])
    router.start()
    with contextlib.ExitStack() as stack:
        stack.callback(router.kill)
        made = stack.enter_context(Installation(folder, {"news": {"type": "multicast"}}))
        made.plans(messagesPerSecond=RATE)
        authserv = f"127.0.0.1:{made.authserv.port}"
        found = stack.enter_context(beside(folder, made.configserv, router, authserv=authserv))
        connection = HTTPConnection("127.0.0.1", found.port, timeout=DEADLINE)
        stack.callback(connection.close)
        wait_for(lambda: _status(connection) == 429, "the rate is in force")
        yield found


def login(user: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}@three:pw".encode()).decode()}


def _status(connection: HTTPConnection) -> int:
    connection.request("POST", PATH, b"x", login("alice"))
    answer = connection.getresponse()
    answer.read()
    return answer.status


def posted(gateway: Running, user: str, body: bytes, query: str, host: str) -> Answer:
    return gateway.ask("POST", PATH + query, body, {**login(user), "Host": host})


@pytest.mark.parametrize("size", [1, 100])
def test_a_rate_holds_over_connections_users_hosts_and_batches(gateway: Running, size: int) -> None:
    batch = json.dumps({"body": "x"}).encode() + b"\n"
    began, accepted = time.monotonic(), 0
    for number in range(300 // size if size > 1 else 25):
        user, host = ("alice", "bob")[number % 2], f"host-{number}"
        if size == 1:
            accepted += posted(gateway, user, b"x", "", host).status == 201
            continue
        lines = [json.loads(line) for line in posted(gateway, user, batch * size, "?batch", host).body.splitlines()]
        assert len(lines) == size
        assert {line["status"] for line in lines} <= {201, 429}
        accepted += sum(line["status"] == 201 for line in lines)
    assert accepted <= 2 + 1.5 * RATE * (time.monotonic() - began)
