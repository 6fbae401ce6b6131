"""The REST API of address spaces: the same resources as of the default one, each space by itself, by names there."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from enmasse.amqp.messages.message import Message
from enmasse.testing import Suite
from services.console.following.rows import Rows
from services.console.following.space_rows import NamedRows
from tests.console.browser import SECONDS, Console, chromium
from tests.console.client import Client, of
from tests.kit.spaces import running_with_spaces
from tests.kit.waiting import DEADLINE, wait_for
from tests.system.amqp_users import Plain
from tests.system.amqp_users import client as amqp

QUEUE, ANYCAST = {"type": "queue", "flavor": "small-persisted-queue"}, {"type": "anycast"}
TENANT: dict[str, Any] = {"orders": QUEUE, "dead": QUEUE, "fed": {**QUEUE, "deadletter": "dead"}, "cast": ANYCAST}
PLANS = {
    "queue": {"kind": "address", "type": "queue", "flavor": "small-persisted-queue"},
    "small": {"kind": "space", "addressPlans": ["queue"], "flavors": [], "limits": {"addresses": 2}},
}
ALICE = {"alice": {"permissions": [{"allow": ["send", "recv"], "addresses": ["#"]}]}}
FILES = {
    "spaces.json": {"one": {"hosts": ["one.example.com"]}, "two": {}},
    "plans.json": PLANS,
    "users.json": {"root": {"permissions": [{"allow": ["send", "recv", "view", "manage"], "addresses": ["#"]}]}},
    **{f"spaces/{space}/addresses.json": TENANT for space in ("one", "two")},
}
PASSWORD = "a long enough password"
expect.set_options(timeout=SECONDS * 1000)
IN = ("spaces/one/", "spaces/two/", "")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running_with_spaces(tmp_path_factory.mktemp("spaces"), FILES, addresses=TENANT, options=()) as suite:
        suite.up()
        yield suite
        assert suite.down() == 0


@pytest.fixture
def client(suite: Suite) -> Iterator[Client]:
    with Client(suite, Authorization=suite.operator_headers["Authorization"]) as client:
        yield client


def names(client: Client, path: str) -> list[str]:
    return [row["name"] for row in client.items(path)]


def waiting(client: Client, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = wait_for(lambda: client("GET", path).body["items"], "a message")
    return found


def ready(client: Client, at: str, *wanted: str) -> None:
    wait_for(
        lambda: {row["name"] for row in client.items(f"{at}addresses") if row["ready"]} >= set(wanted),
        f"{wanted} in {at} are ready",
    )


def test_each_space_shows_its_own_addresses_by_local_names(client: Client) -> None:
    for at in IN:
        ready(client, at, *TENANT)
        assert set(names(client, f"{at}addresses")) >= TENANT.keys()
        assert not at or len(names(client, f"{at}addresses")) == len(TENANT)
        row = client("GET", f"{at}addresses/fed").body
        assert row["entry"]["deadletter"] == "dead" and row["name"] == "fed"
        assert "!!" not in json.dumps(client("GET", f"{at}overview").body)
    assert client("GET", "spaces/none/addresses").status == 404
    assert client("GET", "spaces/default/addresses").status == 404
    assert client("GET", f"addresses/{of('!!one/orders')}").status == 404
    (one, _) = client.items("spaces")
    assert (one["name"], one["hosts"], one["used"]["addresses"], one["ready"]) == ("one", ["one.example.com"], 4, True)
    assert one["used"]["addressesByType"] == {"queue": 3, "anycast": 1} and one["phases"]["Active"] == 4


def test_an_entry_is_written_in_one_space_with_its_etag(client: Client, suite: Suite) -> None:
    made = client("PUT", "spaces/one/addresses/new", {**QUEUE, "deadletter": "dead"})
    assert made.status == 201, made
    assert made.body["entry"] == {**QUEUE, "deadletter": "dead"}
    assert client("GET", "spaces/two/addresses/new").status == 404
    file = suite.config / "spaces/one/addresses.json"
    assert json.loads(file.read_text())["new"] == {**QUEUE, "deadletter": "dead"}
    path = "spaces/one/addresses/new"
    assert client("PUT", path, QUEUE).status == 428
    assert client("PUT", path, QUEUE, If_Match='"00"').status == 412
    changed = client("PATCH", path, {"deadletter": None}, If_Match=made.etag)
    assert (changed.status, changed.body["entry"]) == (200, QUEUE), changed
    refused = client("PUT", path, {**QUEUE, "deadletter": "nowhere"}, If_Match=changed.etag)
    assert refused.status == 422
    (error,) = refused.body["errors"]
    assert (error["file"], error["entry"], error["field"]) == ("spaces/one/addresses.json", "new", "deadletter")
    ready(client, "spaces/one/", "new")
    assert client("DELETE", path, If_Match=changed.etag).status == 204
    wait_for(lambda: client("GET", path).status == 404, "it is gone")


def test_users_of_a_space_log_in_there_and_are_shown_there(client: Client, suite: Suite) -> None:
    for at in IN[:2]:
        entry = {**ALICE["alice"], "password": PASSWORD}
        assert client("PUT", f"{at}users/alice", entry).status == 201
        row = client("GET", f"{at}users/alice").body
        assert row["password"] and row["effective"][0]["source"] == "alice.permissions.0"
        may = client("GET", f"{at}users/alice/may?operation=send&address=orders").body
        assert (
            may["allowed"] and not client("GET", f"{at}users/alice/may?operation=view&address=orders").body["allowed"]
        )
        assert may["address"] == "orders"
    assert names(client, "users") == ["root"] and names(client, "spaces/two/users") == ["alice"]

    async def connected() -> None:
        async with amqp(5672 + suite.offset, Plain("alice@one", PASSWORD)) as connection:
            sender = await connection.sender("orders")
            await sender.send(Message("from alice", to="orders"))
            await asyncio.to_thread(look)

    def look() -> None:
        (row,) = wait_for(lambda: client.items("spaces/one/connections"), "a connection")
        assert row["user"] == "alice" and "!!" not in json.dumps(row)
        (link,) = wait_for(lambda: client.items("spaces/one/links"), "a link")
        assert link["address"] == "orders" and link["connection"] == row["id"]
        assert [each["id"] for each in client("GET", f"spaces/one/connections/{of(row['id'])}/links").body["items"]]
        for at in ("", "spaces/two/"):
            assert client.items(f"{at}connections") == [] and client.items(f"{at}links") == []
            assert client("GET", f"{at}connections/{of(row['id'])}").status == 404
            assert client("GET", f"{at}links/{of(link['id'])}").status == 404
            assert client("DELETE", f"{at}connections/{of(row['id'])}").status == 404

    asyncio.run(connected())
    client("POST", "spaces/one/addresses/orders/purge", {})


def test_a_stream_shows_what_changes_in_its_space(client: Client, suite: Suite) -> None:
    """It ends when the rights of its caller change."""
    may = [{"allow": ["view"], "addresses": ["#"]}]
    assert client("PUT", "spaces/one/users/eve", {"permissions": may, "password": PASSWORD}).status == 201
    with Client(suite) as eve:
        wait_for(lambda: eve.log_in("eve@one", PASSWORD).status == 200, "the user is known")
        events = eve.events("addresses?watch=1")
        seen = {row["name"] for row in next(events)[1]["items"]}
        for space in ("two", "one"):
            assert client("PUT", f"spaces/{space}/addresses/of-{space}", ANYCAST).status == 201
        while "of-one" not in seen:
            seen |= {row["name"] for row in next(events)[1]["items"]}
        assert seen == TENANT.keys() | {"of-one"}
        for space in ("two", "one"):
            assert client("DELETE", f"spaces/{space}/addresses/of-{space}", If_Match="*").status == 204
        assert next(data for _, data in events if data.get("removed"))["removed"] == ["of-one"]
        assert client("PUT", "spaces/one/users/eve", {"permissions": []}, If_Match="*").status == 200
        assert next(data for kind, data in events if kind == "end")["reason"] == "permissions"
    assert client("DELETE", "spaces/one/users/eve", If_Match="*").status == 204


def test_a_stream_in_a_space_looks_at_the_rights_of_its_caller_at_once() -> None:
    rows: Rows[str] = Rows(lambda: ["!!one/a"], str)
    with NamedRows(rows, "one").watched() as watcher:
        assert watcher.take() is None
        watcher.add(())
        asyncio.run(asyncio.wait_for(watcher.wait(), DEADLINE))
        assert watcher.take() == set()
        rows.changed(["!!two/a", "!!one/b", "c"])
        assert watcher.take() == {"b"}


def test_a_tenant_has_its_space_and_learns_of_no_other(client: Client, suite: Suite) -> None:
    everything = [{"allow": ["view", "manage"], "addresses": ["#"]}]
    assert client("PUT", "spaces/one/users/boss", {"permissions": everything, "password": PASSWORD}).status == 201
    with Client(suite) as boss:
        wait_for(lambda: boss.log_in("boss@one", PASSWORD).status == 200, "the user is known")
        assert boss("GET", "me").body["space"] == "one"
        assert [row["name"] for row in boss.items("spaces")] == ["one"]
        for at in ("", "spaces/one/"):
            assert {row["name"] for row in boss.items(f"{at}addresses")} == TENANT.keys()
            assert "boss" in names(boss, f"{at}users") and "root" not in names(boss, f"{at}users")
        assert boss("PUT", "addresses/mine", ANYCAST).status == 201 and boss("PUT", "users/new", {}).status == 201
        assert (suite.config / "spaces/one/addresses.json").read_text().count("mine") == 1
        for space in ("two", "none", "default"):
            for path in (f"spaces/{space}", f"spaces/{space}/addresses"):
                assert boss("GET", path).status == 404, path
        for path in ("brokers", "routers", "components", "queries"):
            assert boss("GET", path).status == 404
        for path in ("spaces/one", "spaces/four", "plans/small", "flavors/f"):
            assert boss("PUT", path, {}, If_Match="*").status == 403
        for path in ("spaces/one", "spaces/two", "spaces/four", "plans/small", "flavors/f"):
            assert "only the operator" in boss("DELETE", path, If_Match="*").body["detail"]
        assert boss("POST", "config", {"kind": "spaces", "set": {"x": {}}}).status == 403
        assert boss("GET", "config").body["files"].keys() <= {
            f"spaces/one/{file}.json" for file in ("addresses", "users", "issuers")
        }
        assert boss("DELETE", "addresses/mine", If_Match="*").status == 204


def test_messages_of_equal_names_are_apart(client: Client) -> None:
    for at in IN:
        ready(client, at, *TENANT)
        assert client("POST", f"{at}addresses/orders/messages", {"body": at}).status == 204
    for at in IN:
        (message,) = waiting(client, f"{at}addresses/orders/messages")
        assert (message["body"], message["to"]) == (at, "orders")
    moved = client("POST", "spaces/one/addresses/orders/move", {"to": "dead"}).body
    assert (moved["address"], moved["done"]) == ("orders", 1), moved
    assert client("POST", "spaces/one/addresses/orders/move", {"to": "none"}).status == 404
    assert [job["address"] for job in client("GET", "spaces/one/jobs").body["items"]][-1] == "orders"
    for at in ("", "spaces/two/"):
        assert client("GET", f"{at}jobs/{moved['id']}").status == 404
        assert moved["id"] not in {job["id"] for job in client("GET", f"{at}jobs").body["items"]}
        assert client("GET", f"{at}addresses/dead/messages").body["items"] == []
    (dead,) = client("GET", "spaces/one/addresses/dead/messages").body["items"]
    assert "!!" not in json.dumps(dead)
    for at in IN:
        for name in ("orders", "dead"):
            client("POST", f"{at}addresses/{name}/purge", {})


def test_a_stream_has_the_changes_of_its_space_only(client: Client, suite: Suite) -> None:
    with Client(suite, Authorization=suite.operator_headers["Authorization"]) as watching:
        events = watching.events("spaces/one/addresses?watch=true&name=seen*")
        assert next(events)[1]["items"] == []
        for at in IN[1:]:
            client("PUT", f"{at}addresses/seen", ANYCAST)
        client("PUT", "spaces/one/addresses/seen-here", ANYCAST)
        _, body = next(events)
        assert [row["name"] for row in body["items"]] == ["seen-here"]
        for at in IN[1:]:
            assert client("DELETE", f"{at}addresses/seen", If_Match="*").status == 204
        assert client("DELETE", "spaces/one/addresses/seen-here", If_Match="*").status == 204
        removed = next(body["removed"] for _, body in events if body["removed"])
        assert removed == ["seen-here"]


def test_a_tenants_broken_file_hurts_that_tenant_alone(client: Client, suite: Suite) -> None:
    file = suite.config / "spaces/two/addresses.json"
    good = file.read_text()
    file.write_text('{"orders": ')
    (error,) = wait_for(lambda: client("GET", "spaces/two/config").body["errors"], "the error is known")
    assert error["file"] == "spaces/two/addresses.json"
    assert client("GET", "spaces/one/config").body["errors"] == []
    assert client("PUT", "spaces/one/addresses/beside", ANYCAST).status == 201
    assert client("PUT", "spaces/two/addresses/beside", ANYCAST).status == 422
    assert names(client, "spaces/two/addresses") == sorted(TENANT), "what was in force stays"
    file.write_text(good)
    wait_for(lambda: not client("GET", "spaces/two/config").body["errors"], "it is mended")
    assert client("DELETE", "spaces/one/addresses/beside", If_Match="*").status == 204


def test_a_space_is_made_with_a_plan_and_removed_with_its_messages(client: Client, suite: Suite) -> None:
    assert sorted(names(client, "plans")) == ["queue", "small"]
    made = client("PUT", "spaces/three", {"plan": "small"})
    assert made.status == 201 and made.body["limits"] == {"addresses": 2}, made
    assert names(client, "spaces/three/plans") == ["queue", "small"] and names(client, "spaces/three/flavors") == []
    for name in ("a", "b"):
        assert client("PUT", f"spaces/three/addresses/{name}", {"plan": "queue"}).status == 201
    refused = client("PUT", "spaces/three/addresses/c", {"plan": "queue"})
    assert refused.status == 422 and "2 of 2 addresses of the plan 'small' are used" in refused.body["detail"]
    assert client("DELETE", "plans/small", If_Match="*").status == 422, "a space has it"
    ready(client, "spaces/three/", "a", "b")
    assert client("POST", "spaces/three/addresses/a/messages", {"body": "kept"}).status == 204
    assert client("DELETE", "spaces/three").status == 428
    assert client("DELETE", "spaces/three", If_Match=client("GET", "spaces/three").etag).status == 204
    wait_for(lambda: names(client, "spaces/three/addresses") == ["a"], "what holds nothing is gone")
    row = client("GET", "spaces/three").body
    assert row["entry"] is None and row["phases"]["Terminating"] == 1
    assert not (suite.config / "spaces/three").exists()
    assert client("DELETE", "spaces/three?force=true").status == 204
    wait_for(lambda: client("GET", "spaces/three").status == 404, "the rest is gone")
    assert client("GET", "config").body["errors"] == []


def test_a_space_shows_what_it_uses_of_its_plan_and_is_refused_beyond(client: Client, suite: Suite) -> None:
    limits = {"storage": 20_000, "sessions": 5, "connections": 7, "maxMessageSize": 5000}
    assert client("PUT", "plans/metered", {"kind": "space", "limits": limits}).status == 201
    assert client("PUT", "spaces/metered", {"plan": "metered"}).status == 201
    for name in ("a", "b"):
        assert client("PUT", f"spaces/metered/addresses/{name}", QUEUE).status == 201
    ready(client, "spaces/metered/", "a", "b")

    def put(at: str, name: str) -> tuple[int, str]:
        answer = client("POST", f"{at}addresses/{name}/messages", {"body": "x" * 1000})
        return answer.status, json.dumps(answer.body)

    def refused() -> bool:
        found = [put("spaces/metered/", name) for name in "ab"]
        return all("the 20000 bytes of storage that the plan of the space allows are used" in text for _, text in found)

    def empty() -> bool:
        for name in "ab":
            assert client("POST", f"spaces/metered/addresses/{name}/purge", {}).status in (200, 202)
        return bool(client("GET", "spaces/metered").body["used"]["storage"] == 0)

    wait_for(refused, "the limit is in force")
    wait_for(empty, "they are empty")
    wait_for(refused, "the storage of the space is used up")
    assert put("", "orders")[0] == put("spaces/one/", "orders")[0] == 204
    used = wait_for(
        lambda: (found := client("GET", "spaces/metered").body["used"])["storage"] > 18_000 and found, "it is shown"
    )
    assert used["storage"] <= 20_000 and used["sessions"] == used["connections"] == 0
    shown = run(suite, "space", "show", "metered")
    for line in (f"storage: {used['storage']} of 20000", "sessions: 0 of 5", "maxMessageSize: at most 5000"):
        assert line in shown
    for at in ("spaces/one/", ""):
        assert client("POST", f"{at}addresses/orders/purge", {}).status in (200, 202)
    assert client("DELETE", "spaces/metered?force=true", If_Match="*").status == 204
    wait_for(lambda: client("GET", "spaces/metered").status == 404, "it is gone")
    assert client("DELETE", "plans/metered", If_Match="*").status == 204


def run(suite: Suite, *arguments: str, status: int = 0) -> str:
    done = suite.command(*arguments, "--port-offset", str(suite.offset))
    assert done.returncode == status, done
    return done.stdout or done.stderr


def test_commands_make_a_space_and_work_in_it(client: Client, suite: Suite, tmp_path: Path) -> None:
    assert "added shop to the running suite" in run(suite, "space", "add", "shop", "--plan", "small")
    assert "already" in run(suite, "space", "add", "shop", status=1)
    run(suite, "space", "set", "shop", 'hosts=["shop.example.com"]')
    assert "no valid plan" in run(suite, "space", "set", "shop", "plan=none", status=1)
    for kind, *words in (("address", "--type", "anycast"), ("user", "--generate")):
        refusal = run(suite, kind, "add", "x", *words, "--space", "nosuch", status=1)
        assert "address space 'nosuch'" in refusal and "already" not in refusal
        assert f"`enmasse space list --port-offset {suite.offset}` shows them" in refusal
    at = ("--space", "shop")
    assert "limits.addresses: 2" in run(suite, "plan", "show", "small")
    of_all, of_space = (json.loads(run(suite, "plan", "list", "--json", *where))["items"] for where in ((), at))
    assert {row["name"]: row["spaces"] for row in of_all}["small"] == ["shop"]
    assert [(row["name"], row["spaces"]) for row in of_space] == [("queue", []), ("small", [])]
    assert "there is no plan 'none'" in run(suite, "plan", "show", "none", status=1)
    (tmp_path / "password").write_text(PASSWORD)
    run(suite, "user", "add", "clerk", "--password-file", str(tmp_path / "password"), *at)
    run(suite, "user", "allow", "clerk", "send,recv", "#", *at)
    assert "clerk" in run(suite, "user", "list", *at) and "clerk" not in run(suite, "user", "list", "--space", "one")
    run(suite, "user", "check", "clerk", "send", "orders", *at)
    entry = ["address", "add", "orders", "--type", "queue", "--set", "plan=queue"]
    assert "added orders to space shop" in run(suite, *entry, *at)
    assert "orders" in run(suite, "address", "list", *at)
    assert json.loads((suite.config / "spaces/shop/addresses.json").read_text()) == {
        "orders": {"type": "queue", "plan": "queue"}
    }
    wait_for(lambda: "1 of 1" in run(suite, "space", "show", "shop"), "the address of the space is ready")
    shown = run(suite, "space", "show", "shop")
    assert "addresses: 1 of 2" in shown and "addressesByType.queue: 1" in shown
    rows = json.loads(run(suite, "space", "list", "--json"))["spaces"]
    assert {row["name"]: row["plan"] for row in rows}["shop"] == "small"
    assert "there is no address 'orders'" not in run(suite, "address", "show", "orders", *at)
    assert client("POST", "spaces/shop/addresses/orders/messages", {"body": "kept"}).status == 204
    assert "kept" in run(suite, "address", "browse", "orders", *at)
    for command in (
        ("connection", "list"),
        ("events",),
        ("top", "--once"),
        ("subscription", "list"),
        ("retained", "list"),
    ):
        assert "!!" not in run(suite, *command, *at)
    assert run(suite, "address", "list", "--space", "none", status=1)
    remaining = suite.command("space", "remove", "shop", "--port-offset", str(suite.offset)).stderr
    assert "holds 1 message: it stays" in remaining and "`enmasse space remove shop --force" in remaining
    wait_for(lambda: "Terminating" in run(suite, "space", "show", "shop"), "its queue holds a message")
    assert "thrown away" in run(suite, "space", "remove", "shop", "--force")
    wait_for(lambda: "shop" not in run(suite, "space", "list"), "it is gone")


def test_commands_that_a_text_proposes_are_those_that_its_reader_can_type(
    client: Client, suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = [{"allow": ["view", "manage"], "addresses": ["#"]}]
    for at, name in (("spaces/one/", "leader"), ("", "keeper")):
        assert client("PUT", f"{at}users/{name}", {"permissions": everything, "password": PASSWORD}).status == 201
    assert client("PUT", "spaces/one/addresses/left", QUEUE).status == 201
    ready(client, "spaces/one/", "left")
    assert client("POST", "spaces/one/addresses/left/messages", {"body": "kept"}).status == 204
    assert client("DELETE", "spaces/one/addresses/left", If_Match="*").status == 204

    def proposed(client: Client, at: str) -> str:
        def found() -> list[str]:
            return re.findall("`(enmasse [^`]*)`", client("GET", f"{at}addresses/left").body["message"])

        return str(wait_for(found, "the text proposes a command")[0])

    force = "enmasse address remove left --force"
    assert proposed(client, "spaces/one/") == f"{force} --space one --port-offset {suite.offset}"
    readers = {"leader@one": ("", force), "keeper": ("spaces/one/", f"{force} --space one")}
    for user, (at, expected) in readers.items():
        with Client(suite) as reader:
            wait_for(partial(_logs_in, reader, user), "the user is known")
            assert proposed(reader, at) == expected

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "pw").write_text(PASSWORD)
    (tmp_path / "pw").chmod(0o600)
    adding = ("context", "add", "team", f"http://127.0.0.1:{8080 + suite.offset}", "--user", "leader@one")
    assert suite.command(*adding, "--password-file", str(tmp_path / "pw")).returncode == 0
    for words in (
        ("space", "add", "more"), ("space", "set", "one", "plan=small"), ("space", "remove", "one"),
        ("flavor", "set", "small-persisted-queue", "BROKERS=2"),
        ("flavor", "add", "more", "--template", "queue-persisted"),
        ("flavor", "remove", "small-persisted-topic"),
    ):  # fmt: skip
        refused = suite.command(*words, "--context", "team")
        assert refused.returncode == 1 and "only the operator may do this" in refused.stderr, refused
    for order in (("scale", "routers=2"), ("restart", "router")):
        refused = suite.command(*order, "--context", "team")
        assert refused.returncode == 1 and "this is of the whole suite" in refused.stderr, refused
    unknown = suite.command("address", "show", "nothing", "--context", "team").stderr
    assert "`enmasse address list --context team`" in unknown
    shown = suite.command("address", "list", "--context", "team").stdout
    assert f"`{force} --context team`" in shown.replace("\n", " "), shown
    assert suite.command(*f"{force} --context team".split()[1:]).returncode == 0
    wait_for(lambda: "left" not in names(client, "spaces/one/addresses"), "the command has done what it says")
    removed = suite.command("user", "remove", "leader", "--context", "team")
    assert removed.returncode == 0 and "removed leader" in removed.stdout, removed


def _logs_in(client: Client, user: str) -> bool:
    return client.log_in(user, PASSWORD).status == 200


def test_lists_without_a_space_have_what_is_in_the_default_one(client: Client, suite: Suite) -> None:
    assert "!!" not in run(suite, "address", "list") and "cast" in run(suite, "address", "list")
    assert "!!one/cast" in run(suite, "status")


def test_config_check_names_a_missing_file_of_spaces(suite: Suite, tmp_path: Path) -> None:
    for path in ("addresses.json", "flavors.json", "spaces/one/users.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("{}")
    done = suite.command("config", "check", str(tmp_path))
    assert done.returncode == 1 and "spaces/one: there is no spaces.json" in done.stderr, done
    (tmp_path / "addresses.json").write_text("{")
    done = suite.command("config", "check", str(tmp_path))
    assert "before it is there" not in done.stderr and "nothing is served before it can be used" in done.stderr, done


def test_config_check_knows_the_folders_of_spaces(suite: Suite, tmp_path: Path) -> None:
    files: dict[str, Any] = {"spaces.json": {"one": {}}, "addresses.json": {}, "flavors.json": {}}
    files |= {"spaces/one/addresses.json": {"a": {"type": "queue"}}, "spaces/two/users.json": {}}
    files |= {"spaces/one/adresses.json": {}, "spaces/Three/users.json": {}}
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(json.dumps(content))
    done = suite.command("config", "check", str(tmp_path), "--json")
    found = {(error["file"], error["entry"]) for error in json.loads(done.stdout)["errors"]}
    assert done.returncode == 1 and found == {
        ("spaces/one/addresses.json", "a"),
        ("spaces/two", None),
        ("spaces/one/adresses.json", None),
        ("spaces/Three", None),
    }


EVERYTHING = [{"allow": ["send", "recv", "view", "manage"], "addresses": ["#"]}]


@pytest.fixture(scope="module")
def browser(suite: Suite) -> Iterator[Browser]:
    with Client(suite, Authorization=suite.operator_headers["Authorization"]) as client:
        entry = {"permissions": EVERYTHING, "password": PASSWORD}
        assert client("PUT", "users/root", entry, If_Match="*").status == 200
        assert client("PUT", "spaces/one/users/owner", entry).status == 201
    with chromium() as browser:
        yield browser


@pytest.fixture
def logged_in(suite: Suite, browser: Browser) -> Iterator[Callable[[str, str], Console]]:
    """Makes a page at a place, of a user who has logged in."""
    opened = []

    def made(user: str, place: str) -> Console:
        wait_for(lambda: Client(suite).log_in(user, PASSWORD).status == 200, "the user is known")
        console = Console(browser, 8080 + suite.offset)
        opened.append(console)
        page = console.page
        page.goto(f"{console.base}/#/{place}")
        page.get_by_label("User").fill(user)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("button", name="Log out").wait_for()
        return console

    yield made
    for each in opened:
        each.close()


@pytest.mark.slow  # the page shows answers of REST, which have a test each; it costs a browser of its own
@pytest.mark.parametrize("user", ["root", "owner@one"])
def test_the_page_shows_one_space_and_the_operator_chooses_it(
    logged_in: Callable[[str, str], Console], user: str
) -> None:
    console = logged_in(user, "addresses")
    page = console.page
    choice = page.get_by_label("Address space", exact=True)
    of_operator = [page.get_by_role("link", name=name) for name in ("Network", "Flavors", "Address spaces")]
    if user == "root":
        expect(page.get_by_role("link", name="myqueue")).to_be_visible()
        for link in of_operator:
            expect(link).to_be_visible()
        choice.select_option("one")
        page.wait_for_url("**/?space=one#/")
        page.goto(f"{console.base}/?space=one#/addresses")
        expect(choice).to_have_value("one")
    else:
        expect(choice).to_have_count(0)
    expect(page.get_by_role("link", name="fed")).to_be_visible()
    expect(page.get_by_role("link", name="myqueue")).to_have_count(0)
    for link in of_operator:
        expect(link).to_have_count(0)


@pytest.mark.slow  # the operations have tests over REST
def test_the_operator_makes_changes_and_removes_plans_and_spaces_on_the_page(
    client: Client, suite: Suite, logged_in: Callable[[str, str], Console]
) -> None:
    console = logged_in("root", "plans")
    page = console.page
    dialog = page.get_by_role("dialog")

    def saved(name: str) -> None:
        dialog.locator("footer button.main").click()
        expect(page.get_by_text(f"{name} is saved.")).to_be_visible()
        expect(dialog).to_have_count(0)

    def refused(field: str, reason: str) -> None:
        """The reason stands at the field, once, and the field has the focus."""
        dialog.locator("footer button.main").click()
        expect(dialog.get_by_label(field, exact=True)).to_be_focused()
        expect(dialog.get_by_label(field, exact=True)).to_have_attribute("aria-invalid", "true")
        expect(dialog.get_by_text(reason)).to_have_count(1)
        expect(dialog).to_contain_text("Nothing was changed: see the fields that are marked.")

    page.get_by_role("button", name="Add plan").click()
    dialog.get_by_role("radio").last.check()
    dialog.get_by_role("textbox", name="Name", exact=True).fill("page-queue")
    dialog.get_by_role("combobox", name="type").select_option("queue")
    dialog.get_by_role("combobox", name="flavor").select_option("small-persisted-queue")
    dialog.get_by_label("maxSize").fill("much")
    refused("maxSize", "'much' is no size")
    dialog.get_by_label("maxSize").fill("1Mi")
    assert console.findings() == []
    saved("page-queue")
    page.get_by_role("button", name="Add plan").click()
    dialog.get_by_role("textbox", name="Name", exact=True).fill("page-plan")
    dialog.get_by_label("page-queue").check()
    dialog.get_by_label("each flavor").uncheck()
    dialog.get_by_label("addresses", exact=True).fill("1")
    dialog.get_by_label("topic", exact=True).fill("x")
    refused("topic", "must be a whole number")
    dialog.get_by_label("topic", exact=True).fill("")
    dialog.get_by_label("maxMessageSize").fill("64Ki")
    saved("page-plan")
    plans = json.loads((suite.config / "plans.json").read_text())
    assert plans["page-queue"] == {
        "kind": "address", "type": "queue", "flavor": "small-persisted-queue", "maxSize": "1Mi",
    }  # fmt: skip
    assert plans["page-plan"] == {
        "kind": "space", "addressPlans": ["page-queue"], "flavors": [],
        "limits": {"addresses": 1, "maxMessageSize": "64Ki"},
    }  # fmt: skip
    assert console.findings() == []

    console.open("users", "Users")
    page.get_by_role("button", name="New user").click()
    dialog.get_by_label("Name").fill("page-user")
    dialog.get_by_label("Groups").fill("@devices")
    refused("Groups", "groups are named without @")
    dialog.get_by_label("Groups").fill("devices")
    dialog.get_by_role("button", name="Add a permission").click()
    dialog.get_by_label("on", exact=True).fill("a/#/b")
    refused("on", "as its last word only")
    assert console.findings() == []
    dialog.get_by_label("on", exact=True).fill("a/#")
    saved("page-user")
    assert client("DELETE", "users/page-user", If_Match="*").status == 204

    console.open("spaces", "Address spaces")
    page.get_by_role("button", name="Add space").click()
    dialog.get_by_role("textbox", name="Name", exact=True).fill("page-space")
    dialog.get_by_role("combobox", name="Plan").select_option("page-plan")
    dialog.get_by_label("Hosts").fill("Page_.example.com")
    refused("Hosts by which clients mean it, beside its name: one a line", "is not the name of a host")
    dialog.get_by_label("Hosts").fill("page.example.com")
    saved("page-space")
    expect(page.get_by_role("heading", level=1)).to_have_text("page-space ready")
    expect(page.get_by_role("meter", name="addresses")).to_have_attribute("aria-valuetext", "0 of 1")
    assert client("PUT", "spaces/page-space/addresses/held", {"plan": "page-queue"}).status == 201
    expect(page.get_by_role("meter", name="addresses")).to_have_attribute("aria-valuetext", "1 of 1")
    expect(page.get_by_role("main")).to_contain_text("at most 64.0 KiB")
    assert console.findings() == []
    page.get_by_role("button", name="Edit").click()
    dialog.get_by_label("Hosts").fill("page.example.com\nother.example.com")
    saved("page-space")
    assert client("GET", "spaces/page-space").body["entry"] == {
        "plan": "page-plan", "hosts": ["page.example.com", "other.example.com"],
    }  # fmt: skip
    console.open("plans", "Plans")
    page.get_by_role("button", name="Edit page-plan").click()
    dialog.get_by_label("addresses", exact=True).fill("2")
    saved("page-plan")
    assert client("GET", "plans/page-plan").body["entry"]["limits"] == {"addresses": 2, "maxMessageSize": 65536}
    console.open("spaces", "Address spaces")
    expect(page.get_by_role("row", name="page-space")).to_contain_text("1 of 2")

    ready(client, "spaces/page-space/", "held")
    assert client("POST", "spaces/page-space/addresses/held/messages", {"body": "kept"}).status == 204
    wait_for(lambda: client("GET", "spaces/page-space/overview").body["messages"] == 1, "the message is counted")
    page.get_by_role("link", name="page-space").click()
    page.get_by_role("button", name="Delete").click()
    expect(dialog).to_contain_text("Stored messages: 1 now")
    expect(dialog.get_by_role("radio", name="Keep them")).to_be_checked()
    assert console.findings() == []
    dialog.get_by_label("Type").fill("page-space")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("page-space terminating")
    expect(page.get_by_role("main")).to_contain_text("1 of its addresses hold messages")
    page.get_by_role("button", name="Delete messages").click()
    dialog.get_by_label("Type").fill("page-space")
    dialog.get_by_role("button", name="Delete messages").click()
    expect(page.get_by_role("heading", level=1, name="Address spaces")).to_be_visible()
    expect(page.get_by_role("row", name="page-space")).to_have_count(0)
    wait_for(lambda: client("GET", "spaces/page-space").status == 404, "the space is gone")
    console.open("plans", "Plans")
    for name in ("page-plan", "page-queue"):
        page.get_by_role("button", name=f"Delete {name}").click()
        dialog.get_by_role("button", name="Delete").click()
        expect(page.get_by_role("button", name=f"Delete {name}")).to_have_count(0)
    assert not {"page-plan", "page-queue"} & json.loads((suite.config / "plans.json").read_text()).keys()


@pytest.mark.slow  # REST of tenants, and the operator's page, have tests
def test_a_tenant_s_page_shows_its_plan_and_makes_addresses_of_it(
    client: Client, logged_in: Callable[[str, str], Console]
) -> None:
    assert client("PUT", "spaces/renter", {"plan": "small"}).status == 201
    assert client("PUT", "spaces/renter/users/owner", {"permissions": EVERYTHING, "password": PASSWORD}).status == 201
    assert client("PUT", "spaces/renter/addresses/first", {"plan": "queue"}).status == 201
    console = logged_in("owner@renter", "")
    page = console.page
    expect(page.get_by_role("meter", name="addresses")).to_have_attribute("aria-valuetext", "1 of 2")
    expect(page.locator(".who")).to_have_text("owner@renter")
    assert console.findings() == []
    console.open("plans", "Plans")
    expect(page.get_by_text("small", exact=True)).to_be_visible()
    expect(page.get_by_text("small-persisted-queue")).to_be_visible()
    expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)
    console.open("spaces", "Unknown page")
    console.open("addresses", "Addresses")
    dialog = page.get_by_role("dialog")
    for name in ("second", "third"):
        page.get_by_role("button", name="New address").click()
        dialog.get_by_role("radio").first.check()
        dialog.get_by_role("textbox", name="Name", exact=True).fill(name)
        expect(dialog.get_by_role("combobox", name="Plan")).to_have_value("queue")
        dialog.get_by_role("button", name="Make it").click()
        if name == "second":
            expect(page.get_by_role("heading", level=1)).to_contain_text("second")
            console.open("addresses", "Addresses")
    expect(dialog).to_contain_text("2 of 2 addresses of the plan 'small' are used: remove one")
    assert client("GET", "spaces/renter/addresses/second").body["entry"]["plan"] == "queue"
    assert client("DELETE", "spaces/renter?force=true", If_Match="*").status == 204
    wait_for(lambda: client("GET", "spaces/renter").status == 404, "the space is gone")


def test_the_document_has_the_operations_of_spaces(client: Client) -> None:
    paths = client("GET", "openapi.json").body["paths"]
    assert "/api/v1/spaces/{space}/addresses/{name}/messages" in paths and "/api/v1/spaces" in paths
    assert "/api/v1/spaces/{space}/brokers" not in paths and "/api/v1/spaces/{space}/login" not in paths
