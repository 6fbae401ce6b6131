"""Passwords of many clients over one connection of a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from enmasse.aio.client import ClientReceiver, ClientSender
from enmasse.amqp.codec.errors import AmqpError
from enmasse.identity.principal import Principal
from enmasse.identity.processes.roles import Role
from enmasse.identity.proofs.login_requests import ADDRESS, MOST, LoginAnswer, LoginRequest, decoded_answer, encoded
from services.authserv import authenticator
from services.authserv.app import AuthservSettings
from tests.authserv.running import Running, ask, user
from tests.identity.kit import REFUSED, Suite, attach_refused, condition_after, dial, refusal
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE

ALICE = user("right", groups=("staff",))


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(tmp_path_factory.mktemp("peers"), (Role.GATEWAY, Role.ROUTER, Role.OPERATOR))


@pytest.fixture
def service(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(authenticator, "DELAY", 0.0)
    with Running(peers=str(suite.file), logins="127.0.0.1:0") as running:
        running.users({"alice": ALICE, "chosen": user("right", random=False)})
        yield running


class Gateway:
    """Links of a gateway."""

    def __init__(self, receiver: ClientReceiver, sender: ClientSender) -> None:
        self.receiver = receiver
        self.sender = sender

    async def send(
        self, id: int, name: str, password: str, client: str = "192.0.2.7", *, space: str | None = None
    ) -> None:
        request = LoginRequest(id, name, password, client, spaces=True, space=space)
        await self.sender.send(encoded(request), settled=True, timeout=DEADLINE)

    async def answers(
        self, *asked: tuple[str, str], client: str = "192.0.2.7", space: str | None = None
    ) -> list[LoginAnswer]:
        """Return the answers to user names and passwords, in the order of these."""
        for number, (name, password) in enumerate(asked):
            await self.send(number, name, password, client, space=space)
        found = [decoded_answer((await self.receiver.receive(DEADLINE)).payload) for _ in asked]
        return sorted(found, key=lambda answer: answer.id)


@asynccontextmanager
async def gateway(service: Running, suite: Suite, credit: int = 10_000) -> AsyncIterator[Gateway]:
    async with dial(service.logins, suite.credential(Role.GATEWAY)) as c:
        receiver = await c.receiver(ADDRESS, credit=credit, timeout=DEADLINE)
        yield Gateway(receiver, await c.sender(ADDRESS, timeout=DEADLINE))


@asyncio_test
async def test_each_request_gets_its_answer(service: Running, suite: Suite) -> None:
    asked = [
        ("chosen", "right"), ("alice", "right"), ("alice", "wrong"), ("bob", "right"), ("", ""), ("@staff", "right"),
        ("alice", "right"), ("anonymous", ""), ("chosen", "wrong"), ("chosen", "right"),
    ]  # fmt: skip
    async with gateway(service, suite) as g:
        found = await g.answers(*asked)
    assert [each.user or each.outcome for each in found] == [
        "chosen", "alice", "refused", "refused", "refused", "refused", "alice", "refused", "refused", "chosen",
    ]  # fmt: skip
    assert found[1].login.principal == Principal("alice", ("staff",))
    assert found[1].credentials == service.service.logins.credentials(Principal("alice"))
    refused = [msgspec.structs.replace(each, id=0) for each in found if each.outcome == "refused"]
    assert not refused[0].waiting
    assert all(each == refused[0] for each in refused), "a wrong password and an unknown user read alike"


@asyncio_test
async def test_more_requests_than_credit_are_all_answered(service: Running, suite: Suite) -> None:
    async with gateway(service, suite) as g:
        found = await g.answers(*[("alice", "right")] * (2 * MOST + 50))
    assert {each.outcome for each in found} == {"accepted"}


@asyncio_test
async def test_requests_wait_while_their_gateway_takes_no_answers(service: Running, suite: Suite) -> None:
    async with gateway(service, suite, credit=0) as g:
        for number in range(MOST):
            await g.send(number, "alice", "right")
        with pytest.raises(TimeoutError):
            await g.sender.wait_credit(0.2)
        g.receiver.grant(MOST)
        await g.sender.wait_credit(DEADLINE)


@asyncio_test
async def test_without_users_no_password_is_right_or_wrong(service: Running, suite: Suite) -> None:
    await asyncio.to_thread(service.users)
    async with gateway(service, suite) as g:
        assert [each.outcome for each in await g.answers(("alice", "right"))] == ["unavailable"]


@asyncio_test
async def test_failures_count_for_the_client_and_not_for_the_gateway(service: Running, suite: Suite) -> None:
    async with gateway(service, suite) as g:
        await g.answers(*[("alice", "wrong")] * 8)
        assert [(each.outcome, each.waiting) for each in await g.answers(("alice", "right"))] == [("refused", True)]
        assert [each.outcome for each in await g.answers(("alice", "right"), client="192.0.2.8")] == ["accepted"]
    assert (await asyncio.to_thread(ask, service.port, "alice", "right")).opened


@asyncio_test
async def test_only_gateways_connect_and_attach_to_nothing_else(service: Running, suite: Suite) -> None:
    assert await refusal(service.logins, None) == REFUSED
    for role in (Role.ROUTER, Role.OPERATOR):
        assert await refusal(service.logins, suite.credential(role)) == REFUSED
    async with dial(service.logins, suite.credential(Role.GATEWAY)) as c:
        for address in ("orders", "users", "$management", f"{ADDRESS}/x"):
            assert await attach_refused(c, address, send=True)
            assert await attach_refused(c, address, send=False)
        await c.sender(ADDRESS, timeout=DEADLINE)
        with pytest.raises(AmqpError):
            await c.sender(ADDRESS, timeout=DEADLINE)


@pytest.mark.parametrize("body", [b"", b"\x00\x53\x77\x40", b"\x00\x53\x77\xa1\x02{}", b"\x00\x53\x75\xa0\x01x"])
@asyncio_test
async def test_requests_that_cannot_be_read_end_the_connection(service: Running, suite: Suite, body: bytes) -> None:
    async with dial(service.logins, suite.credential(Role.GATEWAY)) as c:
        assert await condition_after(c, ADDRESS, body) == "amqp:decode-error"


def test_a_password_is_in_no_text_of_a_request() -> None:
    assert "secret" not in repr(LoginRequest(1, "secret-user", "secret", "192.0.2.7"))


@pytest.mark.parametrize("more", [{}, {"peers": "x", "mechanisms": ("SCRAM-SHA-256",)}])
def test_the_listener_is_for_passwords_of_gateways_that_authenticate(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="logins"):
        AuthservSettings(name="a", health="h:1", listen="h:2", configserv="h:3", logins="h:4", **more)
