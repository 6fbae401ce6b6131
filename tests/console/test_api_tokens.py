"""API tokens: made, used, listed and removed over REST and by commands."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection

from enmasse.identity.login import Login
from enmasse.identity.principal import Principal
from enmasse.identity.user_directory import UserDirectory
from enmasse.model.feeds import GrantedUser, PermissionChanges
from enmasse.model.users import TokenFacts
from enmasse.testing import Suite, running
from services.console.door.authserv_client import Authserv
from services.console.door.browser_sessions import BrowserSession
from services.console.door.gate import Gate
from tests.cli.running import enmasse
from tests.console.client import Client, Reply
from tests.console.test_logins import allow, user
from tests.console.walking import PASSWORD, QUEUE
from tests.kit.waiting import wait_for

EVERYTHING = allow("view", "manage", "send", "recv", on="#")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    users = {"root": user(EVERYTHING), "ann": user(allow("view", "manage", on="a/#")), "bob": user()}
    addresses = {"a/one": QUEUE, "b/two": QUEUE}
    with running(tmp_path_factory.mktemp("api-tokens"), addresses, options=("--without", "mqtt")) as suite:
        (suite.config / "users.json").write_text(json.dumps(users))
        suite.up()
        yield suite
        assert suite.down() == 0


@pytest.fixture
def ann(suite: Suite) -> Iterator[Client]:
    with Client(suite) as client:
        assert client.log_in("ann", PASSWORD).status == 200
        yield client


def made(client: Client, name: str, **more: Any) -> str:
    reply = client("POST", "tokens", {"name": name, **more})
    assert reply.status == 201, reply
    return str(reply.body["secret"])


def by(suite: Suite, secret: str, method: str, path: str, body: Any = None, **headers: str) -> Reply:
    with Client(suite, Authorization=f"Bearer {secret}") as client:
        return client(method, path, body, **headers)


def test_a_token_has_the_rights_of_its_user_until_it_is_removed(suite: Suite, ann: Client) -> None:
    secret = made(ann, "ci")
    me = by(suite, secret, "GET", "me").body
    assert (me["user"], me["how"], me["administrator"]) == ("ann", "token", False)
    assert [it["name"] for it in by(suite, secret, "GET", "addresses").body["items"]] == ["a/one"]
    assert by(suite, secret, "PUT", "addresses/a%2Fthree", QUEUE).status == 201
    assert by(suite, secret, "PUT", "addresses/b%2Fthree", QUEUE).status == 404
    with_basic = base64.b64encode(f"ann:{secret}".encode()).decode()
    with Client(suite, Authorization=f"Basic {with_basic}") as client:
        assert client("GET", "me").body["how"] == "token"
    of_another = base64.b64encode(f"root:{secret}".encode()).decode()
    with Client(suite, Authorization=f"Basic {of_another}") as client:
        assert client("GET", "me").status == 401
    (row,) = ann.items("tokens?name=ci")
    assert (row["user"], row["expires"], row["readOnly"]) == ("ann", None, False) and row["used"] is not None
    assert "secret" not in row
    stored = (suite.config / "users.json").read_text()
    assert secret not in stored and base64.b64encode(hashlib.sha256(secret.encode()).digest()).decode() in stored
    assert ann("DELETE", "tokens/ann%2Fci").status == 204
    assert by(suite, secret, "GET", "me").status == 401, "at once, although it was just accepted"


def test_a_stream_ends_with_its_token(suite: Suite, ann: Client) -> None:
    secret = made(ann, "stream")
    with Client(suite, Authorization=f"Bearer {secret}") as client:
        events = client.events("addresses?watch=1")
        assert next(events)[0] == "snapshot"
        assert ann("DELETE", "tokens/ann%2Fstream").status == 204
        ends = [data["reason"] for name, data in events if name == "end"]
    assert ends == ["login"]


def test_a_read_only_token_changes_nothing(suite: Suite, ann: Client) -> None:
    secret = made(ann, "reader", readOnly=True)
    assert by(suite, secret, "GET", "addresses").status == 200
    for method, path, body in (
        ("PUT", "addresses/a%2Ffour", QUEUE), ("DELETE", "addresses/a%2Fone", None), ("POST", "tokens", {"name": "x"}),
        ("DELETE", "tokens/ann%2Freader", None),
    ):  # fmt: skip
        refused = by(suite, secret, method, path, body, If_Match="*")
        assert refused.status == 403 and "reader is read-only" in refused.body["detail"], (method, path)
    assert ann("DELETE", "tokens/ann%2Freader").status == 204


def test_a_token_makes_no_other_and_begins_no_session(suite: Suite, ann: Client) -> None:
    secret = made(ann, "parent")
    assert by(suite, secret, "POST", "tokens", {"name": "child"}).status == 403
    with Client(suite) as client:
        assert client("POST", "login", {"user": "ann", "password": secret}).status == 401
    with pytest.raises(ConnectionException):
        BlockingConnection(f"127.0.0.1:{5672 + suite.offset}", user="ann", password=secret, allowed_mechs="PLAIN")
    assert by(suite, secret, "DELETE", "tokens/ann%2Fparent").status == 204, "it may remove itself"


def test_a_token_changes_no_users(suite: Suite) -> None:
    with Client(suite) as root:
        root.log_in("root", PASSWORD)
        secret = made(root, "maker")
        for method, name, body in (
            ("PUT", "heir", {"password": "outlives-it-1", "permissions": []}),
            ("PUT", "root", {"password": "other-word-1"}), ("DELETE", "bob", None),
        ):  # fmt: skip
            refused = by(suite, secret, method, f"users/{name}", body, If_Match="*")
            assert refused.status == 403 and "changes no users" in refused.body["detail"], (method, name)
        assert root("DELETE", "tokens/root%2Fmaker").status == 204


def test_a_removed_user_is_refused_before_the_feed_tells_of_it() -> None:
    users = UserDirectory()
    ann, bob = (GrantedUser(tokens={"ci": TokenFacts(id=it, created=1)}) for it in "ab")
    users.take(PermissionChanges(full=True, users={"ann": ann, "bob": bob}))
    gate = Gate(users, cast(Authserv, None), None)

    def session(name: str, id: str) -> BrowserSession:
        return gate.sessions.begin(Login(Principal(name), credentials=id, token="ci"))

    of_ann, of_bob = session("ann", "a"), session("bob", "b")
    gate.sessions.remember("Bearer x", None, of_ann.login)
    gate.sessions.remember("Bearer y", None, of_bob.login)
    assert gate.of_session(of_ann) is not None
    gate.withdraw("ann", "default")
    assert gate.of_session(of_ann) is None and gate.sessions.token("Bearer x", None) is None
    assert gate.of_session(of_bob) is not None and gate.sessions.token("Bearer y", None) is not None
    gate.withdraw("bob", "default", "another")
    assert gate.of_session(of_bob) is not None
    gate.withdraw("bob", "default", "ci")
    assert gate.of_session(of_bob) is None
    users.take(PermissionChanges(full=False, users={"ann": msgspec.structs.replace(ann)}))
    assert gate.of_session(of_ann) is not None, "it was made again"


def test_a_former_password_is_refused_before_the_feed_tells_of_the_change() -> None:
    users = UserDirectory()
    users.take(PermissionChanges(full=True, users={"ann": GrantedUser(credentials="a")}))
    gate = Gate(users, cast(Authserv, None), None)
    by_password = gate.sessions.begin(Login(Principal("ann"), credentials="a"))
    by_certificate = gate.sessions.begin(Login(Principal("ann"), certified=True))
    gate.sessions.remember("Basic x", None, by_password.login)
    assert gate.of_session(by_password) is not None and gate.of_session(by_certificate) is not None
    gate.withdraw("ann", "default", None)
    assert gate.of_session(by_password) is None and gate.sessions.token("Basic x", None) is None
    assert gate.of_session(by_certificate) is not None
    users.take(PermissionChanges(full=False, users={"ann": GrantedUser(credentials="b")}))
    assert gate.of_session(gate.sessions.begin(Login(Principal("ann"), credentials="b"))) is not None


def test_who_may_make_and_see_tokens(suite: Suite, ann: Client) -> None:
    with Client(suite) as root:
        root.log_in("root", PASSWORD)
        secret = made(root, "of-bob", user="bob")
        assert by(suite, secret, "GET", "me").body["user"] == "bob"
        assert ("bob", "of-bob") in [(it["user"], it["name"]) for it in root.items("tokens")]
        assert ann("GET", "tokens").body["items"] == []
        assert ann("DELETE", "tokens/bob%2Fof-bob").status == 404
        assert ann("POST", "tokens", {"name": "x", "user": "bob"}).status == 403
        for name, status in (("of-bob", 409), ("a b", 400)):
            refused = root("POST", "tokens", {"name": name, "user": "bob"})
            fields = [(it["entry"], it["field"]) for it in refused.body["errors"]]
            assert (refused.status, fields) == (status, [("bob", "name")])
        for wrong in ({"name": "a b"}, {"name": ""}, {"name": "x", "days": 0}, {"name": "x", "more": 1}, {}):
            assert root("POST", "tokens", wrong).status == 400, wrong
        assert root("POST", "tokens", {"name": "x", "user": "nobody"}).status == 404
        entry = root("GET", "users/bob").body["entry"]
        refused = root("PUT", "users/bob", {**entry, "tokens": {}}, If_Match="*")
        assert refused.status == 400 and "tokens" in refused.body["detail"]
        assert root("PUT", "users/bob", {**entry, "password": "another-one-1"}, If_Match="*").status == 200
        assert by(suite, secret, "GET", "me").status == 200, "a change of the entry keeps it"
        assert root("DELETE", "users/bob", If_Match="*").status == 204
        assert by(suite, secret, "GET", "me").status == 401
        assert root("PUT", "users/bob", {"permissions": []}).status == 201
        assert by(suite, secret, "GET", "me").status == 401, "of a user of that name before"


def test_a_user_has_twenty_tokens_at_most(suite: Suite, ann: Client) -> None:
    for number in range(20):
        secret = made(ann, f"t{number}")
        assert by(suite, secret, "GET", "me").status == 200, "authserv knows it when it is shown"
    refused = ann("POST", "tokens", {"name": "one-more"})
    assert refused.status == 422 and "20 API tokens at most" in refused.body["detail"]
    for number in range(20):
        assert ann("DELETE", f"tokens/ann%2Ft{number}").status == 204


def test_an_expired_token_counts_no_more(suite: Suite, ann: Client) -> None:
    secret = made(ann, "short", days=1)  # not used yet: the console remembers a token that was accepted for a while
    (row,) = ann.items("tokens?name=short")
    file = suite.config / "users.json"
    users = json.loads(file.read_text())
    users["ann"]["tokens"]["short"]["expires"] = int(time.time()) - 1
    file.write_text(json.dumps(users))
    wait_for(lambda: ann.items("tokens?name=short") != [row], "the edit is in force")
    wait_for(lambda: by(suite, secret, "GET", "me").status == 401)
    assert ann("DELETE", "tokens/ann%2Fshort").status == 204


def test_commands(suite: Suite, tmp_path: Path) -> None:
    at = ("--port-offset", suite.offset)
    output = tmp_path / "token"
    missing = enmasse("token", "add", "script", *at)
    assert missing.returncode == 1 and "--user" in missing.stderr
    done = enmasse("token", "add", "script", "--user", "ann", "--days", 30, "--output", output, *at)
    assert done.returncode == 0 and done.stdout == "", done
    secret = output.read_text().strip()
    assert stat.S_IMODE(output.stat().st_mode) == 0o600 and re.fullmatch("enm_[A-Za-z0-9_-]{43}", secret)
    console = f"http://127.0.0.1:{8080 + suite.offset}"
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    words = ("context", "add", "there", console, "--user", "ann", "--password-file", output)
    assert enmasse(*words, env=environment).returncode == 0
    listed = enmasse("address", "list", "--context", "there", "--json", env=environment)
    assert listed.returncode == 0 and "a/one" in listed.stdout, listed
    (row,) = json.loads(enmasse("token", "list", "--user", "ann", "--json", *at).stdout)["items"]
    assert (row["user"], row["name"]) == ("ann", "script") and row["used"] is not None
    assert "script" in enmasse("token", "list", "--user", "ann", *at).stdout
    removed = enmasse("token", "remove", "script", "--user", "ann", *at)
    assert removed.returncode == 0 and removed.stdout == "removed token script of ann\n"
    assert by(suite, secret, "GET", "me").status == 401


def test_auditors_learn_the_token(suite: Suite, ann: Client) -> None:
    secret = made(ann, "audited")
    assert by(suite, secret, "PUT", "addresses/a%2Faudited", QUEUE).status == 201

    def lines(event: str) -> list[dict[str, Any]]:
        text = (suite.data / "logs" / "audit.log").read_text()
        return [line for line in map(json.loads, text.splitlines()) if line["event"] == event]

    def seen() -> bool:
        made = [line["what"] for line in lines("audit.token.changed") if line["outcome"] == "made"]
        by_token = [line for line in lines("audit.configuration.ordered") if line["who"] == "ann (token audited)"]
        logins = [line["what"] for line in lines("audit.login.accepted")]
        return (
            "API token audited of ann" in made
            and any("a/audited" in line["what"] for line in by_token)
            and "login by API token audited" in logins
        )

    wait_for(seen)
    assert secret not in (suite.data / "logs" / "audit.log").read_text()
    assert ann("DELETE", "tokens/ann%2Faudited").status == 204


def test_the_last_use_outlives_the_console(suite: Suite, ann: Client) -> None:
    secret = made(ann, "kept")
    assert by(suite, secret, "GET", "me").status == 200
    (row,) = ann.items("tokens?name=kept")
    file = suite.data / "console" / "token-uses.json"
    os.kill(suite.component("console")["pid"], signal.SIGTERM)
    wait_for(lambda: file.exists() and "ann/kept" in json.loads(file.read_text()))
    suite.wait_ready()
    with Client(suite) as root:
        wait_for(lambda: _logged_in(root))
        assert root.items("tokens?name=kept")[0]["used"] == row["used"]
        assert root("DELETE", "tokens/ann%2Fkept").status == 204


def _logged_in(client: Client) -> bool:
    try:
        return client.log_in("root", PASSWORD).status == 200
    except OSError:
        return False
