"""users.json and issuers.json in the configuration service: the feeds `users` and `permissions`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from proton.utils import LinkDetached

from enmasse.identity.proofs.passwords import hashed
from enmasse.model.configuration import ISSUERS, USERS, Applied, AppliedState, apply
from enmasse.model.feeds import granted
from enmasse.model.merged import Unreadable
from enmasse.model.users import User
from tests.configserv.running import Client, Configserv
from tests.kit.hashes import hashes

HASHES = hashes("right")


def applied(users: Any, last: AppliedState | None = None) -> Applied:
    return apply(
        {USERS: json.dumps(users).encode() if isinstance(users, dict) else users}, Applied(state=last or AppliedState())
    )


def reasons(now: Applied) -> list[str]:
    return [str(problem) for problem in now.problems if problem.file == USERS]


def test_without_a_file_there_are_no_users_and_nothing_is_wrong() -> None:
    now = applied(None)
    assert (now.state.users, now.users_known, reasons(now)) == (None, True, [])


@pytest.mark.parametrize("content", [b"{", Unreadable("Permission denied"), b""])
def test_a_first_file_that_cannot_be_used_is_not_an_anonymous_suite(content: Any) -> None:
    now = applied(content)
    assert (now.state.users, now.users_known) == (None, False)
    assert "no client is let in before it can be used" in reasons(now)[0]


@pytest.mark.parametrize("content", [None, b"{", Unreadable("Permission denied")])
def test_a_file_that_is_gone_or_wrong_leaves_the_users_in_force(content: Any) -> None:
    before = applied({"alice": {}}).state
    now = applied(content, before)
    assert (now.state.users, now.users_known) == ({"alice": User()}, True)
    assert "what applied before stays" in reasons(now)[0]
    assert USERS in now.state.config


def test_an_invalid_entry_keeps_its_last_good_version_and_others_apply() -> None:
    before = applied({"alice": {"groups": ["g"]}, "bob": {}, "@g": {}}).state
    now = applied({"alice": {"color": 1}, "carol": {"color": 1}, "dave": {}, "@g": {}}, before)
    assert now.state.users == {"alice": User(groups=("g",)), "dave": User(), "@g": User()}
    assert [reason.split(": ")[1] for reason in reasons(now)] == ["alice.color", "carol.color"]


def test_an_empty_file_has_no_users_and_is_not_anonymous() -> None:
    now = applied({})
    assert (now.state.users, now.users_known) == ({}, True)


def test_credentials_differ_after_a_change_and_reveal_no_hash() -> None:
    user = User(password=HASHES.password, scram=HASHES.scram, groups=("g",))
    other = User(password=hashed("right", random=True).password)
    assert granted(user).credentials != granted(other).credentials
    assert granted(user) == granted(User(password=HASHES.password, scram=HASHES.scram, groups=("g",)))
    assert granted(User()).credentials == ""
    assert "argon2" not in repr(granted(user))


def test_permissions_are_published_live_and_without_hashes(service: Configserv, connect: Callable[[], Client]) -> None:
    service.start()
    client = connect()
    first = client.next("permissions")
    assert (first["anonymous"], first["users"]) == (True, {})
    entry = {"password": HASHES.password, "groups": ["g"]}
    rule = {"allow": ["send"], "addresses": ["a/#"]}
    service.write(USERS, {"alice": entry, "@g": {"permissions": [rule]}})
    now = client.find("permissions", lambda body: body["users"])
    assert now["anonymous"] is False
    assert now["revision"] > first["revision"]
    assert now["users"] == {
        "alice": {"groups": ["g"], "credentials": granted(User(password=HASHES.password)).credentials},
        "@g": {"permissions": [{"effect": "allow", "operations": ["send"], "addresses": ["a/#"]}]},
    }
    service.write(USERS, {"alice": {**entry, "passwd": "hunter2"}})
    status = client.find("status", lambda body: body["errors"])
    error = status["errors"][0]
    assert (error["file"], error["entry"], error["field"]) == (USERS, "alice", "passwd")
    assert "hunter2" not in json.dumps(status) + service.log.read_text()
    (service.config / USERS).unlink()
    client.find("status", lambda body: any("is missing" in error["reason"] for error in body["errors"]))
    service.kill()
    service.start()
    after = connect().next("permissions")
    assert (after["anonymous"], list(after["users"])) == (False, ["alice"])
    assert (service.data / "configuration.json").stat().st_mode & 0o777 == 0o600


def test_an_edit_sends_the_entries_that_it_changes(service: Configserv, connect: Callable[[], Client]) -> None:
    users: dict[str, Any] = {f"user-{number}": {"groups": ["g"]} for number in range(1000)}
    service.write(USERS, {**users, "@g": {}})
    service.start()
    client, old = connect(), connect()
    first = client.next("permissions/changes")
    assert (first["full"], first["anonymous"], len(first["users"])) == (True, False, 1001)
    assert old.next("permissions")["users"] == first["users"]
    rule = {"allow": ["send"], "addresses": ["a"]}
    users["user-7"] = {"permissions": [rule]}
    gone = users.pop("user-8")
    service.write(USERS, {**users, "@g": {}})
    message = client.message("permissions/changes")
    body = json.loads(message.body)
    assert (message.subject, len(message.body) < 500) == ("enmasse.permissions.changes", True)
    permission = {"effect": "allow", "operations": ["send"], "addresses": ["a"]}
    assert (body["full"], body["users"], body["removed"]) == (
        False, {"user-7": {"permissions": [permission]}}, ["user-8"],
    )  # fmt: skip
    after = old.next("permissions")  # what EnMasse 0.2.0 follows
    assert (len(after["users"]), after["revision"]) == (1000, body["revision"])
    service.write(USERS, {**users, "user-8": gone})
    body = client.next("permissions/changes")
    assert (body["users"], body["removed"]) == ({"user-8": {"groups": ["g"]}}, ["@g"])
    assert connect().next("permissions/changes")["users"] == old.next("permissions")["users"]


def test_permissions_say_whether_there_are_issuers(service: Configserv, connect: Callable[[], Client]) -> None:
    service.write(USERS, {"alice": {}})
    service.start()
    client = connect()
    assert client.next("permissions/changes")["tokens"] is False
    service.write(ISSUERS, {"sso": SSO})
    body = client.next("permissions/changes")
    assert (body["full"], body["tokens"], body["users"], body["removed"]) == (False, True, {}, [])


def test_users_are_refused_to_peers_without_credentials(service: Configserv, connect: Callable[[], Client]) -> None:
    service.start()
    with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
        connect().next("users")


# --- issuers.json -----------------------------------------------------------------------------------------------------

SSO = {"issuer": "https://sso.example", "audience": "messaging", "client_id": "c", "client_secret": "hunter2"}


def both(users: Any, issuers: Any, last: AppliedState | None = None) -> Applied:
    contents = {USERS: users, ISSUERS: json.dumps(issuers).encode() if isinstance(issuers, dict) else issuers}
    return apply(contents, Applied(state=last or AppliedState()))


def test_issuers_without_users_are_not_an_anonymous_suite() -> None:
    now = both(None, {"b": SSO, "a": SSO})
    assert (now.state.anonymous, now.users_known, now.problems[2:]) == (False, True, [])
    assert list(now.state.issuers or ()) == ["b", "a"]  # as in the file
    assert both(None, {}).state.anonymous is False
    assert both(None, None).state.anonymous is True


@pytest.mark.parametrize("content", [b"{", Unreadable("Permission denied")])
def test_first_issuers_that_cannot_be_used_let_in_nobody_but_users(content: Any) -> None:
    assert both(None, content).users_known is False
    assert both(b"{}", content).users_known is True
    assert both(content, {"sso": SSO}).users_known is False


@pytest.mark.parametrize("content", [None, b"{", Unreadable("Permission denied"), {"sso": {"color": 1}}])
def test_issuers_that_are_gone_or_wrong_stay_in_force(content: Any) -> None:
    before = both(None, {"sso": SSO}).state
    now = both(None, content, before)
    assert (now.state.issuers, now.state.anonymous, now.users_known) == (before.issuers, False, True)
    assert any(problem.file == ISSUERS for problem in now.problems)
    assert both(None, {}, before).state.issuers == {}


def test_issuers_are_published_live_and_only_to_the_authentication_service(
    service: Configserv, connect: Callable[[], Client]
) -> None:
    service.start()
    client = connect()
    first = client.next("permissions")
    assert first["anonymous"] is True
    service.write(ISSUERS, {"sso": SSO})
    now = client.find("permissions", lambda body: not body["anonymous"])
    assert now["users"] == {}
    service.write(ISSUERS, {"sso": {**SSO, "clientSecret": "hunter3"}})
    status = client.find("status", lambda body: body["errors"])
    error = status["errors"][0]
    assert (error["file"], error["entry"], error["field"]) == (ISSUERS, "sso", "clientSecret")
    seen = json.dumps([first, now, status]) + service.log.read_text()
    assert "hunter" not in seen
    assert (service.data / "configuration.json").stat().st_mode & 0o777 == 0o600


def test_the_key_of_the_salts_of_unknown_users_outlives_changes_and_restarts(
    service: Configserv, connect: Callable[[], Client]
) -> None:
    def key() -> str:
        saved = json.loads((service.data / "configuration.json").read_text())["salt_key"]
        assert isinstance(saved, str)
        return saved

    service.write(USERS, {"alice": {}})
    service.start()
    client = connect()
    bodies = [client.find("permissions", lambda body: "alice" in body["users"])]
    first = key()
    assert len(first) >= 40
    service.write(USERS, {"bob": {}})
    bodies.append(client.find("permissions", lambda body: "bob" in body["users"]))
    assert key() == first
    service.kill()
    service.write(USERS, {"carol": {}})
    service.start()
    bodies.append(connect().find("permissions", lambda body: "carol" in body["users"]))
    assert key() == first
    assert first not in json.dumps(bodies) + service.log.read_text()
