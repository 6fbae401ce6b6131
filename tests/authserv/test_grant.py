"""Passwords that an issuer checks (the password grant): which logins succeed, and the effects of an issuer that is
slow, away or hostile."""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from enmasse.amqp.sasl.layer import PlainClient
from enmasse.model.issuers import Issuer
from enmasse.model.users import User
from services.authserv import authenticator, issuer, token_endpoint
from services.authserv.issuer_http import MAX_DOCUMENT
from services.authserv.sasl_login import SaslLogin
from services.authserv.tokens import MAX_TOKEN
from tests.authserv.published import AUDIENCE, RSA, Published, public
from tests.authserv.running import Answer, Running, ask, ask_engine, user
from tests.kit.waiting import wait_for

REFUSED, TEMPORARY = 1, 4
"""Outcomes of SASL (AMQP 1.0, 5.3.3.6)."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    with Running() as running, pytest.MonkeyPatch.context() as patch:
        patch.setattr(authenticator, "DELAY", 0.0)
        yield running


def entry(published: Published, **more: Any) -> Issuer:
    return Issuer(issuer=published.url, audience=AUDIENCE, **{"client_id": "suite", **more})


@pytest.fixture
def running(shared: Running, published: Published) -> Running:
    """The service with one issuer, which is known."""
    shared.users({"bob": user("bob's")}, entry(published))
    wait_for(lambda: not shared.service.logins.issuers.problems(), "the issuer is known")
    return shared


def problem(running: Running) -> str:
    return "; ".join(running.service.logins.issuers.problems())


def undecided(running: Running) -> int:
    return running.service.logins._counts["PLAIN", "undecided"]


def names(answer: Answer) -> tuple[str, list[str]]:
    return answer.properties["authenticated-identity"]["sub"], list(answer.properties["groups"])


def test_user_and_groups_are_those_of_the_token(running: Running, published: Published) -> None:
    expires = int(time.time()) + 1000
    published.claims = {"exp": expires}
    answer = ask(running.port, "alice", "alice's")
    assert names(answer) == ("alice", ["staff", "ops"])
    assert answer.properties["exp"] == expires + 30
    _, fields = published.requests[-1]
    assert fields == {"grant_type": "password", "client_id": "suite", "username": "alice", "password": "alice's"}


def test_a_client_with_a_secret_proves_itself_by_http_basic(shared: Running, published: Published) -> None:
    shared.users({}, entry(published, client_secret="s:e c%"))
    wait_for(lambda: not problem(shared), "the issuer is known")
    assert ask(shared.port, "alice", "alice's").opened
    headers, fields = published.requests[-1]
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"suite:s%3Ae+c%25").decode()
    assert "client_id" not in fields
    assert "client_secret" not in fields
    assert "s:e" not in repr(shared.service.logins.issuers._sources["default"]["issuer-0"].issuer)


def test_wrong_passwords_and_unknown_users_are_refused_alike(running: Running) -> None:
    for name, password in (("alice", "wrong"), ("nobody", "alice's")):
        answer = ask(running.port, name, password)
        assert (answer.opened, answer.outcome) == (False, REFUSED)


@pytest.mark.parametrize("name", ["anonymous", "@staff", "", "a\x07b", "x" * 300])
def test_names_that_no_user_can_have_are_not_asked_for(name: str, running: Running, published: Published) -> None:
    published.passwords[name] = "x"
    assert not ask_engine(running.port, PlainClient(name, "x")).opened
    assert published.logins == []


def test_a_name_in_users_json_is_never_asked_for_at_an_issuer(shared: Running, published: Published) -> None:
    published.passwords |= {"bob": "other", "cert": "other"}
    shared.users({"bob": user("bob's"), "cert": User(groups=("devices",))}, entry(published))
    wait_for(lambda: not problem(shared), "the issuer is known")
    for name in ("bob", "cert"):
        assert ask(shared.port, name, "other").outcome == REFUSED
    assert ask(shared.port, "bob", "bob's").opened
    assert published.logins == []


def test_an_account_that_is_another_user_at_the_issuer_is_refused(running: Running, published: Published) -> None:
    published.claims = {"preferred_username": "bob"}
    assert ask(running.port, "alice", "alice's").outcome == REFUSED


def test_issuers_are_asked_in_the_order_of_the_file(shared: Running, published: Published) -> None:
    second = Published()
    with contextlib.closing(second):
        second.passwords = {"alice": "second's", "carol": "carol's"}
        second.claims = {"groups": ["second"]}
        shared.users({}, entry(published), entry(second))
        wait_for(lambda: not problem(shared), "the issuers are known")
        assert names(ask(shared.port, "alice", "alice's")) == ("alice", ["staff", "ops"])
        assert second.logins == []
        assert names(ask(shared.port, "alice", "second's")) == ("alice", ["second"])
        assert names(ask(shared.port, "carol", "carol's")) == ("carol", ["second"])
        assert published.logins[-1] == ("carol", "carol's")


def test_a_success_is_remembered_until_its_token_expires(
    running: Running, published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        assert ask(running.port, "alice", "alice's").opened
    assert len(published.logins) == 1
    assert ask(running.port, "alice", "wrong").outcome == REFUSED
    assert ask(running.port, "alice", "wrong").outcome == REFUSED
    assert len(published.logins) == 3  # failures are not remembered
    published.passwords["dora"] = "dora's"
    published.claims = {"exp": int(time.time()) - 29}  # counts for the skew of 30 s only
    issuer_0 = running.service.logins.issuers._sources["default"]["issuer-0"]
    assert isinstance(issuer_0, issuer.TokenSource) and issuer_0.passwords is not None
    source = issuer_0.passwords
    monkeypatch.setattr(source, "_now", lambda: time.time() + 40)
    for count in (4, 5):
        ask(running.port, "dora", "dora's")
        assert len(published.logins) == count


def test_another_entry_of_the_issuer_forgets_what_is_remembered(running: Running, published: Published) -> None:
    assert ask(running.port, "alice", "alice's").opened
    published.passwords = {}
    running.users({}, entry(published, skew=31))
    wait_for(lambda: not problem(running), "the issuer is known")
    assert ask(running.port, "alice", "alice's").outcome == REFUSED
    running.users({}, entry(published, client_id=None))
    assert ask(running.port, "alice", "alice's").outcome == REFUSED
    assert len(published.logins) == 2


def test_no_cookie_of_one_user_is_sent_for_another(running: Running, published: Published) -> None:
    published.passwords["carol"] = "carol's"
    assert ask(running.port, "alice", "alice's").opened
    assert ask(running.port, "carol", "carol's").opened
    assert all("Cookie" not in headers for headers, _ in published.requests)


# --- an issuer that does not answer as it should ----------------------------------------------------------------------


def redirect(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(307)
    handler.send_header("Location", "/elsewhere")
    handler.end_headers()


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b" " * 65536)


def answer(status: int, body: bytes, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return write


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        pytest.param(redirect, "HTTP status 307", id="redirect"),
        pytest.param(endless, f"not a JSON object of at most {MAX_DOCUMENT} bytes", id="endless"),
        pytest.param(answer(200, b"[]"), "not a JSON object", id="array"),
        pytest.param(answer(200, b"[" * 100_000), "not a JSON object", id="nested"),
        pytest.param(answer(200, b"\x1f\x8b", Content_Encoding="gzip"), "not a JSON object", id="compressed"),
        pytest.param(answer(200, b"{}"), "HTTP status 200", id="without a token"),
        pytest.param(answer(200, b'{"access_token":"a.b.c"}'), "are not accepted", id="no token"),
        pytest.param(answer(401, b'{"error":"invalid_client"}'), "'invalid_client'", id="client is refused"),
        pytest.param(answer(500, b"<html>"), "HTTP status 500", id="error"),
        pytest.param(answer(400, b"{}"), "HTTP status 400", id="error without a name"),
    ],
)
def test_what_is_no_decision_is_a_temporary_failure(
    override: Any, reason: str, running: Running, published: Published
) -> None:
    published.override = override
    before = undecided(running)
    for _ in range(8):  # more than the failures that are free
        assert ask(running.port, "alice", "alice's").outcome == TEMPORARY
    assert reason in problem(running)
    assert "alice" not in problem(running)
    assert undecided(running) == before + 8
    published.override = None
    assert ask(running.port, "alice", "alice's").opened  # no failure was counted
    assert problem(running) == ""


def test_a_silent_issuer_keeps_neither_logins_nor_tokens_waiting(
    running: Running, published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def silent(_: BaseHTTPRequestHandler) -> None:
        release.wait()

    published.override = silent
    monkeypatch.setattr(token_endpoint, "TIMEOUT", 0.5)
    try:
        assert ask(running.port, "alice", "alice's").outcome == TEMPORARY
        assert "no answer within" in problem(running)
        assert ask(running.port, "bob", "bob's").opened
        assert ask(running.port, "alice", published.token()).opened
    finally:
        release.set()


def test_the_issuer_away_passwords_are_undecided_and_tokens_go_on(running: Running, published: Published) -> None:
    token = published.token(preferred_username="carol")
    published.close()
    assert ask(running.port, "alice", "alice's").outcome == TEMPORARY
    assert "passwords: http://127.0.0.1" in problem(running)
    assert ask(running.port, "carol", token).opened
    assert ask(running.port, "carol", "a.b.c").outcome == TEMPORARY
    assert ask(running.port, "bob", "wrong").outcome == REFUSED


def test_before_the_keys_are_known_a_token_is_undecided(shared: Running, published: Published) -> None:
    published.discovery["issuer"] = "https://other.example"
    shared.users({}, entry(published))
    assert ask(shared.port, "alice", published.token()).outcome == TEMPORARY
    assert ask(shared.port, "alice", "alice's").outcome == TEMPORARY
    assert published.logins == []
    assert "is of the issuer 'https://other.example'" in problem(shared)


@pytest.mark.parametrize(
    ("name", "url"), [("token_endpoint", "http://issuer.example/t"), ("jwks_uri", "file:///etc/passwd"),
                      ("jwks_uri", "http://localhost@evil.example/"), ("token_endpoint", None), ("jwks_uri", 7)],
)  # fmt: skip
def test_a_discovery_document_leads_to_no_place_that_others_can_read(
    name: str, url: Any, shared: Running, published: Published
) -> None:
    published.discovery[name] = url
    shared.users({}, entry(published))
    assert ask(shared.port, "alice", "alice's").outcome == TEMPORARY
    wait_for(lambda: (str(url) if isinstance(url, str) else name) in problem(shared), "the reason is shown")
    assert published.logins == []


def test_a_huge_set_of_keys_changes_nothing(
    running: Running, published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer, "APART", 0.0)
    published.keys = {"keys": public(RSA)["keys"], "more": "x" * MAX_DOCUMENT}
    unknown = published.token(type(RSA).generate_key(2048, {"kid": "unknown"}))
    assert ask(running.port, "alice", unknown).outcome == TEMPORARY
    assert f"not a JSON object of at most {MAX_DOCUMENT} bytes" in problem(running)
    assert ask(running.port, "alice", published.token()).opened


def test_a_token_of_another_issuer_makes_the_service_fetch_nothing(
    running: Running, published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer, "APART", 0.0)
    asked, other = published.asked, Published()
    with contextlib.closing(other):
        foreign = other.token(type(RSA).generate_key(2048, {"kid": "unknown"}))
        assert ask(running.port, "alice", foreign).outcome == REFUSED
    assert (published.asked, other.asked, published.logins) == (asked, 0, [])


def test_a_token_that_is_too_long_is_refused_and_not_asked_for(running: Running, published: Published) -> None:
    token = published.token(more="x" * MAX_TOKEN)
    assert len(token) > MAX_TOKEN
    assert not ask_engine(running.port, PlainClient("alice", token[: 16 * 1024 - 200])).opened
    with contextlib.suppress(ConnectionError):  # more than a frame may have: the service closes meanwhile
        assert not ask_engine(running.port, PlainClient("alice", token + "x" * 60_000)).opened
    assert not ask_engine(running.port, PlainClient("alice", "x" * 2000)).opened  # no token, and no password
    assert published.logins == []


# --- mechanisms -------------------------------------------------------------------------------------------------------


def offered(running: Running) -> set[str]:
    names = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "ANONYMOUS")
    connection = running.service._offered(SaslLogin(running.service.logins, "127.0.0.1", relayed=False))
    return {name for name in names if name in connection}


def test_scram_is_offered_unless_only_issuers_know_passwords(shared: Running, published: Published) -> None:
    shared.users({}, entry(published))
    assert offered(shared) == {"PLAIN", "OAUTHBEARER"}
    shared.users({"bob": user("bob's")}, entry(published))
    assert offered(shared) == {"PLAIN", "OAUTHBEARER", "SCRAM-SHA-256"}
    shared.users({}, entry(published, client_id=None))
    assert offered(shared) == {"PLAIN", "OAUTHBEARER", "SCRAM-SHA-256"}
    shared.users(None, entry(published))
    assert offered(shared) == {"PLAIN", "OAUTHBEARER"}
    shared.users()
    assert offered(shared) == {"PLAIN", "ANONYMOUS"}
