"""Contexts: commands that work on a suite elsewhere, whose console serves TLS and asks for a user."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from enmasse.testing import Suite, free_offset, free_port, running
from tests.cli.running import enmasse, on_a_terminal
from tests.console.test_logins import allow, user
from tests.console.walking import PASSWORD
from tests.kit.processes import COMMAND, start, start_service
from tests.kit.waiting import DEADLINE, wait_for

ADDRESSES = {
    "orders": {"type": "queue", "flavor": "small-persisted-queue"},
    "late": {"type": "queue", "flavor": "small-persisted-queue"},
    "news": {"type": "topic", "flavor": "small-persisted-topic"},
}
EVERYTHING = ("send", "recv", "view", "manage")


class Elsewhere:
    """A suite that is used as one on another machine, and a user's folder with contexts."""

    def __init__(self, suite: Suite, console: int, folder: Path) -> None:
        self.suite, self.console, self.folder = suite, console, folder
        self.ca = suite.data / "tls" / "ca.crt"
        self.password = folder / "password"
        self.password.write_text(PASSWORD)
        self.password.chmod(0o600)
        self.environment = {"XDG_CONFIG_HOME": str(folder / "config"), "HOME": str(folder)}
        self.urls = (
            f"https://localhost:{console}", "--amqp", f"amqps://localhost:{5671 + suite.offset}",
            "--mqtt", f"mqtts://localhost:{8883 + suite.offset}", "--ca", str(self.ca),
        )  # fmt: skip

    def __call__(
        self, *words: str | Path | int, status: int = 0, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = enmasse(*words, env=self.environment | (env or {}))
        assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
        return done

    def json(self, *words: str | Path | int, status: int = 0) -> Any:
        return json.loads(self(*words, "--json", status=status).stdout)

    @property
    def file(self) -> Path:
        return self.folder / "config" / "enmasse-contexts.json"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    users = {
        "root": user(allow(*EVERYTHING, on="#")),
        "ann": user(allow("view", "recv", on="orders")),
        "dash": user(allow("recv", on="$SYS/#")),
    }
    folder = tmp_path_factory.mktemp("contexts")
    with running(folder, ADDRESSES, options=("--tls", "auto")) as suite:
        (suite.config / "users.json").write_text(json.dumps(users))
        suite.up()
        settings = json.loads((suite.data / "run" / "console.json").read_text())
        port, tls = free_port(), suite.data / "tls"
        settings |= {"health": f"127.0.0.1:{free_port()}", "listen": f"127.0.0.1:{port}"}
        settings |= {"cert": str(tls / "server.crt"), "key": str(tls / "server.key")}
        file = folder / "console.json"
        file.write_text(json.dumps(settings))
        console = start_service("console", file)
        try:
            found = Elsewhere(suite, port, folder)
            found("context", "add", "there", *found.urls, "--user", "root", "--password-file", found.password)
            found("context", "use", "there")
            wait_for(lambda: enmasse("status", env=found.environment).returncode == 0, "the console answers")
            yield found
        finally:
            console.terminate()
            assert console.wait(DEADLINE) == 0
        assert suite.down() == 0


def test_contexts_are_added_chosen_listed_and_removed_and_hold_no_password(elsewhere: Elsewhere) -> None:
    assert elsewhere.file.stat().st_mode & 0o777 == 0o600 and PASSWORD not in elsewhere.file.read_text()
    elsewhere("context", "add", "other", "https://other.example", "--user", "bob")
    assert "other" in elsewhere("context", "add", "other", "https://x", status=1).stderr
    listed = elsewhere.json("context", "list")["contexts"]
    assert [(each["name"], each["current"]) for each in listed] == [("local", False), ("other", False), ("there", True)]
    assert "other.example" in elsewhere("context", "list").stdout
    elsewhere("context", "remove", "other")
    unknown = elsewhere("context", "use", "thare", status=2)
    assert "did you mean" in unknown.stderr.lower() and "[context.name.unknown]" in unknown.stderr
    open_to_all = elsewhere.folder / "open"
    open_to_all.write_text(PASSWORD)
    open_to_all.chmod(0o644)
    for words, reason in (
        (("https://a:b@host",), "no password in a URL"),
        (("http://192.0.2.1:8080",), "in the clear"),
        (("https://host/path",), "nothing after it"),
        (("ftp://host",), "expected https://"),
        (("https://host", "--mqtt", "mqtt://192.0.2.1"), "in the clear"),
        (("https://host", "--namespace", "x"), "or --namespace"),
        ((), "or --namespace"),
        (("https://host", "--password-file", str(open_to_all)), "chmod 600"),
    ):
        assert reason in elsewhere("context", "add", "wrong", *words, status=2).stderr
    elsewhere("context", "add", "local", "https://host", status=2)


def test_addresses_flavors_and_users_are_those_of_the_context(elsewhere: Elsewhere) -> None:
    done = elsewhere("address", "add", "made", "--type", "queue", "--flavor", "small-persisted-queue")
    assert done.stdout == "added made to context there\n"
    assert json.loads((elsewhere.suite.config / "addresses.json").read_text())["made"]["type"] == "queue"
    elsewhere("address", "add", "made", "--type", "anycast", status=1)
    assert elsewhere("address", "set", "made", "maxSize=1Mi").stdout == "changed made in context there\n"
    refused = elsewhere("address", "set", "made", "maxSise=1Mi", status=1)
    assert "made.maxSise" in refused.stderr and "[configuration.entry.invalid]" in refused.stderr
    shown = elsewhere.json("address", "show", "made")
    assert shown["configured"]["maxSize"] and shown["status"]["type"] == "queue"
    assert {each["name"] for each in elsewhere.json("address", "list")["addresses"]} >= {"made", "orders", "news"}
    assert elsewhere("address", "remove", "made").stdout == "removed made from context there\n"
    assert "did you mean" in elsewhere("address", "remove", "order", status=1).stderr.lower()

    elsewhere("flavor", "add", "more", "--template", "queue-inmemory", "MEMORY=64Mi")
    elsewhere("flavor", "set", "more", "MEMORY=128Mi")
    assert elsewhere.json("flavor", "show", "more")["templateParameters"]["MEMORY"]
    used = elsewhere("flavor", "remove", "small-persisted-queue", status=1)
    assert "3 addresses use" in used.stderr and "[flavor.addresses.present]" in used.stderr
    elsewhere("flavor", "remove", "more")
    assert "more" not in {each["name"] for each in elsewhere.json("flavor", "list")["flavors"]}

    listed = {each["name"]: each for each in elsewhere.json("user", "list")["users"]}
    assert listed["ann"]["password"] and listed["ann"]["permissions"] == [
        {"allow": ["view", "recv"], "addresses": ["orders"]}
    ]
    assert "orders" in elsewhere("user", "show", "ann").stdout
    checked = elsewhere.json("user", "check", "ann", "view", "orders")
    assert checked == {"allowed": True, "rule": "ann.permissions.0", "address": "orders"}
    assert "[user.operation.denied]" in elsewhere("user", "check", "ann", "send", "orders", status=1).stderr


def test_user_and_password_file_of_the_environment_win_over_the_context(elsewhere: Elsewhere) -> None:
    ann = {"ENMASSE_USER": "ann"}
    seen = elsewhere("address", "list", "--json", env=ann | {"ENMASSE_PASSWORD_FILE": str(elsewhere.password)})
    assert [row["name"] for row in json.loads(seen.stdout)["addresses"]] == ["orders"]
    missing = elsewhere("address", "list", status=2, env=ann).stderr
    named = elsewhere("address", "list", "--json", "--context", "there", env=ann)
    assert len(json.loads(named.stdout)["addresses"]) > 1, "a context that the option names keeps its user"
    assert "no password of user 'ann'" in missing and "ENMASSE_PASSWORD_FILE" in missing and "context there" in missing
    wrong = elsewhere.folder / "wrong"
    wrong.write_text("not the password")
    wrong.chmod(0o600)
    elsewhere("address", "list", status=4, env={"ENMASSE_PASSWORD_FILE": str(wrong)})


def test_users_are_added_changed_and_removed_in_a_context(elsewhere: Elsewhere) -> None:
    """The console hashes their passwords; who has done it is in the audit log of the suite."""
    file = elsewhere.suite.config / "users.json"
    assert elsewhere("user", "add", "@team").stdout == "added @team to context there\n"
    done = elsewhere("user", "add", "tom", "--password-file", elsewhere.password, "--group", "team")
    assert done.stdout == "added tom to context there\n"
    entry = json.loads(file.read_text())["tom"]
    assert PASSWORD not in file.read_text() and entry["password"] and entry["scram"]
    assert "[user.name.in-use]" in elsewhere("user", "add", "tom", "--generate", status=1).stderr
    done = elsewhere("user", "allow", "tom", "view,recv", "orders", "news/#")
    assert done.stdout == "allowed tom view,recv on orders, news/# in context there\n"
    elsewhere("user", "allow", "tom", "view,recv", "late")
    elsewhere("user", "deny", "tom", "recv", "news/secret")
    assert elsewhere.json("user", "show", "tom")["permissions"] == [
        {"allow": ["view", "recv"], "addresses": ["orders", "news/#", "late"]},
        {"deny": ["recv"], "addresses": ["news/secret"]},
    ]
    assert json.loads(file.read_text())["tom"]["password"] == entry["password"]
    elsewhere("context", "add", "as-tom", *elsewhere.urls, "--user", "tom")
    tom, old = ("--context", "as-tom"), {"ENMASSE_PASSWORD_FILE": str(elsewhere.password)}
    elsewhere("address", "show", "late", *tom, env=old)
    assert "[console.permission.denied]" in elsewhere("user", "remove", "root", *tom, status=1, env=old).stderr
    new = elsewhere.folder / "generated"
    new.write_text(elsewhere("user", "password", "tom", "--generate").stdout)
    new.chmod(0o600)
    elsewhere("address", "list", *tom, status=4, env=old)
    elsewhere("address", "list", *tom, env={"ENMASSE_PASSWORD_FILE": str(new)})
    elsewhere("context", "remove", "as-tom")
    assert "scram-sha-1" in elsewhere("user", "password", "tom", "--generate", "--scram-sha-1", status=2).stderr
    elsewhere("user", "remove", "@team")
    assert elsewhere("user", "remove", "tom").stdout == "removed tom from context there\n"
    assert "tom" not in json.loads(file.read_text())
    for words in (("remove", "tom"), ("allow", "tom", "view", "orders"), ("password", "tom", "--generate")):
        assert "[user.name.unknown]" in elsewhere("user", *words, status=1).stderr
    lines = [json.loads(line) for line in (elsewhere.suite.data / "logs" / "audit.log").read_text().splitlines()]
    ordered = [line for line in lines if line["event"] == "audit.configuration.ordered" and "tom" in str(line)]
    assert {line["who"] for line in ordered} == {"root"} and len(ordered) == 6


def test_the_configuration_of_a_context_is_checked(elsewhere: Elsewhere) -> None:
    assert elsewhere("config", "check").stdout.endswith("in force, 0 errors\n")
    file = elsewhere.suite.config / "addresses.json"
    before = file.read_text()
    try:
        file.write_text(json.dumps(json.loads(before) | {"wrong": {"type": "nonsense"}}))
        wait_for(lambda: enmasse("config", "check", env=elsewhere.environment).returncode == 1, "the error is found")
        done = elsewhere("config", "check", status=1)
        assert (
            "addresses.json" in done.stderr and "wrong" in done.stderr and "[configuration.file.invalid]" in done.stderr
        )
        (error,) = json.loads(elsewhere("config", "check", "--json", status=1).stdout)["errors"]
        assert (error["file"], error["entry"]) == ("addresses.json", "wrong")
        elsewhere("context", "add", "as-ann", *elsewhere.urls, "--user", "ann", "--password-file", elsewhere.password)
        assert (
            "wrong" not in elsewhere("config", "check", "--context", "as-ann", status=1).stderr
        )  # it may not view all
        elsewhere("context", "remove", "as-ann")
    finally:
        file.write_text(before)
    wait_for(lambda: enmasse("config", "check", env=elsewhere.environment).returncode == 0, "it is corrected")


def test_files_here_are_checked_against_the_suite_of_the_context(elsewhere: Elsewhere, tmp_path: Path) -> None:
    """Entries may name what is in the suite, or in the other files; nothing is changed there."""

    def write(name: str, entries: dict[str, Any]) -> None:
        (tmp_path / name).write_text(json.dumps(entries, indent=1))

    before = {file.name: file.read_text() for file in elsewhere.suite.config.iterdir() if file.is_file()}
    there = json.loads(before["flavors.json"])
    small = "small-persisted-queue"
    more = {"type": "queue", "flavor": small, "deadletter": "orders"}
    write("addresses.json", {"fresh": {"type": "queue", "flavor": "fresh"}, "more": more})
    write("flavors.json", {small: there[small], "fresh": {"type": "queue", "templateName": "queue-inmemory"}})
    write("users.json", {"carl": {"groups": [], "permissions": [{"allow": ["recv"], "addresses": ["fresh"]}]}})
    write("brokers.json", {})
    done = elsewhere("config", "check", tmp_path)
    assert done.stdout == (
        f"{tmp_path}: 2 addresses, 2 flavors, 1 user valid, 0 errors, checked against the suite of context there; "
        "brokers.json without that suite\n"
    )
    assert "orders" in elsewhere("config", "check", tmp_path, "--context", "local", status=1).stderr  # DIR by itself

    queue = {"type": "queue", "flavor": small}
    write("addresses.json", {"q": queue, "ne.ws": 1, "n": {**queue, "flavour": small}, "a": {"type": "anycast"}})
    write("flavors.json", {small: {**there[small], "type": "topic", "templateName": "topic-persisted"}})
    done = elsewhere("config", "check", tmp_path, status=1)
    assert "addresses.json:10: n.flavour: unknown key" in done.stderr and "[configuration.file.invalid]" in done.stderr
    assert "addresses.json:6: ne.ws: must be an object" in done.stderr
    assert f"flavors.json:2: {small}: its type cannot change while addresses use it" in done.stderr
    found = elsewhere.json("config", "check", tmp_path, status=1)
    assert found["context"] == "there" and found["valid"]["addresses"] == 1 and found["valid"]["flavors"] == 0
    assert {(each["file"], each["entry"], each["line"]) for each in found["errors"]} == {
        ("addresses.json", "q", 4), ("addresses.json", "ne.ws", 6), ("addresses.json", "n", 10),
        ("flavors.json", small, 2),
    }  # fmt: skip

    (tmp_path / "flavors.json").write_text('{"a": {}, "a": {}}')
    (tmp_path / "addresses.json").write_text("{")
    done = elsewhere("config", "check", tmp_path, status=1)
    assert "flavors.json:1: a: occurs twice" in done.stderr and "addresses.json:1: is not JSON" in done.stderr
    after = {file.name: file.read_text() for file in elsewhere.suite.config.iterdir() if file.is_file()}
    assert after == before


def test_files_are_checked_with_the_permissions_of_the_user(elsewhere: Elsewhere, tmp_path: Path) -> None:
    """Who manages some addresses checks these, with flavors that are there; others are refused with the file's name."""
    elsewhere("user", "add", "dev", "--password-file", elsewhere.password)
    elsewhere("user", "allow", "dev", "view,manage", "team/#")
    elsewhere("context", "add", "as-dev", *elsewhere.urls, "--user", "dev", "--password-file", elsewhere.password)
    here = ("config", "check", tmp_path, "--context", "as-dev")
    flavors = json.loads((elsewhere.suite.config / "flavors.json").read_text())
    try:
        (tmp_path / "flavors.json").write_text(json.dumps(flavors))
        (tmp_path / "addresses.json").write_text('{"team/a": {"type": "queue", "flavor": "small-persisted-queue"}}')
        assert "1 address, 6 flavors valid, 0 errors" in elsewhere(*here).stdout
        (tmp_path / "addresses.json").write_text('{"orders": {"type": "anycast"}}')
        refused = elsewhere(*here, status=1).stderr
        assert "context as-dev: addresses.json: there is no address 'orders', or you may not view it" in refused
        (tmp_path / "addresses.json").write_text("{}")
        (tmp_path / "flavors.json").write_text('{"mine": {"type": "queue", "templateName": "queue-inmemory"}}')
        refused = elsewhere(*here, status=1).stderr
        assert "flavors.json: this needs the permission `manage` on `#`" in refused
    finally:
        elsewhere("context", "remove", "as-dev")
        elsewhere("user", "remove", "dev")


def test_messages_go_through_the_listeners_of_the_context(elsewhere: Elsewhere) -> None:
    assert "1 accepted" in elsewhere("send", "orders", "one").stdout
    (waiting,) = elsewhere.json("address", "browse", "orders")["items"]
    assert waiting["body"] == "one"
    assert elsewhere("address", "move", "orders", "late").stdout == "moved 1 of orders\n"
    assert elsewhere("receive", "late", "--count", "1").stdout == "one\n"
    assert "1 acknowledged" in elsewhere("publish", "news/today", "sun", "--retain").stdout
    assert elsewhere("subscribe", "news/#", "--count", "1").stdout == "sun\n"
    assert [each["topic"] for each in elsewhere.json("retained", "list", "news/#")["retained"]] == ["news/today"]
    assert elsewhere("retained", "clear", "news/today").stdout == "cleared 1 retained message\n"
    stored = ("--client-id", "phone", "--session-expiry", "60")
    elsewhere("subscribe", "news", *stored, "--timeout", "0.1")

    def left() -> dict[str, Any] | None:
        """Return the session when its client has gone."""
        (found,) = [each for each in elsewhere.json("subscription", "list")["subscriptions"] if each["kind"] == "mqtt"]
        return None if found["connected"] else found

    session = wait_for(left, "the session without its client")
    assert session["client"] == "~root/phone" and list(session["filters"]) == ["news"]
    assert elsewhere.json("subscription", "show", session["id"]) == session
    (client,) = elsewhere.json("mqtt", "clients", "--all")["clients"]
    assert (client["client"], client["connected"]) == ("~root/phone", False)
    elsewhere("subscription", "delete", session["id"])
    assert elsewhere.json("subscription", "list")["subscriptions"] == []
    wait_for(lambda: "phone" not in elsewhere("connection", "list", "--json").stdout, "its connection is gone")
    assert "[mqtt.client.unknown]" in elsewhere("mqtt", "disconnect", "phone", "--owner", "root", status=1).stderr


def test_connections_events_and_rates_are_those_of_the_context(elsewhere: Elsewhere) -> None:
    receiving = start(COMMAND, "receive", "orders", "--container", "seen", environment=elsewhere.environment)
    try:

        def found() -> list[str]:
            rows = elsewhere.json("connection", "list")["items"]
            return [each["id"] for each in rows if each["container"] == "seen"]

        (id,) = wait_for(found)
        assert "orders" in elsewhere("connection", "show", id).stdout
        rows = wait_for(lambda: elsewhere.json("top", "--once"), "rates")
        assert "seen" in {each["container"] for each in rows["connections"]}
        assert {each["name"] for each in rows["addresses"]} >= {"orders", "late", "news"}
        assert "orders" in elsewhere("top", "--once").stdout
        assert elsewhere("connection", "close", id).stdout == f"closed {id}\n"
    finally:
        receiving.terminate()
        receiving.wait(DEADLINE)
    elsewhere("send", "nothing/here", "x", status=4)
    wait_for(lambda: "nothing/here" in elsewhere("events", "--address", "nothing/*").stdout, "the refusal")
    (event,) = map(json.loads, elsewhere("events", "--address", "nothing/here", "--json").stdout.splitlines())
    assert event["user"] == "root" and event["condition"] == "amqp:not-found"
    assert elsewhere("events", "--address", "elsewhere").stdout == ""


def test_status_and_version_are_those_of_the_context(elsewhere: Elsewhere) -> None:
    status = elsewhere.json("status", "--wait", "60")
    assert status["ready"] and {each["name"] for each in status["addresses"]} >= set(ADDRESSES)
    assert elsewhere.json("version")["suite"]


def test_users_see_and_change_what_they_may(elsewhere: Elsewhere) -> None:
    elsewhere("context", "add", "as-ann", *elsewhere.urls, "--user", "ann")
    ann = ("--context", "as-ann")
    login = {"ENMASSE_PASSWORD_FILE": str(elsewhere.password)}
    done = elsewhere("address", "list", "--json", *ann, env=login)
    assert [each["name"] for each in json.loads(done.stdout)["addresses"]] == ["orders"]
    denied = elsewhere("address", "set", "orders", "maxSize=1Mi", *ann, status=1, env=login)
    assert "[console.permission.denied]" in denied.stderr
    assert (
        "[address.name.unknown]" in elsewhere("address", "set", "late", "maxSize=1", *ann, status=1, env=login).stderr
    )
    assert "[server.operation.denied]" in elsewhere("send", "orders", "x", *ann, status=4, env=login).stderr
    assert "[user.password.missing]" in elsewhere("address", "list", *ann, status=2).stderr
    wrong = elsewhere.folder / "wrong"
    wrong.write_text("wrong")
    wrong.chmod(0o600)
    refused = elsewhere("address", "list", *ann, status=4, env={"ENMASSE_PASSWORD_FILE": str(wrong)})
    assert "[server.login.refused]" in refused.stderr
    asked = on_a_terminal("address", "list", *ann, env=elsewhere.environment, answer=("(as-ann): ", f"{PASSWORD}\n"))
    assert "Password of ann (as-ann)" in asked and "orders" in asked and PASSWORD not in asked
    elsewhere("context", "remove", "as-ann")


def test_the_session_of_a_command_ends_with_it(tmp_path: Path) -> None:
    """A user has a hundred sessions at most, and the oldest one ends: that of a browser would."""
    seen: list[tuple[str, str, str | None, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.command, self.path, self.headers["Cookie"], self.headers["X-CSRF-Token"]))
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            content = b'{"csrf": "token", "items": [], "next": null}'
            self.send_response(200)
            self.send_header("Set-Cookie", "enmasse-session=key; Path=/")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever).start()
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        added = ("context", "add", "fake", url, "--user", "root", "--password-file", password)
        assert enmasse(*added, env=environment).returncode == 0
        assert enmasse("connection", "list", "--context", "fake", env=environment).returncode == 0
    finally:
        server.shutdown()
        server.server_close()
    assert seen == [
        ("POST", "/api/v1/login", None, None),
        ("GET", "/api/v1/connections?limit=1000", "enmasse-session=key", "token"),
        ("POST", "/api/v1/logout", "enmasse-session=key", "token"),
    ]


def test_what_cannot_work_elsewhere_is_refused(elsewhere: Elsewhere) -> None:
    refused: tuple[tuple[str, ...], ...] = (
        ("down",), ("logs",), ("backup", str(elsewhere.folder / "backup")),
    )  # fmt: skip
    for words in refused:
        done = elsewhere(*words, status=2)
        assert "[context.command.unsuitable]" in done.stderr and "--context local" in done.stderr, words
    of_variable = elsewhere("logs", env={"ENMASSE_DATA": str(elsewhere.folder)}, status=2)
    assert "[context.command.unsuitable]" in of_variable.stderr and not of_variable.stdout
    elsewhere("context", "add", "bare", f"https://localhost:{elsewhere.console}", "--ca", elsewhere.ca)
    for words, option in ((("send", "orders", "x"), "--amqp"), (("publish", "news", "x"), "--mqtt")):
        assert option in elsewhere(*words, "--context", "bare", status=2).stderr
    assert "[server.login.missing]" in elsewhere("address", "list", "--context", "bare", status=4).stderr
    elsewhere("context", "remove", "bare")
    elsewhere("context", "add", "untrusted", f"https://localhost:{elsewhere.console}")
    assert "--ca" in elsewhere("address", "list", "--context", "untrusted", status=4).stderr
    elsewhere("context", "remove", "untrusted")


def test_a_command_line_that_names_a_suite_wins_over_the_current_context(elsewhere: Elsewhere) -> None:
    here = ("--port-offset", elsewhere.suite.offset)
    assert elsewhere("address", "show", "orders", "--json", *here).stdout
    assert "another option" in elsewhere("address", "list", "--context", "there", *here, status=2).stderr
    nothing = {"ENMASSE_PORT_OFFSET": str(free_offset())}
    assert "not running" in elsewhere("status", "--context", "local", status=4, env=nothing).stderr
    assert "not running" in elsewhere("--context", "local", "status", status=4, env=nothing).stderr
    unknown = elsewhere("status", status=2, env={"ENMASSE_CONTEXT": "nowhere"}).stderr
    assert "[context.name.unknown]" in unknown and "there is local, there; `enmasse context add nowhere" in unknown
    elsewhere.file.chmod(0o600)
    content = elsewhere.file.read_text()
    elsewhere.file.write_text("{")
    assert "[context.file.unusable]" in elsewhere("status", status=2).stderr
    elsewhere.file.write_text(content)
