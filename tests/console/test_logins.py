"""Users: login, sessions, forged requests, and who sees and changes what."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import time
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import click
import msgspec
import paho.mqtt.client as mqtt
import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection, LinkDetached

from enmasse.cli.contexts.api_problems import Lost
from enmasse.cli.contexts.contexts import Context
from enmasse.cli.contexts.remoteconsole import RemoteConsole
from enmasse.testing import Suite, running
from tests.authserv.published import AUDIENCE, CLIENT, Published
from tests.cli.running import enmasse
from tests.console import walking
from tests.console.client import Client, Reply, of
from tests.console.walking import PASSWORD, QUEUE, TOPIC, WORD
from tests.kit.hashes import hashes
from tests.kit.processes import COMMAND, Process, start
from tests.kit.waiting import DEADLINE, wait_for

ADDRESSES = {
    "a/one": QUEUE, "a/two": QUEUE, "a/topic": TOPIC, "b/secret": QUEUE, "d/dead": QUEUE, "open": {"type": "anycast"},
}  # fmt: skip


def allow(*operations: str, on: str) -> dict[str, Any]:
    return {"allow": operations, "addresses": [on]}


def user(*permissions: dict[str, Any], **more: Any) -> dict[str, Any]:
    found = hashes(PASSWORD, random=False)
    secret = msgspec.to_builtins({"password": found.password, "scram": found.scram})
    return {**secret, "permissions": permissions, **more}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    users = {
        "root": user(allow("view", "manage", "send", "recv", on="#")),
        "ann": user(allow("view", on="a/#"), allow("manage", on="a/one")),
        "bob": user(),
        "console": user(),
        "cat": user(allow("view", on="a/#"), allow("send", "recv", on="a/topic/#")),
        "dan": user(allow("view", "manage", on="b"), allow("view", "manage", on="d/dead")),
        "pat": user(allow("send", "recv", on="a/#"), allow("send", "recv", on="vault/#")),
        "vault-user": user(allow("send", "recv", on="vault/#")),
        "eve": user(groups=["ops"]),
        "@ops": {"permissions": [allow("view", on="#"), {"deny": ["view"], "addresses": ["b/#"]}]},
    }
    with running(tmp_path_factory.mktemp("console-users"), ADDRESSES, options=()) as suite:
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
        reply = client.log_in(name, PASSWORD)
        assert reply.status == 200, reply
        return client

    yield made
    for each in clients:
        each.__exit__()


def test_without_a_login_nothing_is_shown(suite: Suite) -> None:
    with Client(suite) as client:
        for path in ("addresses", "addresses/open", "me", "users", "flavors", "overview", "addresses?watch=1"):
            assert client("GET", path).status == 401, path
        assert client("PUT", "addresses/x", {"type": "anycast"}).status == 401
        options = client("GET", "login").body
        assert (options["anonymous"], options["password"]) == (False, True)
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


def test_failed_logins_are_events_that_name_the_user_to_those_who_view_everything(
    suite: Suite, log_in: Any, tmp_path: Path
) -> None:
    wrong = tmp_path / "password"
    wrong.write_text("wrong\n")
    wrong.chmod(0o600)
    root, pat = log_in("root"), log_in("pat")
    secret = "hunter2-is-my-password"
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.username_pw_set("pat", "wrong")
    client.connect("127.0.0.1", 1883 + suite.offset)
    client.loop_start()
    for name in ("pat", secret):
        with Client(suite) as other:
            assert other("GET", "me", **stated(name, "wrong")).status == 401
        at = f"amqp://127.0.0.1:{5672 + suite.offset}/open"
        logged_in = {"ENMASSE_USER": name, "ENMASSE_PASSWORD_FILE": str(wrong)}
        assert enmasse("send", "-a", at, "x", env=logged_in).returncode != 0
    with Client(suite) as other:
        assert other("GET", "me", Origin="http://a.example").status == 403

    def seen() -> set[tuple[str, str]]:
        found = root.items("events?kind=client.refused&limit=1000")
        return {(row["component"].partition("-")[0], row["condition"]) for row in found if row["user"] == "pat"}

    wanted = {"console", "router", "mqtt_gateway"}
    wait_for(lambda: {component for component, _ in seen()} >= wanted, "events of all three")
    client.loop_stop()
    events = root.items("events?kind=client.refused&limit=1000")
    assert secret not in json.dumps(events)
    assert [row for row in events if row["condition"] == "origin refused" and row["component"] == "console"]
    mine = [row for row in events if row["user"] == "pat"]
    assert all(row["more"]["proved"] is False for row in mine)
    assert all(":" in row["peer"] for row in mine if row["component"] != "router-0")
    assert not pat.items("events?kind=client.refused"), "it is another client that named the user"


def test_a_client_that_leaves_before_it_logs_in_is_an_event(suite: Suite, log_in: Any) -> None:
    root = log_in("root")

    def events() -> list[dict[str, Any]]:
        rows = root.items("events?kind=client.refused&limit=1000")
        return [row for row in rows if "the client left when it was offered" in row["description"]]

    before = sum(row["count"] for row in events())
    with pytest.raises(ConnectionException, match="mech=none"):
        BlockingConnection(f"amqp://127.0.0.1:{5672 + suite.offset}", timeout=DEADLINE)
    wait_for(lambda: sum(row["count"] for row in events()) > before, "the event")
    assert "SCRAM-SHA-256" in events()[0]["description"] and not events()[0]["user"]


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


FORGED: list[dict[str, str]] = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]
"""Headers that a browser adds for a page of another site, beside the cookie and even the token of the session."""
GUARDS = {
    "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}  # fmt: skip


def test_no_operation_serves_a_page_of_another_site(log_in: Any) -> None:
    client = log_in("root")
    paths = client("GET", "openapi.json").body["paths"]
    writing = [
        (method.upper(), re.sub(r"\{.*?\}", "forged", path), operation["operationId"])
        for path, methods in paths.items()
        for method, operation in methods.items()
        if method != "get"
    ]
    orders = [("POST", f"/api/{order}", "order") for order in ("scale", "force")]
    assert len(writing) > 20
    token = client.headers.pop("X-CSRF-Token")
    for method, path, id in [*writing, *orders]:
        for headers in FORGED:
            reply = client.at(method, path, {}, X_CSRF_Token=token, **headers)
            assert reply.status == 403 and reply.body["type"].endswith("console.origin.refused"), (path, headers)
        if id not in ("login", "loginAtIssuer"):  # these need no session
            reply = client.at(method, path, b"a=b", Content_Type="text/plain")  # a form's
            assert reply.status == 403, (path, reply)
    for path in [path for path, methods in paths.items() if "get" in methods]:
        reply = client.at("GET", re.sub(r"\{.*?\}", "forged", path), Origin="http://evil.example")
        assert reply.status == 403, path


@pytest.mark.parametrize("path", ["/", "/app.js", "/api/v1/me", "/api/v1/addresses", "/api/status", "/metrics", "/no"])
def test_answers_have_the_headers_that_keep_other_sites_out(path: str, log_in: Any) -> None:
    client = log_in("root")
    reply = client.at("GET", path)
    assert dict(reply.headers).items() >= GUARDS.items()
    assert "frame-ancestors 'none'" in reply.headers["Content-Security-Policy"]
    assert "unsafe" not in reply.headers["Content-Security-Policy"]
    assert not [name for name in reply.headers if name.lower().startswith("access-control-")]


def test_each_user_sees_what_it_may_view_and_nothing_else(log_in: Any) -> None:
    root, ann, bob, eve = map(log_in, ("root", "ann", "bob", "eve"))
    seen = {who.headers["Cookie"]: {each["name"] for each in who.items("addresses")} for who in (root, ann, bob, eve)}
    every = {*ADDRESSES, "anycast", "broadcast", "myqueue", "mytopic"}
    assert seen[root.headers["Cookie"]] == every
    assert seen[ann.headers["Cookie"]] == {"a/one", "a/two", "a/topic"}
    assert seen[bob.headers["Cookie"]] == set()
    assert seen[eve.headers["Cookie"]] == every - {"b/secret"}
    assert ann("GET", "addresses").body["total"] == 3
    assert sum(ann("GET", "overview").body["phases"].values()) == 3
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
    assert {each["name"] for each in data["items"]} == {"a/one", "a/two", "a/topic"}


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
    assert may == {"allowed": False, "address": "b/secret", "permission": None}
    made = root("PUT", "users/zoe", {"password": "another long password", "permissions": [allow("view", on="open")]})
    assert made.status == 201 and "another" not in json.dumps(made.body)
    kept = json.loads((suite.config / "users.json").read_text())["zoe"]
    assert kept["password"].startswith("$argon2id$") and "SCRAM-SHA-256" in kept["scram"]
    changed = root("PUT", "users/zoe", {"permissions": []}, If_Match=made.etag)
    assert (
        changed.status == 200
        and json.loads((suite.config / "users.json").read_text())["zoe"]["password"] == kept["password"]
    )
    lacks = [allow("send", on="a/onee"), {"deny": ["send"], "addresses": ["a/onee"]}]
    changed = root("PUT", "users/zoe", {"permissions": lacks}, If_Match="*")
    assert changed.body["warnings"] == [
        "no address is there that 'a/onee' matches. Did you mean 'a/one'?",
        "zoe.permissions.1: deny send on a/onee still holds, whatever is allowed: `enmasse user revoke zoe send a/onee "
        "--denial` lifts it.",
    ]
    assert root("PUT", "users/zoe", {"scram": {}}, If_Match="*").status == 400
    assert root("PUT", "users/zoe", {"password": 7}, If_Match="*").status == 400
    assert root("DELETE", "users/zoe", If_Match=changed.etag).status == 204


def test_the_last_manager_of_a_space_is_warned_of(log_in: Any) -> None:
    root = log_in("root")
    assert root("PUT", "spaces/headless", {}).status == 201
    assert root("PUT", "spaces/headless/users/bob", {}).body["warnings"] == []
    made = root("PUT", "spaces/headless/users/chief", {"permissions": [allow("manage", on="#")]})
    assert made.status == 201 and made.body["warnings"] == []
    changed = root("PUT", "spaces/headless/users/chief", {"permissions": [allow("manage", on="a")]}, If_Match=made.etag)
    assert changed.body["warnings"][0].startswith("no user with an entry has the permission `manage` on '#' now")
    assert root("DELETE", "spaces/headless", If_Match="*").status in (202, 204)


def test_a_changed_password_and_a_removed_user_end_their_sessions(log_in: Any) -> None:
    root = log_in("root")
    assert root("PUT", "users/tmp", {"password": PASSWORD, "permissions": [allow("view", on="#")]}).status == 201
    wait_for(lambda: Client.__call__(root, "POST", "login", {"user": "tmp", "password": PASSWORD}).status == 200)
    tmp = log_in("tmp")
    events = tmp.events("addresses?watch=1")
    assert next(events)[0] == "snapshot"
    second = log_in("tmp")
    permissions = [allow("view", on="#")]
    changed = {"password": "a new long password", "permissions": permissions}
    assert root("PUT", "users/tmp", changed, If_Match="*").status == 200
    assert end_of(events) == "login"
    assert second("GET", "me").status == 401
    assert root("DELETE", "users/tmp", If_Match="*").status == 204


def end_of(events: Iterator[tuple[str, dict[str, Any]]]) -> str:
    """Return the reason of the last event of a stream that ends."""
    *_, (kind, data) = events
    assert kind == "end" and data.keys() == {"reason", "detail"}
    return str(data["reason"])


def test_a_stream_ends_with_the_reason(log_in: Any) -> None:
    """When the permissions of its user change, and when its session is ended, by another request with the cookie."""
    root = log_in("root")
    assert root("PUT", "users/may", {"password": PASSWORD, "permissions": [allow("view", on="a/#")]}).status == 201
    wait_for(lambda: Client.__call__(root, "POST", "login", {"user": "may", "password": PASSWORD}).status == 200)
    may, other = log_in("may"), log_in("may")
    events = may.events("addresses?watch=1")
    assert next(events)[0] == "snapshot"
    assert root("PUT", "users/may", {"permissions": [allow("view", on="b/#")]}, If_Match="*").status == 200
    assert end_of(events) == "permissions"
    events = other.events("addresses?watch=1")
    assert [row["name"] for row in next(events)[1]["items"]] == ["b/secret"]
    with Client(other.port, **other.headers) as same:
        assert same("POST", "logout", {}).status == 204
    assert end_of(events) == "login"
    assert root("DELETE", "users/may", If_Match="*").status == 204


def test_a_command_logs_in_again_when_its_session_has_ended(suite: Suite, tmp_path: Path) -> None:
    """With the password that its file has then; a wrong one is not tried again and again."""
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text(PASSWORD)
    url = f"http://127.0.0.1:{8080 + suite.offset}"
    with click.Context(click.Command("test")):
        there = RemoteConsole(Context(name="there", url=url, user="ann", password_file=str(file)))

        def end() -> None:
            with Client(suite, **(there._headers or {})) as same:
                assert same("POST", "logout", {}).status == 204

        def rows() -> list[str]:
            kind, data = next(there.events("/api/v1/addresses?watch=1"))
            assert kind == "snapshot"
            return [row["name"] for row in data["items"]]

        assert there.request("GET", "/api/v1/me")[1]["user"] == "ann"
        for again in (rows, lambda: there.request("GET", "/api/v1/addresses/a%2Fone")):
            before = there._headers
            end()
            assert again()
            assert there._headers != before
        assert rows() == ["a/one", "a/topic", "a/two"]
        end()
        file.write_text("not the password")
        with pytest.raises(Lost, match="user or password is wrong") as lost:
            rows()
        assert lost.value.final
        with pytest.raises(SystemExit) as ended:
            there.request("GET", "/api/v1/me")
        assert ended.value.code == 4
        file.unlink()
        with pytest.raises(Lost, match="cannot be read") as lost:
            rows()
        assert not lost.value.final  # it may be on its way


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
    chosen = f"{one}/messages?selector=a%20%3D%201"  # as a receiver on AMQP, which needs `recv`
    assert [who("GET", chosen).status for who in (ann, eve, bob)] == [200, 403, 404]
    job = root("POST", f"{secret}/purge", {}).body["id"]
    assert ann("GET", f"jobs/{job}").status == 404 and ann("DELETE", f"jobs/{job}").status == 404
    assert job not in json.dumps(ann("GET", "jobs").body) and job in json.dumps(root("GET", "jobs").body)


# --- at an issuer -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def issuer(suite: Suite) -> Iterator[Published]:
    """An issuer `sso`, which the suite knows."""
    published = Published()
    write_issuer(suite, published.url)
    with Client(suite) as client:
        wait_for(
            lambda: client("POST", "login/issuers/sso", Origin=origin(client)).status == 200, "the issuer is known"
        )  # fmt: skip
    yield published
    with contextlib.suppress(OSError):
        published.close()
    (suite.config / "issuers.json").unlink()


def write_issuer(suite: Suite, url: str) -> None:
    new = suite.config / "issuers.new"
    new.write_text(json.dumps({"sso": {"issuer": url, "audience": AUDIENCE, "client_id": CLIENT}}))
    new.chmod(0o600)
    new.rename(suite.config / "issuers.json")


def origin(client: Client) -> str:
    return f"http://127.0.0.1:{client.port}"


class Begun(NamedTuple):
    """A login that a browser has begun: the query of the issuer's URL, and the browser's cookie."""

    query: dict[str, str]
    cookie: str

    def code(self, issuer: Published, **claims: Any) -> str:
        """Log in at the issuer. Returns the code."""
        query = self.query
        assert query["code_challenge_method"] == "S256"
        return issuer.code(query["code_challenge"], query["redirect_uri"], query["nonce"], **claims)


def begin(client: Client) -> Begun:
    reply = client("POST", "login/issuers/sso", Origin=origin(client))
    assert reply.status == 200, reply
    query = {name: value for name, (value,) in parse_qs(urlsplit(reply.body["url"]).query).items()}
    return Begun(query, reply.headers["Set-Cookie"].partition(";")[0])


def come_back(client: Client, cookie: str, **query: str) -> Reply:
    return client("GET", f"login/callback?{urlencode(query)}", Cookie=cookie, Sec_Fetch_Site="cross-site")


def session_of(reply: Reply) -> str | None:
    """Return the cookie of the session that an answer begins; None if it begins none."""
    cookies = [each for each in reply.headers.get_all("Set-Cookie") or [] if each.startswith("enmasse-session=")]
    return cookies[0].partition(";")[0] if cookies else None


def test_a_browser_logs_in_at_an_issuer(suite: Suite, issuer: Published) -> None:
    with Client(suite) as client:
        assert client("GET", "login").body["issuers"] == ["sso"]
        started = begin(client)
        assert started.query["redirect_uri"] == f"{origin(client)}/api/v1/login/callback"
        code = started.code(issuer, groups=["/ops"])
        reply = come_back(client, started.cookie, code=code, state=started.query["state"], session_state="x")
        assert (reply.status, reply.headers["Location"]) == (303, "/")
        kept = [each for each in reply.headers.get_all("Set-Cookie") or [] if each.startswith("enmasse-session=")]
        assert all(part in kept[0] for part in ("HttpOnly", "SameSite=Strict", "Path=/"))
        session = session_of(reply)
        assert session is not None
        me = client("GET", "me", Cookie=session).body
        assert (me["user"], me["groups"], me["how"], me["viewer"]) == ("alice", ["ops"], "session", False)
        assert me["expires"] is not None
        seen = {each["name"] for each in client("GET", "addresses", Cookie=session).body["items"]}
        assert "a/one" in seen and "b/secret" not in seen
        again = come_back(client, started.cookie, code=code, state=started.query["state"])
        assert again.headers["Location"] == "/?login=stale" and session_of(again) is None
        assert client("POST", "logout", Cookie=session, X_CSRF_Token=me["csrf"]).status == 204
        assert client("GET", "me", Cookie=session).status == 401


def test_a_login_at_an_issuer_begins_in_a_page_of_the_console_only(suite: Suite, issuer: Published) -> None:
    with Client(suite) as client:
        assert client("POST", "login/issuers/sso").status == 400
        assert client("POST", "login/issuers/sso", Origin="http://evil.example").status == 403
        assert client("POST", "login/issuers/sso", Origin="null").status == 403
        assert client("POST", "login/issuers/other", Origin=origin(client)).status == 404
        plain = client("POST", "login/issuers/sso", Origin=origin(client)).headers["Set-Cookie"]
        assert "HttpOnly" in plain and "SameSite=Lax" in plain and "Secure" not in plain
        behind_a_proxy = client("POST", "login/issuers/sso", Origin=f"https://127.0.0.1:{client.port}")
        assert "Secure" in behind_a_proxy.headers["Set-Cookie"]
        assert quote(f"https://127.0.0.1:{client.port}/", safe="") in behind_a_proxy.body["url"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"state": "guessed"}, "stale", id="state"),
        pytest.param({"state": ""}, "stale", id="no state"),
        pytest.param({"cookie": ""}, "stale", id="another browser"),
        pytest.param({"cookie": "enmasse-login=guessed"}, "stale", id="cookie"),
        pytest.param({"code": "guessed"}, "refused", id="code"),
        pytest.param({"code": ""}, "denied", id="no code"),
        pytest.param({"code": "x" * 9000}, "denied", id="long code"),
        pytest.param({"error": "access_denied", "error_description": "<b>no</b>"}, "denied", id="error"),
        pytest.param({"iss": "https://evil.example"}, "refused", id="another issuer"),
        pytest.param({"nonce": "another"}, "refused", id="nonce"),
        pytest.param({"id_aud": "another"}, "unavailable", id="audience"),
        pytest.param({"exp": 1_000_000_000}, "unavailable", id="expired"),
    ],
)
def test_a_login_at_an_issuer_that_is_not_as_it_should_be_begins_no_session(
    change: dict[str, Any], reason: str, suite: Suite, issuer: Published
) -> None:
    with Client(suite) as client:
        started = begin(client)
        sent = {name: value for name, value in change.items() if name in ("state", "code", "error", "iss")}
        claims = {name: value for name, value in change.items() if name in ("id_aud", "exp")}
        nonce = change.get("nonce", started.query["nonce"])
        code = Begun({**started.query, "nonce": nonce}, "").code(issuer, **claims)
        query = {"code": code, "state": started.query["state"], "redirect_uri": "https://evil.example", **sent}
        reply = come_back(client, change.get("cookie", started.cookie), **query)
        assert (reply.status, reply.headers["Location"]) == (303, f"/?login={reason}")
        assert session_of(reply) is None and reply.body == ""


def test_a_state_or_code_that_is_there_twice_begins_no_session(suite: Suite, issuer: Published) -> None:
    with Client(suite) as client:
        started = begin(client)
        query = urlencode({"code": started.code(issuer), "state": started.query["state"]})
        reply = client("GET", f"login/callback?{query}&state=x", Cookie=started.cookie)
        assert reply.headers["Location"] == "/?login=stale" and session_of(reply) is None


def test_a_session_ends_with_the_token_of_the_issuer(suite: Suite, issuer: Published) -> None:
    with Client(suite) as client:

        def logged_in() -> str | None:
            started = begin(client)
            code = started.code(issuer, exp=int(time.time()) - 26)  # 30 s by which clocks may differ
            return session_of(come_back(client, started.cookie, code=code, state=started.query["state"]))

        session = wait_for(logged_in, "the token was in time")
        wait_for(lambda: client("GET", "me", Cookie=session).status == 401, "the session has ended")


def test_a_session_lasts_as_long_as_the_issuer_gives_it_new_tokens(suite: Suite, issuer: Published) -> None:
    """The browser gets nothing of them. The refusal of one ends the session, with the reason."""
    with Client(suite) as client:

        def soon() -> int:
            return int(time.time()) - 20  # and 30 s by which clocks may differ

        def logged_in(**claims: Any) -> str | None:
            started = begin(client)
            refresh = issuer.refresh_token(preferred_username="alice", groups=["ops"], **claims)
            code = started.code(issuer, refresh=refresh, exp=soon())
            reply = come_back(client, started.cookie, code=code, state=started.query["state"])
            assert refresh not in str(reply.headers)
            return session_of(reply)

        lasting = wait_for(logged_in, "the token was in time")
        me = client("GET", "me", Cookie=lasting)
        assert me.status == 200 and "refresh" not in str(me)
        assert me.body["groups"] == ["ops"]
        assert datetime.fromisoformat(me.body["expires"]).timestamp() > time.time() + 30
        session = wait_for(lambda: logged_in(exp=soon()), "the token was in time")
        issuer.refreshable.clear()  # an administrator has ended the sessions there

        def ended() -> Reply | None:
            reply = client("GET", "me", Cookie=session)
            return reply if reply.status == 401 else None

        assert "the issuer sso has ended the session" in wait_for(ended, "the session has ended").body["detail"]
        assert client("GET", "me", Cookie=lasting).status == 200  # its token is good for longer
        audit = [json.loads(line) for line in (suite.data / "logs" / "audit.log").read_text().splitlines()]
        refused = [line for line in audit if line["event"] == "audit.login.refused"]
        assert any("by the issuer sso" in line["what"] for line in refused)


def test_a_stream_ends_with_the_token_that_it_began_with(suite: Suite, issuer: Published) -> None:
    def begun() -> Iterator[tuple[str, dict[str, Any]]] | None:
        client = Client(suite, Authorization=f"Bearer {short(issuer, 4)}")
        if client("GET", "me").status != 200:
            return None  # it took too long
        events = client.events("addresses?watch=1")
        return events if next(events)[0] == "snapshot" else None

    assert end_of(wait_for(begun, "the token was in time")) == "login"


def short(issuer: Published, seconds: int) -> str:
    """Return a token that is good for some seconds."""
    return issuer.token(exp=int(time.time()) - 30 + seconds)  # 30 s by which clocks may differ


def test_events_are_followed_across_the_expiry_of_a_token_without_loss(
    suite: Suite, issuer: Published, tmp_path: Path
) -> None:
    """Another program puts a new token into the file of the context; `enmasse events -f` goes on with that."""
    file, out = tmp_path / "token", tmp_path / "out"
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    url, container = f"http://127.0.0.1:{8080 + suite.offset}", f"{tmp_path.name}-refused"

    def refuse(name: str) -> None:
        connection = BlockingConnection(
            suite.url, timeout=DEADLINE, user="bob", password=PASSWORD, allowed_mechs="PLAIN", container_id=container
        )
        try:
            with pytest.raises(LinkDetached):
                connection.create_receiver(name)
        finally:
            connection.close()

    def write(seconds: int) -> str:
        token = short(issuer, seconds)
        file.write_text(token)
        return token

    def seen() -> list[str]:
        return [json.loads(line)["address"] for line in out.read_text().splitlines()]

    file.touch(0o600)
    done = enmasse("context", "add", "by-token", url, "--password-file", file, env=environment)
    assert done.returncode == 0, done.stderr
    words = ("events", "-f", "--json", "--client", container, "--context", "by-token")
    refuse("a/one")

    def begun() -> tuple[str, Process] | None:
        token = write(6)
        with out.open("w") as stdout:
            process = start(COMMAND, *words, stdout=stdout.fileno(), environment=environment)
        wait_for(lambda: seen() or process.poll() is not None, "the first event, or it was too late")
        return (token, process) if seen() else None

    token, following = wait_for(begun, "the token was in time")
    try:
        with Client(suite, Authorization=f"Bearer {token}") as old:
            wait_for(lambda: old("GET", "me").status == 401, "the token has expired")
        refuse("a/two")  # while there is no stream
        write(3600)
        wait_for(lambda: seen() == ["a/one", "a/two"], "the event that came meanwhile")
        refuse("a/topic")
        wait_for(lambda: seen() == ["a/one", "a/two", "a/topic"], "the stream goes on")
    finally:
        following.terminate()
        following.wait(DEADLINE)


def test_an_issuer_that_is_away_lets_nobody_in_and_passwords_still_count(
    suite: Suite, issuer: Published, log_in: Any
) -> None:
    with Client(suite) as client:
        started = begin(client)
        code = started.code(issuer)
        issuer.close()
        reply = come_back(client, started.cookie, code=code, state=started.query["state"])
        assert reply.headers["Location"] == "/?login=unavailable" and session_of(reply) is None
    assert log_in("root")("GET", "me").body["user"] == "root"


def test_a_user_with_the_name_of_a_process_does_not_own_its_connections(suite: Suite, log_in: Any) -> None:
    root, console = log_in("root"), log_in("console")
    (there, *_) = wait_for(lambda: root.items("connections?inside=true&user=console"))
    assert console.items("connections?inside=true") == []
    path = f"connections/{of(there['id'])}"
    assert [console(method, path).status for method in ("GET", "DELETE")] == [404, 404]
    assert root("GET", path).status == 200


def test_a_user_with_view_of_one_address_sees_nothing_of_another(suite: Suite, log_in: Any) -> None:
    root, cat = log_in("root"), log_in("cat")

    def counts(name: str) -> tuple[int | None, int]:
        """Messages of a queue as its broker reports them, and all that came as the router does: two reports."""
        stats = cat("GET", f"addresses/{of(name)}").body["stats"]
        return (None if stats["size"] is None else stats["messages"]), stats["totals"]["in"]

    def settlements(connection: str) -> list[tuple[int, int]]:
        links = cat.items(f"connections/{of(connection)}/links")
        return [(each["totals"]["accepted"], each["unsettled"]) for each in links]

    wait_for(lambda: counts("a/one")[0] is not None)
    messages, total = counts("a/one")
    with contextlib.ExitStack() as stack:
        pat = walking.amqp(suite, "pat")
        stack.callback(pat.close)
        pat.create_sender("a/one").send(Message("one"))
        job = root("POST", f"addresses/{of('a/two')}/purge", {}).body["id"]
        (shared,) = wait_for(lambda: cat.items("connections?user=pat"))
        wait_for(lambda: counts("a/one") == ((messages or 0) + 1, total + 1) and None not in counts("a/two"))
        wait_for(lambda: cat("GET", f"jobs/{job}").body["state"] == "done")
        # A look of the router between arrival and settlement shows the link with its message unsettled.
        wait_for(lambda: settlements(shared["id"]) == [(1, 0)])
        places = {
            "addresses": ["a/one"], "flavors": [QUEUE["flavor"]], "users": ["cat"], "connections": [shared["id"]],
            "brokers": [f"{QUEUE['flavor']}-0"], "components": ["router-0"], "jobs": [job],
        }  # fmt: skip
        before = walking.read(cat, places)
        streams, all_streams = walking.Streams(suite, cat), walking.Streams(suite, root)
        hidden = walking.fill(suite, root, pat, stack, all_streams)

        shown = walking.read(root, places)
        for path in ("addresses", "connections", "links", "events", "sessions", "subscriptions", "retained", "jobs"):
            assert WORD in json.dumps(shown[path].body), f"{path} has nothing that is hidden"
        after = walking.read(cat, places)
        for path, reply in (after | walking.searches(cat, WORD)).items():
            assert WORD not in f"{reply.body} {reply.headers}", path
        for path, reply in before.items():
            now = after[path]
            assert reply.headers["ETag"] == now.headers["ETag"], path
            assert walking.settled(reply.body) == walking.settled(now.body), path
        for path, reply in walking.searches(cat, WORD).items():
            assert (reply.status, reply.body["items"], reply.body["total"]) == (200, [], 0), path
        for path, methods in walking.document(cat).items():
            kind = path.partition("/")[0]
            if "{" in path and kind in hidden:
                there, none = (walking.touched(cat, path, methods, value) for value in hidden[kind])
                assert there == none and {status for status, _ in there.values()} <= {403, 404}, path
        for path in ("/metrics", "/api/status", "/api/ready"):
            assert cat.at("GET", path).status == 403 and root.at("GET", path).status == 200

        walking.change(suite, root, stack)
        visible: dict[str, dict[str, Any]] = {
            "addresses": {"name": "a/topic"}, "flavors": {"name": "marker"}, "connections": {"user": "cat"},
            "links": {"address": "a/topic"}, "events": {"user": "cat"}, "sessions": {"user": "cat"},
            "subscriptions": {"user": "cat"}, "retained": {"topic": "a/topic/cat"},
        }  # fmt: skip
        for path, row in visible.items():
            wait_for(partial(streams.seen, path, **row), f"{path}: {row}")
        cat("POST", "logout")
        streams.ended()
        assert WORD not in json.dumps(streams.events) and WORD in json.dumps(all_streams.events)
        assert not streams.changed("connections", id=shared["id"]), "traffic of a link that cat may not view"
        assert not streams.changed("flavors", name=QUEUE["flavor"]), "an address that cat may not view has it"
        root("POST", "logout")
        all_streams.ended()


def stated(user: str, password: str = PASSWORD) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_scrapers_state_user_and_password_with_each_request(suite: Suite) -> None:
    with Client(suite) as client:
        assert client.at("GET", "/metrics", **stated("root")).status == 200
        assert client.at("GET", "/api/status", **stated("root")).status == 200
        assert client.at("GET", "/metrics", Origin="http://a.example", **stated("root")).status == 403
        assert client.at("GET", "/metrics", **stated("cat")).status == 403
        for wrong in (stated("bob", "wrong"), {"Authorization": "Basic ?"}, {"Authorization": "Basic Ym9i"}):
            assert client.at("GET", "/metrics", **wrong).status == 401
        assert client.at("POST", "/api/scale", {"service": "router", "count": 1}, **stated("cat")).status == 403


def test_scripts_state_user_and_password_with_each_request(suite: Suite) -> None:
    with Client(suite) as client:
        me = client("GET", "me", **stated("root"))
        assert (me.body["user"], me.body["how"], me.body["csrf"]) == ("root", "bearer", None)
        assert client("PUT", "addresses/by-script", {"type": "anycast"}, **stated("root")).status == 201
        assert client("DELETE", "addresses/by-script", If_Match="*", **stated("root")).status < 300
        assert client("PUT", "addresses/elsewhere", {"type": "anycast"}, **stated("cat")).status == 404
        other_site = client("DELETE", "addresses/open", Origin="http://a.example", **stated("root"))
        assert other_site.status == 403, "a browser may send a password that it keeps"
        assert client("GET", "me", **stated("root", "guessed")).status == 401


def test_errors_of_a_change_name_no_address_that_the_caller_may_not_view(log_in: Any) -> None:
    root, dan = log_in("root"), log_in("dan")
    covers = dan("PUT", "addresses/b", TOPIC)
    assert covers.status == 422 and "another address" in covers.body["detail"] and "secret" not in str(covers.body)
    checked = dan("POST", "config", {"kind": "addresses", "set": {"b": TOPIC}})
    assert checked.body["errors"] and "secret" not in str(checked.body)
    secret, dead = f"addresses/{of('b/secret')}", f"addresses/{of('d/dead')}"
    assert root("PATCH", secret, {"deadletter": "d/dead"}, If_Match="*").status == 200
    needed = dan("DELETE", dead, If_Match="*")
    assert needed.status == 422 and needed.body["errors"] and "secret" not in str(needed.body)
    assert "b/secret" in str(root("DELETE", dead, If_Match="*").body), "who may view it is told"
    assert root("PATCH", secret, {"deadletter": None}, If_Match="*").status == 200
    for target in ("b/secret", "b/none"):
        body = {"kind": "addresses", "set": {"d/dead": {**QUEUE, "deadletter": target}}}
        assert dan("POST", "config", body).status == 403, "whether there is such an address is not told"
