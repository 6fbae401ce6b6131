"""Requests with a reply: answered by AMQP clients of the same address space, and by nobody."""

from __future__ import annotations

import asyncio
import json
import select
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from typing import Any

import pytest

from enmasse.aio.client import connect
from enmasse.amqp.messages.message import Message
from enmasse.testing import Suite
from services.http_gateway.api.requesting import OF_USER
from tests.http_gateway.requests_to_suite import Answer, basic, request
from tests.kit.running import asyncio_test
from tests.kit.spaces import running_with_spaces
from tests.kit.waiting import DEADLINE, wait_for
from tests.system.users import allow, entry

PASSWORD = "the-right-one"
USERS = {"alice": entry(PASSWORD, allow("ask", "jobs", "chat")), "bob": entry(PASSWORD, allow("jobs"))}
ADDRESSES = {
    "ask": {"type": "anycast"},
    "chat": {"type": "multicast"},
    "jobs": {"type": "queue", "flavor": "small-persisted-queue"},
}
FILES: dict[str, Any] = {
    "users.json": USERS,
    "spaces.json": {"shop": {}},
    "spaces/shop/addresses.json": ADDRESSES,
    "spaces/shop/users.json": USERS,
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    folder, options = tmp_path_factory.mktemp("requests"), ("--without", "mqtt", "--with", "http")
    with running_with_spaces(folder, FILES, addresses=ADDRESSES, options=options) as found:
        found.up()
        yield found
        assert found.down() == 0


@asynccontextmanager
async def service(suite: Suite, user: str, address: str, by: Callable[[Message], Any]) -> AsyncIterator[None]:
    """Answer requests at an address; `by` returns the correlation-id of the reply."""

    async def serve(receiver: Any, replies: Any) -> None:
        async for delivery in receiver:
            asked = delivery.message
            body = b"re: " + bytes(asked.body)
            await replies.send(Message(body, to=asked.reply_to, correlation_id=by(asked), subject="reply"))
            await delivery.accept()

    async with connect(host="127.0.0.1", port=5672 + suite.offset, user=user, password=PASSWORD) as client:
        receiver, replies = await client.receiver(address), await client.sender(None)
        task = asyncio.create_task(serve(receiver, replies))
        yield
        task.cancel()


async def ask(suite: Suite, user: str, path: str, body: bytes = b"", /, **headers: str) -> Answer:
    given = {**basic(user, PASSWORD), **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await asyncio.to_thread(request, suite, "POST", path, body, given)


@pytest.mark.parametrize("user", ["alice", "alice@shop"])
@pytest.mark.parametrize("address", ["ask", "jobs", "chat"])
def test_a_request_is_answered_by_its_reply(suite: Suite, user: str, address: str) -> None:
    @asyncio_test
    async def test() -> None:
        ways: list[Callable[[Message], Any]] = [lambda asked: asked.correlation_id, lambda asked: asked.message_id]
        for by in ways:
            async with service(suite, user, address, by):
                asked = [ask(suite, user, f"/v1/{address}/requests?wait=10", b"%d" % n) for n in range(5)]
                answers = await asyncio.gather(*asked)
                assert [(each.status, each.body) for each in answers] == [(200, b"re: %d" % n) for n in range(5)]
                own = await ask(suite, user, f"/v1/{address}/requests?wait=10", enmasse_correlation_id="mine")
                assert (own.headers["enmasse-correlation-id"], own.headers["enmasse-subject"]) == ("mine", "reply")
                assert "temp" not in str(own.headers)

    test()


def test_a_request_without_a_reply(suite: Suite) -> None:
    @asyncio_test
    async def test() -> None:
        async with service(suite, "alice", "ask", lambda asked: "another"):
            late = await ask(suite, "alice", "/v1/ask/requests?wait=1")
            assert (late.status, json.loads(late.body)["outcome"]) == (504, "unknown")
        for path, status in (
            ("/v1/ask/requests?wait=10", 503),
            ("/v1/chat/requests?wait=10", 503),
            ("/v1/nowhere/requests", 403),
            ("/v1/ask/requests?wait=0", 400),
            ("/v1/ask/requests?wait=301", 400),
        ):
            assert (await ask(suite, "alice", path)).status == status, path
        assert (await ask(suite, "bob", "/v1/ask/requests")).status == 403
        for header in ("idempotency_key", "enmasse_reply_to"):
            assert (await ask(suite, "alice", "/v1/ask/requests", **{header: "x"})).status == 400

    test()


def test_a_user_has_so_many_requests_without_a_reply(suite: Suite) -> None:
    """Bob's reach the bound; alice's do not count with them. Those of clients that have left count no longer."""

    def open_request(path: str) -> HTTPConnection:
        found = HTTPConnection("127.0.0.1", 8088 + suite.offset, timeout=DEADLINE)
        found.request("POST", path, headers=basic("bob", PASSWORD))
        return found

    waiting = [open_request("/v1/jobs/requests?wait=300") for _ in range(OF_USER + 1)]
    (refused,) = select.select([each.sock for each in waiting], [], [], DEADLINE)[0]
    assert next(each for each in waiting if each.sock is refused).getresponse().status == 429
    assert request(suite, "POST", "/v1/ask/requests", headers=basic("alice", PASSWORD)).status == 503
    for each in waiting:
        each.close()
    last = "/v1/jobs/requests?wait=1"
    wait_for(lambda: request(suite, "POST", last, headers=basic("bob", PASSWORD)).status == 504, "room for bob")
