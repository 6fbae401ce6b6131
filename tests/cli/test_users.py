"""`enmasse user`: the entries of users.json that it writes, shows and refuses."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from enmasse.identity.proofs.passwords import PasswordChecks
from tests.cli.running import ENMASSE, enmasse, free_offset
from tests.kit.waiting import DEADLINE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "addresses.json").write_text("{}")
    return tmp_path


def user(folder: Path, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    options = ("--config", folder, "--port-offset", free_offset())
    return enmasse("user", arguments[0], *options, *arguments[1:], input=stdin, env=environment or None)


def _of_any_suite(text: str) -> str:
    """Return a text without the option by which proposed commands name the suite of the running one."""
    return re.sub(r" --port-offset \d+`", "`", text)


def written(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "users.json").read_text())
    return found


def accepts(folder: Path, name: str, password: str) -> bool:
    checks = PasswordChecks(lambda: 0.0)
    try:
        asked = name, written(folder)[name]["password"], password
        return checks.at_once(*asked) or asyncio.run(checks.check(*asked))
    finally:
        checks.close()


def test_a_hint_quotes_the_name_for_the_shell(folder: Path) -> None:
    done = user(folder, "add", "bad name é", "--no-password")
    assert "`enmasse user allow 'bad name é' send,recv ADDRESS`" in _of_any_suite(done.stderr)


@pytest.mark.parametrize("name", ["a/b", "a.b", "@a/b"])
def test_a_slash_in_the_name_of_a_user_is_warned_of(folder: Path, name: str) -> None:
    user(folder, "add", "first", "--no-password")
    done = user(folder, "add", name, *(() if name.startswith("@") else ("--no-password",)))
    assert done.returncode == 0
    assert ("${user} over MQTT" in done.stderr) is (name == "a/b")


@pytest.mark.parametrize("name", ["a@b", "a.b", "@b"])
def test_an_at_sign_in_the_name_of_a_user_is_warned_of(folder: Path, name: str) -> None:
    user(folder, "add", "first", "--no-password")
    done = user(folder, "add", name, *(() if name.startswith("@") else ("--no-password",)))
    assert done.returncode == 0
    assert ("warning: with @ in its name" in done.stderr) is (name == "a@b")


def test_a_user_is_added_with_hashes_in_a_file_of_the_owner(folder: Path) -> None:
    done = user(folder, "add", "alice", "--password-file", "-", stdin="correct horse\r\nanother line\n")
    assert (done.returncode, done.stdout) == (0, f"added alice to {folder / 'users.json'}\n")
    assert _of_any_suite(done.stderr) == (
        "alice may do nothing yet: `enmasse user allow alice send,recv ADDRESS` adds a permission; with view too "
        "the console shows the address.\n"
        "It is the first entry: clients without a user are refused from now on.\n"
        "Your own `enmasse send` and the like are such clients. They log in after: export ENMASSE_USER=alice "
        "ENMASSE_PASSWORD_FILE=FILE\n"
    )
    text = (folder / "users.json").read_text()
    assert "correct horse" not in text + done.stderr
    assert (folder / "users.json").stat().st_mode & 0o777 == 0o600
    assert sorted(written(folder)["alice"]["scram"]) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert accepts(folder, "alice", "correct horse")
    assert sorted(os.listdir(folder)) == ["addresses.json", "users.json"]


def test_a_generated_password_is_alone_on_stdout(folder: Path) -> None:
    done = user(folder, "add", "robot", "--generate")
    password = done.stdout.removesuffix("\n")
    assert len(password) == 32
    assert password not in done.stderr + (folder / "users.json").read_text()
    assert accepts(folder, "robot", password)
    changed = user(folder, "password", "robot", "--generate").stdout.removesuffix("\n")
    assert not accepts(folder, "robot", password)
    assert accepts(folder, "robot", changed)


def test_a_verifier_for_old_clients_is_an_option(folder: Path) -> None:
    assert user(folder, "add", "robot", "--generate", "--scram-sha-1").returncode == 0
    assert sorted(written(folder)["robot"]["scram"]) == ["SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert "robot" in user(folder, "show", "robot").stdout
    assert user(folder, "password", "robot", "--generate").returncode == 0
    assert sorted(written(folder)["robot"]["scram"]) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_a_terminal_is_asked_twice_without_echo(folder: Path) -> None:
    ours, theirs = pty.openpty()
    command = [str(ENMASSE), "user", "add", "alice", "--config", str(folder)]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    for prompt, times, answer in (
        (b"Password: ", 1, b"first\n"),
        (b"confirmation: ", 1, b"second\n"),
        (b"Password: ", 2, b"third\n"),
        (b"confirmation: ", 2, b"third\n"),
    ):
        while seen.count(prompt) < times:
            seen += os.read(ours, 1024)
        os.write(ours, answer)
    out, _ = process.communicate(timeout=DEADLINE)
    os.close(ours)
    assert process.returncode == 0, seen
    assert out.startswith("added alice to")
    assert not any(word in seen for word in (b"first", b"second", b"third"))
    assert accepts(folder, "alice", "third")


def test_other_entries_keep_every_byte_and_a_wider_mode_is_narrowed(folder: Path) -> None:
    path = folder / "users.json"
    text = '{\n   "@ops":  {"permissions" : []},\n   "bob": { }\n}\n'
    path.write_text(text)
    path.chmod(0o644)
    assert user(folder, "allow", "bob", "send,recv", "orders/#").returncode == 0
    assert path.read_text() == text.replace(
        '"bob": { }', '"bob": {"permissions": [{"allow": ["send", "recv"], "addresses": ["orders/#"]}]}'
    )
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_permission_that_no_address_has_is_warned_of(folder: Path) -> None:
    addresses = {"myqueue": {"type": "anycast"}, "all.news": {"type": "multicast"}}
    (folder / "addresses.json").write_text(json.dumps(addresses))
    (folder / "flavors.json").write_text("{}")
    (folder / "users.json").write_text('{"bob": {}}')
    matching = ("myqueue", "all/news", "all/*", "#", "${user}/#", "$SYS/#")
    done = user(folder, "allow", "bob", "send", *matching, "myqueu", "myqueue/x")
    assert done.returncode == 0 and _of_any_suite(done.stderr) == (
        "warning: no address is there that 'myqueu' matches. Did you mean 'myqueue'?\n"
        "warning: no address is there that 'myqueue/x' matches. Did you mean 'myqueue'?\n"
    )
    assert len(written(folder)["bob"]["permissions"][0]["addresses"]) == 8


def test_permissions_are_extended_and_decide(folder: Path) -> None:
    (folder / "users.json").write_text('{"bob": {"groups": ["devices"]}, "@devices": {}}')
    for _ in range(2):
        assert user(folder, "allow", "@devices", "send,recv", "devices/${user}/#", "news").returncode == 0
    assert user(folder, "allow", "@devices", "send,recv", "more").returncode == 0
    assert user(folder, "deny", "@devices", "send", "devices/${user}/config").returncode == 0
    assert written(folder)["@devices"]["permissions"] == [
        {"allow": ["send", "recv"], "addresses": ["devices/${user}/#", "news", "more"]},
        {"deny": ["send"], "addresses": ["devices/${user}/config"]},
    ]
    done = user(folder, "check", "bob", "send", "devices/bob/state")
    rule = "@devices.permissions.0: allow send,recv on devices/${user}/#, news, more"
    assert (done.returncode, done.stdout) == (0, f"bob may send devices/bob/state: {rule}\n")
    done = user(folder, "check", "bob", "send", "devices.bob.config")
    rule = "@devices.permissions.1: deny send on devices/${user}/config"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"bob may not send devices.bob.config: {rule} [user.operation.denied]\n"
    done = user(folder, "check", "bob", "manage", "news")
    assert "bob may not manage news: no permission of bob, nor of @devices allows it" in done.stderr
    done = user(folder, "check", "bob", "recv", "devices/bob/#", "--json")
    assert json.loads(done.stdout) == {"allowed": True, "rule": "@devices.permissions.0", "address": "devices/bob/#"}
    done = user(folder, "check", "bob", "recv", "devices/#", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (1, {"allowed": False, "rule": None, "address": "devices/#"})


def test_a_topic_that_no_address_takes_is_one_of_the_default(folder: Path) -> None:
    flavor = {"f": {"type": "topic", "templateName": "topic-persisted"}}
    addresses = {"mqtt": {"type": "topic", "flavor": "f", "mqttDefault": True}, "news": {"type": "anycast"}}
    (folder / "flavors.json").write_text(json.dumps(flavor))
    (folder / "addresses.json").write_text(json.dumps(addresses))
    (folder / "users.json").write_text('{"bob": {"permissions": [{"allow": ["send", "recv"], "addresses": ["a/#"]}]}}')
    done = user(folder, "check", "bob", "send", "a/b")
    assert done.returncode == 1 and "bob may not send a/b (on AMQP mqtt/a/b): no permission" in done.stderr
    assert user(folder, "check", "bob", "recv", "a/#").returncode == 1
    assert user(folder, "allow", "bob", "send,recv", "mqtt/a/#", "news").returncode == 0
    done = user(folder, "check", "bob", "send", "a/b", "--json")
    assert json.loads(done.stdout) == {"allowed": True, "rule": "bob.permissions.0", "address": "mqtt/a/b"}
    assert [user(folder, "check", "bob", "recv", each).returncode for each in ("a/#", "news", "#")] == [0, 0, 1]


def test_users_are_listed_and_shown_without_hashes(folder: Path) -> None:
    user(folder, "add", "alice", "--password-file", "-", "--group", "ops", stdin="pw\n")
    user(folder, "add", "@ops")
    user(folder, "allow", "alice", "view", "#")
    shown = json.loads(user(folder, "show", "alice", "--json").stdout)
    assert shown == {
        "name": "alice", "password": True, "scram": ["SCRAM-SHA-256", "SCRAM-SHA-512"], "groups": ["ops"],
        "permissions": [{"allow": ["view"], "addresses": ["#"]}], "limits": {},
    }  # fmt: skip
    listed = json.loads(user(folder, "list", "--json").stdout)["users"]
    assert [row["name"] for row in listed] == ["alice", "@ops"]
    for done in (user(folder, "list"), user(folder, "show", "alice"), user(folder, "list", "--json")):
        assert done.returncode == 0
        assert "argon2" not in done.stdout
        assert written(folder)["alice"]["scram"]["SCRAM-SHA-256"]["salt"] not in done.stdout


def test_a_password_is_written_to_a_file_of_the_owner(folder: Path) -> None:
    kept = folder / "alice.password"
    for command in ("add", "password"):
        kept.unlink(missing_ok=True)
        done = user(folder, command, "alice", "--output", str(kept))
        assert done.returncode == 0 and kept.stat().st_mode & 0o777 == 0o600
        password = kept.read_text().removesuffix("\n")
        assert password and password not in done.stdout + done.stderr
        assert accepts(folder, "alice", password)
    before = written(folder)
    done = user(folder, "password", "alice", "--output", str(folder / "missing" / "file"))
    assert "[user.password.not-written]" in done.stderr and written(folder) == before
    kept.write_text("of before")
    for command, name in (("password", "alice"), ("add", "bob")):
        done = user(folder, command, name, "--output", str(kept))
        assert "[user.password.not-written]" in done.stderr and "exists" in done.stderr
        assert (kept.read_text(), written(folder)) == ("of before", before)
    new = folder / "new.password"
    done = user(folder, "add", "a\nb", "--output", str(new))
    assert done.returncode == 1 and written(folder) == before and not new.exists()


def test_a_group_is_not_the_first_entry(folder: Path) -> None:
    done = user(folder, "add", "@ops")
    assert "[user.group.alone]" in done.stderr and not (folder / "users.json").exists()
    (folder / "issuers.json").write_text("{}")
    assert user(folder, "add", "@ops").returncode == 0


def test_a_missing_group_is_a_warning(folder: Path) -> None:
    done = user(folder, "add", "bob", "--no-password", "--group", "ops")
    assert done.returncode == 0
    assert done.stderr == (
        "warning: users.json: bob.groups: no entry '@ops': add one with its permissions, or remove the group here\n"
        "It is the first entry: clients without a user are refused from now on.\n"
    )
    user(folder, "add", "@ops")
    assert "warning: users.json: bob.groups: no entry '@ops'" in user(folder, "remove", "@ops").stderr
    assert written(folder) == {"bob": {"groups": ["ops"]}}


@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (["add", "bob"], "", "[user.name.in-use]"),
        (["add", "new"], "", "no password: give --password-file FILE (- for stdin) or --generate"),
        (["add", "new", "--password-file", "-"], "\n", "it is empty; choose another one; nothing was changed"),
        (["add", "new", "--password-file", "/nowhere"], "", "/nowhere: cannot be read"),
        (["add", "new ", "--generate"], "", "must not have control characters, nor white space at its ends"),
        (["add", "@new", "--generate"], "", "@new: a group has no password; leave out"),
        (["add", "anonymous", "--generate"], "", "anonymous: these clients have no password"),
        (["add", "@@new"], "", "must not begin with '@'"),
        (["password", "@g", "--generate"], "", "@g.password: unknown key; a group has permissions"),
        (["password", "nobody", "--generate"], "", "there is no user or group 'nobody'"),
        (["remove", "nobody"], "", "[user.name.unknown]"),
        (["allow", "bob", "write", "a"], "", "'write' is not one of send, recv, view, manage"),
        (["allow", "bob", "send", "a/#/b"], "", "'a/#/b' may have * (one word) or # (any words) as its last word"),
        (["check", "nobody", "send", "a"], "", "[user.name.unknown]"),
        (["check", "wrong", "send", "a"], "", "wrong.color: unknown key"),
    ],
)
def test_refused_and_nothing_changed(arguments: list[str], stdin: str, expected: str, folder: Path) -> None:
    text = '{"bob": {}, "@g": {}, "wrong": {"color": 1}}'
    (folder / "users.json").write_text(text)
    done = user(folder, *arguments, stdin=stdin)
    assert done.returncode in (1, 2)
    assert expected in done.stderr
    assert (folder / "users.json").read_text() == text


@pytest.mark.parametrize("arguments", [["show", "bob"], ["remove", "bob"], ["allow", "bob", "send", "a"]])
def test_without_a_users_file_a_user_is_unknown(arguments: list[str], folder: Path) -> None:
    done = user(folder, *arguments)
    assert done.returncode == 1 and "there is no user or group 'bob'" in done.stderr
    assert "[user.name.unknown]" in done.stderr and not (folder / "users.json").exists()


def test_a_list_without_users_says_which_clients_are_let_in(folder: Path) -> None:
    done = user(folder, "list")
    assert done.returncode == 0 and "clients are let in without one. `enmasse user add NAME` adds" in _of_any_suite(
        done.stderr
    )
    assert json.loads(user(folder, "list", "--json").stdout) == {"items": [], "users": [], "total": 0}
    (folder / "users.json").write_text("{}")
    assert "all clients are refused" in user(folder, "list").stderr
    (folder / "issuers.json").write_text("{}")
    assert "token of an issuer" in user(folder, "list").stderr


def test_the_first_user_is_told_to_log_in(folder: Path) -> None:
    file = folder / "alice.password"
    done = user(folder, "add", "alice", "--output", str(file))
    assert f"export ENMASSE_USER=alice ENMASSE_PASSWORD_FILE={file}\n" in done.stderr
    assert "export" not in user(folder, "add", "bob", "--generate").stderr


def test_the_environment_gives_no_new_password(folder: Path) -> None:
    (folder / "own").write_text("own password")
    done = user(folder, "add", "new", ENMASSE_PASSWORD_FILE=str(folder / "own"))
    assert "no password" in done.stderr
    assert not (folder / "users.json").exists()


@pytest.mark.parametrize(
    ("pattern", "other"),
    [("dev/%u/#", "%u"), ("dev/%c", "%c"), ("dev/$user/#", "$user"), ("dev/${user}/#", None), ("a%understood", None)],
)  # fmt: skip
def test_placeholders_of_other_servers_are_warned_of(folder: Path, pattern: str, other: str | None) -> None:
    user(folder, "add", "first", "--no-password")
    done = user(folder, "allow", "first", "send", pattern)
    assert done.returncode == 0
    assert (f"{other} stands for itself" in done.stderr) if other else "stands for itself" not in done.stderr


def test_allow_warns_of_a_denial_that_still_holds(folder: Path) -> None:
    (folder / "users.json").write_text('{"bob": {}}')
    assert user(folder, "deny", "bob", "recv", "orders", "own/${user}/#").returncode == 0
    for pattern in ("orders", "own/${user}/#", "own.${user}.news"):
        done = user(folder, "allow", "bob", "send,recv", pattern)
        rule = "bob.permissions.0: deny recv on orders, own/${user}/#"
        assert done.returncode == 0 and f"warning: {rule} still holds" in done.stderr, pattern
        assert "`enmasse user revoke bob recv orders 'own/${user}/#' --denial" in done.stderr
    for operations, pattern in (("send", "orders"), ("recv", "news"), ("recv", "own/#")):
        assert "still holds" not in user(folder, "allow", "bob", operations, pattern).stderr


def test_revoke_takes_back_what_was_allowed_or_denied(folder: Path) -> None:
    others = [{"allow": ["recv"], "addresses": ["#"]}, {"deny": ["send"], "addresses": ["orders"]}]
    first = {"allow": ["send", "recv"], "addresses": ["orders", "news/#"]}
    (folder / "users.json").write_text(json.dumps({"bob": {"permissions": [first, *others]}}))
    done = user(folder, "revoke", "bob", "recv", "orders")
    assert done.stdout == f"revoked allow recv on orders of bob in {folder / 'users.json'}\n"
    assert done.stderr == "warning: bob.permissions.2: allow recv on # still allows it.\n"
    left = [{**first, "addresses": ["news/#"]}, {"allow": ["send"], "addresses": ["orders"]}]
    assert written(folder)["bob"]["permissions"] == [*left, *others]
    refused = user(folder, "revoke", "bob", "recv", "news/#", "orders")
    assert refused.returncode == 1 and "no permission `allow recv on orders`" in refused.stderr
    assert written(folder)["bob"]["permissions"] == [*left, *others], "nothing was changed"
    done = user(folder, "revoke", "bob", "send", "orders", "--denial")
    assert done.returncode == 0 and written(folder)["bob"]["permissions"] == [*left, others[0]]


def test_limits_are_set_shown_and_removed(folder: Path) -> None:
    user(folder, "add", "alice", "--no-password")
    done = user(folder, "limit", "alice", "connections=5", "connects-per-second=2")
    assert done.returncode == 0, done.stderr
    assert written(folder)["alice"] == {"limits": {"connections": 5, "connects_per_second": 2}}
    assert "limits: connections=5 connects_per_second=2" in user(folder, "show", "alice").stdout
    assert json.loads(user(folder, "show", "alice", "--json").stdout)["limits"]["connections"] == 5
    for wrong in ("connections=many", "connections=0", "sessions=1"):
        done = user(folder, "limit", "alice", wrong)
        assert done.returncode == 1 and "limits" in done.stderr and "nothing was changed" in done.stderr
    assert user(folder, "limit", "alice", "connections=", "connects_per_second=").returncode == 0
    assert written(folder)["alice"] == {}


@pytest.mark.parametrize(
    "change",
    [("deny", "boss", "manage", "#"), ("revoke", "@heads", "manage", "#"), ("remove", "boss"), ("remove", "@heads")],
)
def test_the_end_of_the_last_manager_is_warned_of(folder: Path, change: tuple[str, ...]) -> None:
    heads = {"permissions": [{"allow": ["manage", "view"], "addresses": ["#"]}]}
    users = {"@heads": heads, "boss": {"groups": ["heads"]}, "deputy": {"groups": ["heads"]}, "bob": {}}
    (folder / "users.json").write_text(json.dumps(users))
    warning = "warning: no user with an entry has the permission `manage` on '#' now"
    assert warning not in user(folder, "remove", "deputy").stderr
    assert warning not in user(folder, "deny", "bob", "manage", "#").stderr
    done = user(folder, *change)
    assert done.returncode == 0 and warning in done.stderr, done.stderr
    assert warning not in user(folder, "revoke", "bob", "manage", "#", "--denial").stderr, "there was none before"
