"""Logins of browsers that have begun: each ends once, for its own browser, in time."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from enmasse.identity.proofs.login_requests import BrowserIssuer
from services.console.door import browsers
from services.console.door.browsers import SECONDS, BrowserLogins
from tests.kit.clock import Clock

ISSUER = BrowserIssuer("sso", "messaging", "https://sso.example/authorize")
BACK = "https://console.example/api/v1/login/callback"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logins(clock: Clock) -> BrowserLogins:
    return BrowserLogins(clock)


def begun(logins: BrowserLogins, issuer: BrowserIssuer = ISSUER) -> tuple[dict[str, str], str]:
    """Return the query of the URL, and the browser's secret."""
    url, secret = logins.begin(issuer, BACK)
    return {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()}, secret


def test_the_url_has_what_the_issuer_needs_and_no_secret_of_the_login(logins: BrowserLogins) -> None:
    query, secret = begun(logins)
    assert (query["response_type"], query["client_id"], query["redirect_uri"]) == ("code", "messaging", BACK)
    assert (query["scope"], query["code_challenge_method"]) == ("openid", "S256")
    login = logins.end(query["state"], secret)
    assert login is not None and login.nonce == query["nonce"]
    assert login.verifier not in query.values() and secret not in query.values()


def test_an_endpoint_with_a_query_keeps_it(logins: BrowserLogins) -> None:
    query, _ = begun(logins, BrowserIssuer("sso", "c", "https://sso.example/authorize?p=x"))
    assert (query["p"], query["client_id"]) == ("x", "c")


def test_a_login_ends_once(logins: BrowserLogins) -> None:
    query, secret = begun(logins)
    assert logins.end(query["state"], secret) is not None
    assert logins.end(query["state"], secret) is None


def test_only_the_browser_that_has_begun_a_login_ends_it(logins: BrowserLogins) -> None:
    (one, mine), (other, foreign) = begun(logins), begun(logins)
    assert logins.end(one["state"], foreign) is None
    assert logins.end(other["state"], "") is None
    assert logins.end("", mine) is None
    assert logins.end("ü" * 100, mine) is None


def test_a_login_that_took_too_long_is_forgotten(logins: BrowserLogins, clock: Clock) -> None:
    (one, mine), (other, yours) = begun(logins), begun(logins)
    clock.now += SECONDS
    assert logins.end(one["state"], mine) is not None
    clock.now += 1
    assert logins.end(other["state"], yours) is None


def test_the_oldest_login_is_forgotten_for_another_one(logins: BrowserLogins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsers, "MOST", 2)
    first, second, third = (begun(logins) for _ in range(3))
    assert logins.end(first[0]["state"], first[1]) is None
    assert logins.end(second[0]["state"], second[1]) is not None
    assert logins.end(third[0]["state"], third[1]) is not None
