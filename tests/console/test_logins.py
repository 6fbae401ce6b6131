"""Users: login, sessions, forged requests, and who sees and changes what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from enmasse.identity.passwords import hashed
from enmasse.testing import Suite, running
from tests.console.client import Client, of
from tests.kit.waiting import wait_for

PASSWORD = "correct horse battery"
QUEUE = {"type": "queue", "flavor": "small-persisted-queue"}
ADDRESSES = {"a/one": QUEUE, "a/two": QUEUE, "b/secret": QUEUE, "open": {"type": "anycast"}}


def allow(*operations: str, on: str) -> dict[str, Any]:
    return {"allow": operations, "addresses": [on]}


def user(*permissions: dict[str, Any], **more: Any) -> dict[str, Any]:
    hashes = hashed(PASSWORD)
    secret = msgspec.to_builtins({"password": hashes.password, "scram": hashes.scram})
    return {**secret, "permissions": permissions, **more}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    users = {
        "root": user(allow("view", "manage", "send", "recv", on="#")),
        "ann": user(allow("view", on="a/#"), allow("manage", on="a/one")),
        "bob": user(),
        "eve": user(groups=["ops"]),
        "@ops": {"permissions": [allow("view", on="#"), {"deny": ["view"], "addresses": ["b/#"]}]},
    }
    with running(tmp_path_factory.mktemp("console-users"), ADDRESSES) as suite:
        (suite.config / "users.json").write_text(json.dumps(users))
        suite.up()
        yield suite
        assert suite.down() == 0


@pytest.fixture
def log_in(suite: Suite) -> Iterator[Any]:
    clients: list[Client] = []

    def made(name: str) -> Client:
        client = Client(suite)
        clients.append(client)
        reply = client("POST", "login", {"user": name, "password": PASSWORD})
        assert reply.status == 200, reply
        client.headers["Cookie"] = reply.headers["Set-Cookie"].partition(";")[0]
        client.headers["X-CSRF-Token"] = reply.body["csrf"]
        return client

    yield made
    for each in clients:
        each.__exit__()


def test_without_a_login_nothing_is_shown(suite: Suite) -> None:
    with Client(suite) as client:
        for path in ("addresses", "addresses/open", "me", "users", "flavors", "overview", "addresses?watch=1"):
            assert client("GET", path).status == 401, path
        assert client("PUT", "addresses/x", {"type": "anycast"}).status == 401
        assert client("GET", "login").body == {"anonymous": False, "password": True, "issuers": []}
        assert client("GET", "openapi.json").status == 200


def test_a_session(suite: Suite, log_in: Any) -> None:
    with Client(suite) as client:
        reply = client("POST", "login", {"user": "root", "password": PASSWORD})
        cookie = reply.headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie
        assert (reply.body["user"], reply.body["how"], reply.body["administrator"]) == ("root", "session", True)
        assert PASSWORD not in json.dumps(reply.body)
        key = cookie.partition(";")[0]
        assert client("GET", "me", Cookie=key).body["user"] == "root"
        assert client("GET", "me", Cookie=f"{key}x").status == 401
        assert client("POST", "logout", Cookie=key).status == 403, "without the token"
        assert client("POST", "logout", Cookie=key, X_CSRF_Token=reply.body["csrf"]).status == 204
        assert client("GET", "me", Cookie=key).status == 401


@pytest.mark.parametrize(
    "body",
    [
        {"user": "root", "password": "guessed-by-me"},
        {"user": "nobody", "password": PASSWORD},
        {"user": "", "password": PASSWORD},
    ],
)
def test_a_wrong_login(body: dict[str, str], suite: Suite) -> None:
    with Client(suite) as client:
        reply = client("POST", "login", body)
        assert reply.status == 401 and "Set-Cookie" not in reply.headers
        assert body["password"] not in json.dumps(reply.body)


def test_a_forged_request_changes_nothing(log_in: Any) -> None:
    client = log_in("root")
    port = client.port

    def put(**headers: str) -> int:
        return int(client("PUT", "addresses/forged", {"type": "anycast"}, **headers).status)

    assert put(X_CSRF_Token="") == 403
    assert put(X_CSRF_Token=client.headers["X-CSRF-Token"][:-1]) == 403
    assert put(Origin="http://evil.example") == 403
    assert put(Origin="null") == 403
    assert put(Origin=f"http://127.0.0.1:{port + 1}") == 403
    assert put(Sec_Fetch_Site="cross-site") == 403
    assert client("GET", "addresses/forged").status == 404
    assert put(Origin=f"http://127.0.0.1:{port}") == 201
    assert client("DELETE", "addresses/forged", If_Match="*").status == 204


def test_each_user_sees_what_it_may_view_and_nothing_else(log_in: Any) -> None:
    root, ann, bob, eve = map(log_in, ("root", "ann", "bob", "eve"))
    seen = {who.headers["Cookie"]: {each["name"] for each in who.items("addresses")} for who in (root, ann, bob, eve)}
    every = {*ADDRESSES, "anycast", "broadcast", "myqueue", "mytopic"}
    assert seen[root.headers["Cookie"]] == every
    assert seen[ann.headers["Cookie"]] == {"a/one", "a/two"}
    assert seen[bob.headers["Cookie"]] == set()
    assert seen[eve.headers["Cookie"]] == every - {"b/secret"}
    assert ann("GET", "addresses").body["total"] == 2
    assert sum(ann("GET", "overview").body["phases"].values()) == 2
    for who in (ann, bob, eve):
        text = "".join(
            json.dumps(who("GET", path).body)
            for path in ("addresses", "overview", "flavors", "components", "config", "me", "users")
        )
        assert "secret" not in text
        assert who("GET", f"addresses/{of('b/secret')}").body == who("GET", f"addresses/{of('b/secrets')}").body | {
            "detail": who("GET", f"addresses/{of('b/secret')}").body["detail"]
        }
        assert who("GET", "config").status == 404
    assert [each["name"] for each in ann.items("users")] == ["ann"]
    assert ann("GET", "users/root").status == 404
    _, data = next(ann.events("addresses?watch=1"))
    assert {each["name"] for each in data["items"]} == {"a/one", "a/two"}


def test_who_may_change_what(log_in: Any) -> None:
    ann, bob = map(log_in, ("ann", "bob"))
    one, two = f"addresses/{of('a/one')}", f"addresses/{of('a/two')}"
    assert ann("PATCH", one, {"maxSize": "1Mi"}, If_Match="*").status == 200
    assert ann("PATCH", one, {"maxSize": None}, If_Match="*").status == 200
    assert ann("PATCH", two, {"maxSize": "1Mi"}, If_Match="*").status == 403
    assert ann("PATCH", one, {"deadletter": "b/secret"}, If_Match="*").status == 403, "it may not send there"
    assert ann("PUT", f"addresses/{of('a/new')}", {"type": "anycast"}).status == 404
    assert bob("DELETE", one, If_Match="*").status == 404
    for who in (ann, bob):
        assert who("PUT", "flavors/mine", {"type": "queue", "templateName": "queue-inmemory"}).status == 403
        assert who("PUT", "users/me", {"permissions": []}).status == 403
        assert who("DELETE", "users/root", If_Match="*").status == 403
        assert who("POST", "config", {"kind": "users", "remove": ["root"]}).status == 403
    assert ann("POST", "config", {"kind": "addresses", "remove": ["b/secret"]}).status == 404


def test_users_are_shown_without_hashes_and_changed_with_passwords(suite: Suite, log_in: Any) -> None:
    root = log_in("root")
    shown = root("GET", "users/ann")
    assert shown.body["password"] is True and "argon2" not in json.dumps(shown.body)
    assert root("PUT", "users/ann", shown.body["entry"], If_Match=shown.etag).etag == shown.etag
    assert [each["source"] for each in root("GET", "users/eve").body["effective"]] == [
        "@ops.permissions.0",
        "@ops.permissions.1",
    ]
    may = root("GET", "users/ann/may?operation=view&address=b/secret").body
    assert may == {"allowed": False, "permission": None}
    made = root("PUT", "users/zoe", {"password": "another long password", "permissions": [allow("view", on="open")]})
    assert made.status == 201 and "another" not in json.dumps(made.body)
    kept = json.loads((suite.config / "users.json").read_text())["zoe"]
    assert kept["password"].startswith("$argon2id$") and "SCRAM-SHA-256" in kept["scram"]
    changed = root("PUT", "users/zoe", {"permissions": []}, If_Match=made.etag)
    assert (
        changed.status == 200
        and json.loads((suite.config / "users.json").read_text())["zoe"]["password"] == kept["password"]
    )
    assert root("PUT", "users/zoe", {"scram": {}}, If_Match="*").status == 400
    assert root("PUT", "users/zoe", {"password": 7}, If_Match="*").status == 400
    assert root("DELETE", "users/zoe", If_Match=changed.etag).status == 204


def test_a_changed_password_and_a_removed_user_end_their_sessions(log_in: Any) -> None:
    root = log_in("root")
    assert root("PUT", "users/tmp", {"password": PASSWORD, "permissions": [allow("view", on="#")]}).status == 201
    wait_for(lambda: Client.__call__(root, "POST", "login", {"user": "tmp", "password": PASSWORD}).status == 200)
    tmp = log_in("tmp")
    events = tmp.events("addresses?watch=1")
    assert next(events)[0] == "snapshot"
    second = log_in("tmp")
    assert root("PUT", "users/tmp", {"password": "a new long password", "permissions": []}, If_Match="*").status == 200
    assert second("GET", "me").status == 401
    assert [name for name, data in events if data["items"]] == [], "the stream ends"
    assert root("DELETE", "users/tmp", If_Match="*").status == 204


def test_the_suites_paths_are_for_those_that_may_view_everything(suite: Suite, log_in: Any) -> None:
    root, ann = log_in("root"), log_in("ann")
    assert root.at("GET", "/api/status").status == 200
    assert ann.at("GET", "/api/status").status == 403
    assert root.at("POST", "/api/scale", {"service": "router", "count": 1}).status == 200
    assert root.at("POST", "/api/scale", {"service": "router", "count": 1}, X_CSRF_Token="x").status == 403
    assert ann.at("POST", "/api/scale", {"service": "router", "count": 1}).status == 403
    with Client(suite) as client:
        assert client.at("GET", "/api/status").status == 401
        assert client("GET", "me", **suite.operator_headers).body["how"] == "operator"


def test_messages_are_moved_only_by_those_who_manage_both_queues(log_in: Any) -> None:
    root, ann, bob, eve = map(log_in, ("root", "ann", "bob", "eve"))
    one, two, secret = (f"addresses/{of(name)}" for name in ("a/one", "a/two", "b/secret"))
    wait_for(lambda: root("GET", f"{one}/messages").status == 200)
    for who in (ann, bob, eve):
        for path in ("messages", "purge", "redrive", "move", "remove"):
            method = "GET" if path == "messages" else "POST"
            body = None if path == "messages" else {"to": "a/one"} if path == "move" else {}
            assert who(method, f"{secret}/{path}", body).status == 404, path
    assert ann("POST", f"{one}/move", {"to": "b/secret"}).status == 404
    assert ann("POST", f"{one}/move", {"to": "a/two"}).status == 403
    assert ann("POST", f"{two}/purge", {}).status == 403
    assert bob("POST", f"{one}/messages", {"body": "x"}).status == 404
    job = root("POST", f"{secret}/purge", {}).body["id"]
    assert ann("GET", f"jobs/{job}").status == 404 and ann("DELETE", f"jobs/{job}").status == 404
    assert job not in json.dumps(ann("GET", "jobs").body) and job in json.dumps(root("GET", "jobs").body)
