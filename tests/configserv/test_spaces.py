"""Address spaces in the configuration service: its feeds have the addresses and users of all spaces by full names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from enmasse.model.configuration import Applied, AppliedState, apply
from enmasse.model.feeds import ReachedSpace
from services.configserv.drivers import FilesDriver, directory
from services.configserv.state.applied import AppliedConfiguration
from services.configserv.tenants import space_users
from tests.configserv.running import FLAVORS, Client, Configserv
from tests.kit.waiting import until

Connect = Callable[[], Client]
QUEUE, ANYCAST = {"type": "queue", "flavor": "q"}, {"type": "anycast"}
ALICE = {"alice": {"permissions": [{"allow": ["send"], "addresses": ["a"]}]}}


def put(folder: Path, path: str, content: Any) -> None:
    """Write a file by atomic rename."""
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(".new")
    new.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    new.rename(file)


def test_spaces_are_published_and_a_tenants_broken_file_hurts_it_alone(service: Configserv, connect: Connect) -> None:
    for path, content in {
        "addresses.json": {"a": QUEUE},
        "users.json": {"admin": {}},
        "spaces.json": {"one": {"hosts": ["one.example.com"]}, "two": {}},
        "spaces/one/addresses.json": {"a": ANYCAST},
        "spaces/one/users.json": ALICE,
    }.items():
        put(service.config, path, content)
    service.file.write_text(json.dumps(service.settings))
    service.start()
    client = connect()
    assert client.next("addresses")["addresses"] == {"a": QUEUE, "!!one/a": ANYCAST}
    permissions = client.next("permissions/changes")
    assert list(permissions["users"]) == ["admin"] and list(permissions["in_spaces"]) == ["!!one/alice"]
    assert permissions["spaces"] == {"one": {"hosts": ["one.example.com"]}, "two": {}}

    put(service.config, "spaces/one/addresses.json", '{"a": ')
    put(service.config, "spaces/two/addresses.json", {"a": QUEUE, "x": {"type": "queue"}})
    found = client.find("addresses", lambda body: "!!two/a" in body["addresses"])
    assert found["addresses"] == {"a": QUEUE, "!!one/a": ANYCAST, "!!two/a": QUEUE}
    assert found["invalid"] == ["!!two/x"]
    status = client.find("status", lambda body: len(body["errors"]) == 2)
    assert {(error["file"], error["entry"], error["field"]) for error in status["errors"]} == {
        ("spaces/one/addresses.json", None, None),
        ("spaces/two/addresses.json", "x", "flavor"),
    }
    phases = {each["name"]: (each["phase"], each["message"]) for each in status["addresses"]}
    assert phases["!!two/x"][0] == "Failed" and "flavor: is missing: a queue needs one" in phases["!!two/x"][1]

    put(service.config, "spaces/two/users.json", {"alice": {}})
    changes = client.next("permissions/changes")
    assert (changes["full"], changes["users"], list(changes["in_spaces"])) == (False, {}, ["!!two/alice"])
    service.kill()
    service.start()
    client = connect()
    assert client.next("addresses")["addresses"] == found["addresses"], "also what was in force before a broken file"

    put(service.config, "spaces.json", {"two": {}})
    assert client.find("addresses", lambda body: "!!one/a" not in body["addresses"])
    permissions = client.next("permissions/changes")
    assert list(permissions["in_spaces"]) == ["!!two/alice"] and list(permissions["spaces"]) == ["two"]


def test_each_space_has_a_host_below_the_domain_that_no_other_entry_has(service: Configserv, connect: Connect) -> None:
    put(service.config, "addresses.json", {"a": QUEUE})
    put(service.config, "users.json", {"admin": {}})
    put(
        service.config, "spaces.json", {"one": {"hosts": ["mq.example.com", "two.example.com"]}, "two": {}, "three": {}}
    )
    service.file.write_text(json.dumps({**service.settings, "domain": "example.com"}))
    service.start()
    assert connect().next("permissions/changes")["spaces"] == {
        "one": {"hosts": ["mq.example.com", "two.example.com", "one.example.com"]},
        "two": {},
        "three": {"hosts": ["three.example.com"]},
    }


def test_without_spaces_the_feeds_are_byte_for_byte_as_before(service: Configserv, connect: Connect) -> None:
    put(service.config, "addresses.json", {"a": QUEUE, "b": {**QUEUE, "deadletter": "a"}})
    put(service.config, "users.json", {"anonymous": {"permissions": [{"allow": ["send"], "addresses": ["#"]}]}})
    service.start()
    client = connect()
    assert (
        client.message("addresses/changes").body
        == (
            b'{"schema":1,"revision":1,"addresses":{"a":{"type":"queue","flavor":"q"},'
            b'"b":{"type":"queue","flavor":"q","deadletter":"a"}},"forced":[],"full":true,"removed":[]}'
        ).decode()
    )
    assert client.message("permissions/changes").body == (
        '{"schema":1,"revision":1,"anonymous":false,"tokens":false,"users":{"anonymous":{"permissions":'
        '[{"effect":"allow","operations":["send"],"addresses":["#"]}]}},"full":true,"removed":[]}'
    )
    stored = json.loads((service.data / "configuration.json").read_text())
    assert "tenants" not in stored


def state(**spaces: Any) -> AppliedState:
    contents = {
        "flavors.json": json.dumps(FLAVORS).encode(),
        "addresses.json": b"{}",
        "spaces.json": json.dumps({space: {} for space in spaces}).encode(),
        **{f"spaces/{space}/users.json": json.dumps(users).encode() for space, users in spaces.items()},
    }
    return apply(contents, Applied()).state


def test_users_of_spaces_have_full_names() -> None:
    none, some = state(), state(one={**ALICE, "@g": {}}, two={"alice": {}})
    assert space_users.users(none) is msgspec.UNSET and space_users.reached(none) is msgspec.UNSET
    found = space_users.users(some)
    assert found is not msgspec.UNSET and list(found) == ["!!one/alice", "!!one/@g", "!!two/alice"]
    assert space_users.reached(some) == {"one": ReachedSpace(), "two": ReachedSpace()}
    assert space_users.changed_users(none, some) == list(found)
    assert space_users.changed_users(some, state(one=ALICE, two={"alice": {}})) == ["!!one/@g"]


def test_salts_of_unknown_users_of_spaces_can_be_derived() -> None:
    """Also where the default space is open to all: a space never is."""
    for spaces in ({}, {"spaces.json": b'{"one": {}}'}):
        store = Mock(configuration=lambda: AppliedState(), problems=list)
        found = AppliedConfiguration(store).compute({"flavors.json": b"{}", "addresses.json": b"{}", **spaces}).state
        assert found.anonymous and bool(found.salt_key) is bool(spaces)


@pytest.mark.parametrize("in_cluster", [False, True])
def test_processes_of_a_space_are_the_charts_in_a_cluster(in_cluster: bool) -> None:
    store = Mock(configuration=lambda: AppliedState(), problems=list)
    contents: dict[str, Any] = {
        "flavors.json": b"{}",
        "addresses.json": b"{}",
        "spaces.json": b'{"one": {"gateways": 2, "routers": 1}, "two": {}}',
    }
    found = AppliedConfiguration(store, in_cluster=in_cluster).compute(contents)
    assert set(found.judged) == {"one", "two"}, "the rest of the entry is in force"
    problems = [(each.file, each.entry, each.field) for each in found.problems if "in a cluster" in each.reason]
    expected = [("spaces.json", "one", field) for field in ("gateways", "routers")]
    assert problems == (expected if in_cluster else [])


def test_files_of_many_spaces_are_looked_at_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "PORTION", 2)
    asyncio.run(_look_in_turn(tmp_path))


async def _look_in_turn(tmp_path: Path) -> None:
    put(tmp_path, "spaces/one/addresses.json", {})
    put(tmp_path, "spaces/!!bad/addresses.json", {})
    seen: list[dict[str, Any]] = []
    driver = FilesDriver(str(tmp_path))
    driver.start(seen.append)
    assert seen[-1]["spaces/one/addresses.json"] == b"{}" and not any("bad" in file for file in seen[-1])
    for number in range(5):
        put(tmp_path, f"spaces/s{number}/users.json", {"u": {}})
    files = [f"spaces/s{number}/users.json" for number in range(5)]
    await until(lambda: all(seen[-1].get(file) for file in files), "the new folders are read")
    (tmp_path / files[3]).unlink()
    put(tmp_path, files[2], {})
    await until(lambda: seen[-1][files[3]] is None and seen[-1][files[2]] == b"{}", "an edit, a removal")
    driver.close()
