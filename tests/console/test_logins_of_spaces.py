"""Logins of browsers where there are address spaces: by password and at issuers, at hosts of spaces and at others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from enmasse.testing import Suite
from tests.authserv.published import AUDIENCE, CLIENT, Published
from tests.console.client import Client, Reply
from tests.console.test_logins import allow, session_of, user
from tests.console.walking import PASSWORD
from tests.kit.spaces import running_with_spaces
from tests.kit.waiting import wait_for

PLAIN, ONE, TWO = "127.0.0.1", "one.example.com", "two"
"""Hosts: of no space, and of two."""
EVERYTHING = allow("send", "recv", "view", "manage", on="#")


@pytest.fixture(scope="module")
def issuer() -> Iterator[Published]:
    published = Published()
    yield published
    published.close()


@pytest.fixture(scope="module")
def suite(issuer: Published, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    entry = {"issuer": issuer.url, "audience": AUDIENCE, "client_id": CLIENT}
    files: dict[str, Any] = {
        "spaces.json": {"one": {"hosts": [ONE]}, "two": {}},
        "users.json": {"root": user(EVERYTHING)},
        "issuers.json": {"sso": {**entry, "spaceClaim": "tenant"}},
        "spaces/two/issuers.json": {"own": entry},
    }
    for space in ("one", "two"):
        files[f"spaces/{space}/addresses.json"] = {f"of-{space}": {"type": "anycast"}}
        files[f"spaces/{space}/users.json"] = {"alice": user(EVERYTHING), "@staff": {"permissions": [EVERYTHING]}}
    with running_with_spaces(tmp_path_factory.mktemp("logins"), files, addresses={}) as suite:
        for file in ("issuers.json", "spaces/two/issuers.json"):
            (suite.config / file).chmod(0o600)
        suite.up()
        with Client(suite, Host=TWO) as client:
            for name in ("own", "sso"):
                wait_for(lambda: begun(client, name).status == 200, "the issuer is known")
        yield suite
        assert suite.down() == 0


def begun(client: Client, name: str) -> Reply:
    return client("POST", f"login/issuers/{name}", Origin=f"http://{client.headers['Host']}")


def space_of(client: Client, **headers: str) -> str | None:
    """Return the space in which the requests of a client act; None: it is not known there."""
    reply = client("GET", "me", **headers)
    assert reply.status in (200, 401), reply
    return None if reply.status == 401 else str(reply.body.get("space", "default"))


@pytest.mark.parametrize(
    ("host", "name", "space"),
    [
        (PLAIN, "alice@one", "one"),
        (PLAIN, "alice@two", "two"),
        (PLAIN, "root", "default"),
        (PLAIN, "alice", None),
        (PLAIN, "alice@none", None),
        (ONE, "alice", "one"),
        (ONE, "alice@one", "one"),
        (ONE, "alice@two", None),
        (ONE, "root", None),
        (TWO, "alice", "two"),
        (TWO, "alice@one", None),
    ],
)
def test_a_password_begins_a_session_in_the_space_of_the_host_or_the_name(
    suite: Suite, host: str, name: str, space: str | None
) -> None:
    with Client(suite, Host=host) as client:
        reply = client.log_in(name, PASSWORD)
        assert reply.status == (401 if space is None else 200), reply
        assert space_of(client) == space
        if space not in (None, "default"):
            assert [row["name"] for row in client.items("addresses")] == [f"of-{space}"]
        unknown = client("POST", "login", {"user": "nobody", "password": PASSWORD})
        assert space is not None or (reply.status, reply.body) == (unknown.status, unknown.body)


@pytest.mark.parametrize(("host", "name", "others"), [
    (ONE, "alice", [TWO]), (PLAIN, "alice@two", [ONE]), (PLAIN, "root", [ONE, TWO]),
])  # fmt: skip
def test_a_session_counts_at_no_host_of_another_space(suite: Suite, host: str, name: str, others: list[str]) -> None:
    with Client(suite, Host=host) as client:
        assert client.log_in(name, PASSWORD).status == 200
        own = space_of(client)
        for other in others:
            for method, path, body in (
                ("GET", "addresses", None), ("GET", "spaces", None), ("GET", "addresses?watch=1", None),
                ("PUT", "addresses/made", {"type": "anycast"}), ("POST", "logout", {}),
            ):  # fmt: skip
                reply = client(method, path, body, Host=other)
                stranger = client(method, path, body, Host=other, Cookie="", X_CSRF_Token="")
                assert (reply.status, reply.body) == (401, stranger.body), (path, other)
        assert space_of(client) == own == space_of(client, Host=PLAIN)
    with Client(suite, Authorization=suite.operator_headers["Authorization"]) as operator:
        assert all(space_of(operator, Host=each) == "default" for each in (PLAIN, ONE, TWO))


def test_the_page_offers_the_issuers_that_may_prove_users_of_the_host(suite: Suite) -> None:
    with Client(suite) as client:
        offered = {host: client("GET", "login", Host=host).body["issuers"] for host in (PLAIN, ONE, TWO)}
        assert {host: sorted(names) for host, names in offered.items()} == {
            PLAIN: ["sso"], ONE: ["sso"], TWO: ["own", "sso"],
        }  # fmt: skip
    for host in (PLAIN, ONE):
        with Client(suite, Host=host) as client:
            assert begun(client, "own").status == 404


@pytest.mark.parametrize(
    ("host", "name", "tenant", "space"),
    [
        (PLAIN, "sso", "one", "one"),
        (PLAIN, "sso", "two", "two"),
        (PLAIN, "sso", "default", "default"),
        (PLAIN, "sso", "none", None),
        (PLAIN, "sso", None, None),
        (ONE, "sso", "one", "one"),
        (ONE, "sso", "two", None),
        (ONE, "sso", "default", None),
        (TWO, "sso", "two", "two"),
        (TWO, "own", None, "two"),
        (TWO, "own", "one", "two"),
    ],
)
def test_an_issuer_begins_a_session_in_the_space_that_it_may_prove(
    suite: Suite, issuer: Published, host: str, name: str, tenant: str | None, space: str | None
) -> None:
    with Client(suite, Host=host) as client:
        started = begun(client, name)
        assert started.status == 200, started
        query = {key: value for key, (value,) in parse_qs(urlsplit(started.body["url"]).query).items()}
        assert query["redirect_uri"] == f"http://{host}/api/v1/login/callback"
        claims = {} if tenant is None else {"tenant": tenant}
        code = issuer.code(
            query["code_challenge"], query["redirect_uri"], query["nonce"], user="bob", groups=["/staff"], **claims
        )
        cookie = started.headers["Set-Cookie"].partition(";")[0]
        reply = client(
            "GET", f"login/callback?{urlencode({'code': code, 'state': query['state']})}",
            Cookie=cookie, Sec_Fetch_Site="cross-site",
        )  # fmt: skip
        session = session_of(reply)
        assert (session is None) == (space is None), reply
        if session is None:
            assert reply.headers["Location"] in ("/?login=refused", "/?login=unavailable")
            return
        assert space_of(client, Cookie=session) == space
        if space != "default":
            assert [row["name"] for row in client("GET", "addresses", Cookie=session).body["items"]] == [f"of-{space}"]
            assert "root" not in json.dumps(client("GET", "users", Cookie=session).body)
        other = ONE if space != "one" else TWO
        assert space_of(client, Cookie=session, Host=other) is None
