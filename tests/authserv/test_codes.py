"""Codes that an issuer gives to browsers: which of them log in, and the effects of a hostile issuer, or none."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from joserfc.jwk import RSAKey

from enmasse.amqp.messages.sections import Sections
from enmasse.identity.principal import Principal
from enmasse.identity.processes.roles import Role
from enmasse.identity.proofs.failures import Failures
from enmasse.identity.proofs.login_requests import (
    ISSUERS,
    AskRevision,
    BrowserIssuer,
    IssuersAnswer,
    ListIssuers,
    LoginAnswer,
    RedeemCode,
    RefreshLogin,
    RevisionAnswer,
    decoded_answer,
    encoded,
)
from enmasse.model import feeds
from enmasse.model.issuers import Issuer
from services.authserv import authenticator
from tests.authserv.published import AUDIENCE, CLIENT, Published
from tests.authserv.running import Running, ask, user
from tests.identity.kit import Suite, attach_refused, condition_after, dial
from tests.kit.clock import Clock
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, wait_for

VERIFIER, NONCE, REDIRECT = "v" * 64, "a-nonce", "http://127.0.0.1:8080/api/v1/login/callback"
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
FORGED = RSAKey.generate_key(2048, {"kid": "rsa"})


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(tmp_path_factory.mktemp("peers"), (Role.GATEWAY, Role.CONSOLE))


@pytest.fixture(scope="module")
def shared(suite: Suite) -> Iterator[Running]:
    with Running(peers=str(suite.file), logins="127.0.0.1:0") as running, pytest.MonkeyPatch.context() as patch:
        patch.setattr(authenticator, "DELAY", 0.0)
        yield running


def put_in_force(service: Running, published: Published, **more: Any) -> None:
    issuer = Issuer(issuer=published.url, audience=AUDIENCE, **{"client_id": CLIENT, **more})
    service.users({"bob": user("bob's")}, issuer)
    wait_for(lambda: not service.service.logins.issuers.problems(), "the issuer is known")


@pytest.fixture
def service(shared: Running, published: Published) -> Running:
    """The service with one issuer, which is known."""
    put_in_force(shared, published)
    return shared


class Console:
    """Links of the console."""

    def __init__(self, receiver: Any, sender: Any) -> None:
        self._receiver = receiver
        self._sender = sender

    async def issuers(self) -> tuple[BrowserIssuer, ...]:
        await self._sender.send(encoded(ListIssuers(1)), settled=True, timeout=DEADLINE)
        _, values = Sections((await self._receiver.receive(DEADLINE)).payload).body()
        return msgspec.json.decode(values[0], type=IssuersAnswer).issuers

    async def revision(self) -> int:
        await self._sender.send(encoded(AskRevision(4)), settled=True, timeout=DEADLINE)
        _, values = Sections((await self._receiver.receive(DEADLINE)).payload).body()
        return msgspec.json.decode(values[0], type=RevisionAnswer).revision

    async def redeem(self, code: str, **more: Any) -> LoginAnswer:
        login: dict[str, Any] = {
            "id": 2, "issuer": "issuer-0", "code": code, "verifier": VERIFIER, "nonce": NONCE, "redirect": REDIRECT,
            "stated": None, "client": "192.0.2.7", **more,
        }  # fmt: skip
        await self._sender.send(encoded(RedeemCode(**login)), settled=True, timeout=DEADLINE)
        return decoded_answer((await self._receiver.receive(DEADLINE)).payload)

    async def refresh(self, token: str | None, issuer: str = "issuer-0") -> LoginAnswer:
        request = RefreshLogin(3, issuer, token or "", "192.0.2.7")
        await self._sender.send(encoded(request), settled=True, timeout=DEADLINE)
        return decoded_answer((await self._receiver.receive(DEADLINE)).payload)


@asynccontextmanager
async def console(service: Running, suite: Suite) -> AsyncIterator[Console]:
    async with dial(service.logins, suite.credential(Role.CONSOLE)) as c:
        receiver = await c.receiver(ISSUERS, credit=100, timeout=DEADLINE)
        yield Console(receiver, await c.sender(ISSUERS, timeout=DEADLINE))


@asyncio_test
async def test_a_code_proves_the_user_and_the_groups_of_the_access_token_once(
    service: Running, suite: Suite, published: Published
) -> None:
    expires = int(time.time()) + 1000
    code = published.code(CHALLENGE, REDIRECT, NONCE, exp=expires, id_groups=["other"], id_preferred_username="eve")
    async with console(service, suite) as c:
        assert await c.issuers() == (BrowserIssuer("issuer-0", CLIENT, f"{published.url}/authorize"),)
        found = await c.redeem(code)
        assert found.outcome == "accepted"
        assert found.login.principal == Principal("alice", ("staff", "ops"))
        assert found.expires == expires + 30
        assert (await c.redeem(code)).outcome == "refused"
    _, fields = published.requests[0]
    assert fields["client_id"] == CLIENT and "client_secret" not in fields
    assert service.service.logins.issuers.problems() == []


@asyncio_test
async def test_the_console_learns_which_users_are_known(service: Running, suite: Suite) -> None:
    async with console(service, suite) as c:
        for revision in (7, 9):
            service.replace(feeds.Users(revision=revision, users={"bob": user("bob's")}))
            assert await c.revision() == revision


@asyncio_test
async def test_a_refresh_token_proves_the_user_as_it_is_now_until_the_issuer_refuses_it(
    service: Running, suite: Suite, published: Published
) -> None:
    later = int(time.time()) + 2000
    token = published.refresh_token(groups=["new"], exp=later)
    async with console(service, suite) as c:
        found = await c.redeem(published.code(CHALLENGE, REDIRECT, NONCE, refresh=token))
        assert (found.outcome, found.refresh) == ("accepted", token)
        assert token not in repr(found)
        again = await c.refresh(found.refresh)
        assert (again.outcome, again.login.principal) == ("accepted", Principal("alice", ("new",)))
        assert again.expires == later + 30 and again.refresh not in (None, token)
        assert (await c.refresh(token)).outcome == "refused"  # it was replaced
        assert (await c.refresh(again.refresh, "issuer-1")).outcome == "refused"
        assert (await c.refresh("x" * 13_000)).outcome == "refused"
        without = await c.redeem(published.code(CHALLENGE, REDIRECT, NONCE))
        assert (without.outcome, without.refresh) == ("accepted", None)
        published.override = lambda request: request.answer(500, {})  # type: ignore[attr-defined]  # its handler
        assert (await c.refresh(again.refresh)).outcome == "unavailable"
        published.override = None
        assert (await c.refresh(again.refresh)).outcome == "accepted"


@asyncio_test
async def test_a_user_of_users_json_has_its_entry_there_as_with_other_tokens(
    service: Running, suite: Suite, published: Published
) -> None:
    async with console(service, suite) as c:
        found = await c.redeem(published.code(CHALLENGE, REDIRECT, NONCE, user="bob"))
    assert (found.user, found.credentials) == ("bob", service.service.logins.credentials(Principal("bob")))
    assert found.credentials is not None


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"code": "guessed"}, id="code"),
        pytest.param({"verifier": "w" * 64}, id="verifier"),
        pytest.param({"nonce": "another"}, id="nonce"),
        pytest.param({"nonce": ""}, id="no nonce"),
        pytest.param({"redirect": "https://evil.example/api/v1/login/callback"}, id="redirect"),
        pytest.param({"issuer": "issuer-1"}, id="issuer of no entry"),
        pytest.param({"stated": "https://evil.example"}, id="sent back by another issuer"),
    ],
)
@asyncio_test
async def test_a_code_of_another_login_is_refused(
    wrong: dict[str, str], service: Running, suite: Suite, published: Published
) -> None:
    async with console(service, suite) as c:
        code = published.code(CHALLENGE, REDIRECT, NONCE)
        assert (await c.redeem(**{"code": code, **wrong})).outcome == "refused"


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param({"id_aud": "another-client"}, id="ID token for another client"),
        pytest.param({"id_aud": [CLIENT, "another"], "id_azp": "another"}, id="ID token that another client asked for"),
        pytest.param({"id_iss": "https://evil.example"}, id="ID token of another issuer"),
        pytest.param({"id_exp": 1_000_000_000}, id="expired ID token"),
        pytest.param({"id_exp": None}, id="ID token without expiry"),
        pytest.param({"id_sub": "another"}, id="tokens of two users"),
        pytest.param({"sub": None}, id="tokens without sub"),
        pytest.param({"id_key": FORGED}, id="ID token that is not signed by the issuer"),
        pytest.param({"aud": "another-service", "id_aud": CLIENT}, id="access token for another service"),
        pytest.param({"iss": "https://evil.example"}, id="tokens of another issuer"),
        pytest.param({"exp": 1_000_000_000}, id="expired tokens"),
        pytest.param({"user": "@staff"}, id="no name of a user"),
    ],
)
@asyncio_test
async def test_tokens_that_are_not_for_this_client_prove_nothing_and_the_reason_is_shown(
    claims: dict[str, Any], service: Running, suite: Suite, published: Published
) -> None:
    async with console(service, suite) as c:
        assert (await c.redeem(published.code(CHALLENGE, REDIRECT, NONCE, **claims))).outcome == "unavailable"
        assert "its tokens for codes are not accepted" in "".join(service.service.logins.issuers.problems())
        assert (await c.redeem(published.code(CHALLENGE, REDIRECT, NONCE))).outcome == "accepted"
    assert service.service.logins.issuers.problems() == []


@asyncio_test
async def test_an_issuer_that_says_who_it_is_has_to_say_it_each_time(
    shared: Running, suite: Suite, published: Published
) -> None:
    published.discovery["authorization_response_iss_parameter_supported"] = True
    await asyncio.to_thread(put_in_force, shared, published)
    async with console(shared, suite) as c:
        assert (await c.redeem(published.code(CHALLENGE, REDIRECT, NONCE))).outcome == "refused"
        code = published.code(CHALLENGE, REDIRECT, NONCE)
        assert (await c.redeem(code, stated=published.url)).outcome == "accepted"


@asyncio_test
async def test_an_issuer_that_is_away_decides_nothing_and_no_failure_is_counted(
    service: Running, suite: Suite, published: Published
) -> None:
    code = published.code(CHALLENGE, REDIRECT, NONCE)
    await asyncio.to_thread(published.close)
    async with console(service, suite) as c:
        for _ in range(8):  # more than the failures that are free
            assert (await c.redeem(code)).outcome == "unavailable"
    assert "logins of browsers: http://127.0.0.1" in "".join(service.service.logins.issuers.problems())


@asyncio_test
async def test_guesses_from_one_address_are_limited(
    service: Running, suite: Suite, published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that stands still: the waits begin with one second, which a loaded machine takes for a guess."""
    monkeypatch.setattr(service.service.logins, "_failures", Failures(Clock()))
    async with console(service, suite) as c:
        for number in range(60):  # fifty of them are free, as there may be many browsers behind one address
            assert (await c.redeem(f"guess-{number}", client="192.0.2.99")).outcome == "refused"
        assert sum("guess" in fields["code"] for _, fields in published.requests) < 60
        code = published.code(CHALLENGE, REDIRECT, NONCE)
        assert (await c.redeem(code, client="192.0.2.99")).outcome == "refused"
        assert (await c.redeem(code)).outcome == "accepted"


@pytest.mark.parametrize(
    ("discovery", "endpoint"),
    [
        ({"authorization_endpoint": "javascript:alert(1)"}, None),
        ({"authorization_endpoint": "http://issuer.example/authorize"}, None),
        ({"authorization_endpoint": None}, ""),
    ],
)
@asyncio_test
async def test_browsers_are_sent_to_no_place_that_others_can_read(
    discovery: dict[str, Any], endpoint: str | None, shared: Running, suite: Suite, published: Published
) -> None:
    published.discovery |= discovery
    published.discovery = {name: value for name, value in published.discovery.items() if value is not None}
    issuer = Issuer(issuer=published.url, audience=AUDIENCE, client_id=CLIENT)
    await asyncio.to_thread(shared.users, {}, issuer)
    async with console(shared, suite) as c:
        fetched = "authorization_endpoint" if endpoint is None else ""

        def known() -> bool:
            problems = "".join(shared.service.logins.issuers.problems())
            return fetched in problems if fetched else not problems

        await asyncio.to_thread(wait_for, known, "the discovery document was read")
        assert [each.endpoint for each in await c.issuers()] == [""]


@asyncio_test
async def test_without_a_client_no_browser_can_log_in(shared: Running, suite: Suite, published: Published) -> None:
    await asyncio.to_thread(put_in_force, shared, published, client_id=None)
    async with console(shared, suite) as c:
        assert await c.issuers() == ()
        assert (await c.redeem(published.code(CHALLENGE, REDIRECT, NONCE))).outcome == "refused"


def test_a_client_without_the_grant_for_passwords_refuses_them(service: Running, published: Published) -> None:
    def answer(handler: Any) -> None:
        handler.answer(400, {"error": "unauthorized_client"})

    published.override = answer
    assert ask(service.port, "alice", "alice's").outcome == 1
    assert service.service.logins.issuers.problems() == []


@asyncio_test
async def test_gateways_ask_for_no_issuers(service: Running, suite: Suite) -> None:
    async with dial(service.logins, suite.credential(Role.GATEWAY)) as c:
        assert await attach_refused(c, ISSUERS, send=True)
        assert await attach_refused(c, ISSUERS, send=False)


@pytest.mark.parametrize("body", [b"", b"\x00\x53\x77\xa1\x02{}", b'\x00\x53\x77\xa1\x16{"ask":"x","id":1,"a":2}'])
@asyncio_test
async def test_requests_that_cannot_be_read_end_the_connection(service: Running, suite: Suite, body: bytes) -> None:
    async with dial(service.logins, suite.credential(Role.CONSOLE)) as c:
        assert await condition_after(c, ISSUERS, body) == "amqp:decode-error"


def test_a_code_is_in_no_text_of_a_request() -> None:
    request = RedeemCode(1, "sso", "the-code", "the-verifier", "the-nonce", REDIRECT, None, "192.0.2.7")
    assert not {"the-code", "the-verifier", "the-nonce"} & set(repr(request).split("'"))
