"""The audit log: what a running suite writes there, that no log has a password, and its parts alone."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enmasse.logs import audit, log
from enmasse.model.configuration import Applied, AppliedState
from enmasse.supervisor.children.logfile import rotate_log
from services.configserv.changes import log_changes
from tests.authserv.running import Running, ask, user
from tests.cli.running import Up, enmasse, wait_for

PASSWORDS = ("first-s3cret", "second-s3cret", "wrong-s3cret")
FIRST, SECOND, WRONG = PASSWORDS


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The audit file of this process."""
    found = tmp_path / "audit.log"
    monkeypatch.setattr(log, "_audit_file", str(found))
    return found


def test_a_running_suite(config: Path, tmp_path: Path) -> None:
    (config / "addresses.json").write_text('{"a": {"type": "anycast"}, "b": {"type": "anycast"}}')
    secrets = {}
    for number, password in enumerate(PASSWORDS):
        secrets[password] = tmp_path / f"password-{number}"
        secrets[password].write_text(password + "\n")
    assert enmasse("user", "add", "alice", "--password-file", secrets[FIRST], "--config", config).returncode == 0
    with Up(config, tmp_path / "data", fake=False, options=("--log-level", "debug")) as up:
        up.until_ready()
        wait_for(lambda: up.runs("authserv"), "authserv")
        file = up.data / "logs" / "audit.log"

        def login(password: str) -> int:
            env = {"ENMASSE_USER": "alice", "ENMASSE_PASSWORD_FILE": str(secrets[password])}
            return enmasse("publish", "a", "x", "-q", "0", "--port-offset", up.offset, env=env).returncode

        def events(event: str, **facts: Any) -> list[dict[str, Any]]:
            found = [line for line in lines(file) if line["event"] == event]
            return [line for line in found if facts.items() <= line.items()]

        assert login(FIRST) == 0 and login(WRONG) == 4
        port = json.loads((up.data / "run" / "authserv.json").read_text())["listen"].rpartition(":")[2]
        assert not ask(int(port), "alice", WRONG).opened and not ask(int(port), WRONG, WRONG).opened
        user_options = ("--config", config)
        assert enmasse("user", "password", "alice", "--password-file", secrets[SECOND], *user_options).returncode == 0
        assert enmasse("user", "allow", "alice", "send", "a", *user_options).returncode == 0
        assert enmasse("user", "add", "@devices", *user_options).returncode == 0
        assert enmasse("address", "remove", "b", "--force", "--port-offset", up.offset).returncode == 0
        assert enmasse("scale", "router=1", "--port-offset", up.offset).returncode == 0
        assert enmasse("mqtt", "disconnect", "nobody", "--port-offset", up.offset).returncode == 1
        assert up.http("/api/status", Authorization="Bearer " + WRONG)[0] == 401
        expected: list[Callable[[], Any]] = [
            lambda: events("audit.login.accepted", who="alice", outcome="accepted"),
            lambda: events("audit.login.refused", who="alice", outcome="refused"),
            lambda: events("audit.login.refused", who=None),
            lambda: any("alice" in line.get("passwords", ()) for line in events("audit.users.changed")),
            lambda: any("alice" in line.get("permissions", ()) for line in events("audit.users.changed")),
            lambda: any("@devices" in line.get("added", ()) for line in events("audit.users.changed")),
            lambda: events("audit.configuration.changed", removed=1, **{"from": "addresses.json"}),
            lambda: events("audit.messages.forced", who="supervisor", what="delete with messages: b"),
            lambda: events("audit.suite.ordered", who="operator", what="scale router=1"),
            lambda: events("audit.suite.ordered", who="operator", what="delete with messages: b", addresses=1),
            lambda: events("audit.session.ordered", who="operator"),
            lambda: events("audit.request.refused", who=None, what="GET /api/status", **{"from": "127.0.0.1"}),
        ]
        for number, found in enumerate(expected):
            wait_for(found, f"audit event {number}")
        assert all({"who", "from", "what", "outcome", "service", "timestamp"} <= line.keys() for line in lines(file))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        internal = [json.loads(path.read_text())["secret"] for path in (up.data / "run").glob("*.credential")]
        internal.append((up.data / "run" / "operator.secret").read_text().strip())
        assert len(internal) > 3
        assert up.end() == 0
    logs = [path for path in (up.data / "logs").rglob("*") if path.is_file()]
    assert len(logs) > 5
    hashes = [text for entry in json.loads((config / "users.json").read_text()).values() for text in _hashes(entry)]
    for path in logs:
        text = path.read_text()
        assert not [secret for secret in (*PASSWORDS, *internal, *hashes) if secret in text], path
    shown = "\n".join(up.lines + up.errors)
    assert not [secret for secret in (*PASSWORDS, *internal, *hashes) if secret in shown]


def _hashes(entry: dict[str, Any]) -> list[str]:
    verifiers = entry.get("scram", {}).values()
    keys = [value for each in verifiers for value in each.values() if isinstance(value, str)]
    return [*keys, *([entry["password"]] if "password" in entry else [])]


def test_repeated_logins_are_counted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Running() as service:
        service.users({"alice": user(FIRST)})
        for _ in range(4):
            assert ask(service.port, "alice", FIRST).opened
        (line,) = lines(file)
        assert (line["event"], line["who"], line["what"], line["count"]) == (
            "audit.login.accepted", "alice", "login by PLAIN", 1,
        )  # fmt: skip
        monkeypatch.setattr(audit, "INTERVAL", 0.0)
        service.service.logins.audit.write_repeated()
        assert [line["count"] for line in lines(file)] == [1, 3]


def test_repeats_lose_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    repeats: audit.RepeatedEvents[str] = audit.RepeatedEvents(lambda: now[0])
    assert [repeats.count("a") for _ in range(3)] == [1, 0, 0]
    assert repeats.due() == []
    now[0] = audit.INTERVAL
    assert repeats.due() == [("a", 2)] and repeats.due() == []
    assert repeats.count("a") == 0
    now[0] *= 3
    assert repeats.count("a") == 2
    monkeypatch.setattr(audit, "MAX_KEYS", 2)
    assert [repeats.count(key) for key in "abc"] == [0, 1, 1]
    assert repeats.due() == [("a", 1)]
    now[0] *= 2
    assert repeats.due() == []


def test_it_is_written_at_any_level_and_else_in_the_log(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Stream:
        def write(self, text: str) -> None:
            written.append(text)

        def flush(self) -> None:
            pass

    monkeypatch.setattr(log, "_threshold", 40)
    monkeypatch.setattr(log, "_stream", Stream())
    log.audit("audit.login.accepted", who="é\ud800", from_=None, what="login", outcome="accepted", count=1)
    assert not written and lines(file)[0]["from"] is None and lines(file)[0]["audit"] is True
    monkeypatch.setattr(log, "_audit_file", str(file.parent))  # a folder cannot be written
    log.audit("audit.login.accepted", who="bob", from_=None, what="login", outcome="accepted", count=1)
    assert [json.loads(text)["who"] for text in written] == ["bob"]


def test_a_full_file_is_renamed_and_nine_are_kept(file: Path) -> None:
    for number in range(12):
        file.write_text(f"{number}\n" * 10)
        rotate_log(file, 5)
        rotate_log(file, 5)  # there is none now
    assert sorted(path.name for path in file.parent.iterdir()) == [f"audit.log.{n}" for n in range(1, 10)]
    assert (file.parent / "audit.log.1").read_text().startswith("11")
    file.write_text("1")
    rotate_log(file, 5)
    assert os.path.exists(file)


def test_names_of_users_and_never_their_hashes(file: Path) -> None:
    config = {"addresses.json": "1", "flavors.json": "1"}
    old, new = {"a": user(FIRST), "b": user(FIRST)}, {"b": user(SECOND), "c": user(FIRST), "@g": user(FIRST)}
    log_changes(AppliedState(config=config, users=old), Applied(state=AppliedState(config=config, users=new)))
    (line,) = lines(file)
    assert {key: line.get(key) for key in ("added", "removed", "passwords", "permissions")} == {
        "added": ["c", "@g"], "removed": ["a"], "passwords": ["b"], "permissions": None,
    }  # fmt: skip
    assert "argon2" not in file.read_text()
