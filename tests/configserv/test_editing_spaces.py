"""Changes of single entries in address spaces, and of the spaces and plans themselves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enmasse.api.types import Change, ChangeResult
from enmasse.control import connect as dial
from enmasse.model.configuration import Applied, apply
from enmasse.model.etags import etag
from enmasse.model.merged import FilePart
from enmasse.model.names import DEFAULT_SPACE
from enmasse.process.settings import host_port
from services.configserv.drivers import FilesDriver, directory
from services.configserv.editing import Refused, checked, file_of
from services.console.request_links import Requester
from tests.configserv.running import Client, Configserv
from tests.configserv.test_spaces import put
from tests.kit.waiting import DEADLINE, until
from tests.model.test_tenancy import file, files

Connect = Callable[[], Client]
QUEUE, ANYCAST = {"type": "queue", "flavor": "q"}, {"type": "anycast"}
PLANS: dict[str, Any] = {
    "queue": {"kind": "address", "type": "queue", "flavor": "q", "maxSize": "1Mi"},
    "small": {"kind": "space", "addressPlans": ["queue"], "flavors": [], "limits": {"addresses": 2}},
}


def changed(change: Change, space: str = DEFAULT_SPACE, **more: Any) -> tuple[Any, dict[str, str], Applied]:
    """The entries of the file after a change of a space, the etags, and what was in force before."""
    contents = files(**more)
    before = apply(contents, Applied())
    path = file_of(change.kind, space, before)
    data = contents.get(path)
    source = FilePart(path, data if isinstance(data, bytes) else b"{}\n")
    texts, etags = checked(change, contents, [source], path, before, space)
    return json.loads(texts.get(path, source.data)), etags, before


def test_the_file_of_the_space_changes_and_etags_are_those_of_its_entries() -> None:
    entry = {**QUEUE, "deadletter": "a"}
    after, etags, before = changed(
        Change(kind="addresses", set={"b": entry}, if_={"b": None}), "one", spaces__one__addresses={"a": QUEUE}
    )
    assert after == {"a": QUEUE, "b": entry}
    again, _, _ = changed(
        Change(kind="addresses", set={"b": QUEUE}, if_={"b": etags["b"]}), "one", spaces__one__addresses=after
    )
    assert again == {"a": QUEUE, "b": QUEUE}
    (first, *_) = before.judged["one"].addresses.values()
    given = {"spaces__one__addresses": {"a": QUEUE}}
    assert changed(Change(kind="addresses", set={"a": QUEUE}), "one", **given)[1] == {"a": etag(first)}


@pytest.mark.parametrize(
    ("kind", "entry"), [("users", {"groups": []}), ("issuers", {"issuer": "https://id.example.com", "audience": "me"})]
)
def test_files_that_a_space_does_not_have_yet_begin_with_an_edit(kind: Any, entry: Any) -> None:
    after, etags, _ = changed(Change(kind=kind, set={"x": entry}, if_={"x": None}), "one")
    assert after == {"x": entry} and etags.keys() == {"x"}


def refused(change: Change, space: str = DEFAULT_SPACE, **more: Any) -> list[tuple[str, str | None, str | None, str]]:
    with pytest.raises(Refused) as error:
        changed(change, space, **more)
    return [(each.file, each.entry, each.field, each.reason) for each in error.value.errors]


def test_what_would_be_invalid_is_refused_with_the_place_in_the_file_of_the_space() -> None:
    (found,) = refused(Change(kind="addresses", set={"b": {"type": "queue"}}), "one")
    assert found[:3] == ("spaces/one/addresses.json", "b", "flavor")
    (found,) = refused(Change(kind="users", set={"u": {"groups": ["none"], "colour": 1}}), "one")
    assert found[:3] == ("spaces/one/users.json", "u", "colour")


def test_a_plan_is_judged_at_the_edit_with_the_number_and_the_remedy() -> None:
    given: dict[str, Any] = {"plans": PLANS, "spaces": {"one": {"plan": "small"}}}
    given["spaces__one__addresses"] = {"a": {"plan": "queue"}, "b": {"plan": "queue"}}
    (found,) = refused(Change(kind="addresses", set={"c": {"plan": "queue"}}), "one", **given)
    assert found[1] == "c" and found[3].startswith("2 of 2 addresses of the plan 'small' are used: remove one")
    (found,) = refused(Change(kind="addresses", set={"b": QUEUE}), "one", **given)
    assert "has no flavor 'q'" in found[3]
    after, etags, _ = changed(Change(kind="addresses", set={"b": {"plan": "queue", "maxSize": "9"}}), "one", **given)
    assert after["b"] == {"plan": "queue", "maxSize": "9"}
    given["spaces__one__addresses"] = after
    changed(Change(kind="addresses", remove=["b"], if_={"b": etags["b"]}), "one", **given)


def test_spaces_and_plans_have_etags_and_are_judged() -> None:
    given: dict[str, Any] = {"plans": PLANS, "spaces": {"one": {}}}
    after, etags, _ = changed(Change(kind="spaces", set={"three": {"plan": "small"}}, if_={"three": None}), **given)
    assert after == {"one": {}, "three": {"plan": "small"}}
    given["spaces"] = after
    changed(Change(kind="spaces", set={"three": {}}, if_={"three": etags["three"]}), **given)
    _, etags, _ = changed(Change(kind="plans", set={"small": PLANS["small"]}), **given)
    changed(Change(kind="plans", set={"small": {"kind": "space"}}, if_={"small": etags["small"]}), **given)
    (found,) = refused(Change(kind="spaces", set={"four": {"plan": "none"}}), **given)
    assert found[:3] == ("spaces.json", "four", "plan")
    (found,) = refused(Change(kind="plans", remove=["small"]), **given)
    assert found[:3] == ("spaces.json", "three", "plan"), "a space has this plan"
    assert refused(Change(kind="spaces", set={"default": {}}))[0][1] == "default"


def test_what_is_of_all_spaces_or_of_no_space_is_refused() -> None:
    assert "belongs to all address spaces" in refused(Change(kind="flavors", set={}), "one")[0][3]
    assert refused(Change(kind="users", set={"u": {}}), "none")[0][:2] == ("spaces.json", "none")


def test_a_file_that_is_gone_is_not_begun_again() -> None:
    before = apply(files(spaces__one__users={"alice": {}}), Applied())
    now = apply(files(), before)
    with pytest.raises(Refused, match="put it back first"):
        change = Change(kind="users", set={"bob": {}})
        checked(change, files(), [FilePart("spaces/one/users.json", b"{}")], "spaces/one/users.json", now, "one")


def test_a_space_goes_with_its_files_and_anothers_faults_do_not_matter() -> None:
    broken = file(b"{")
    after, _, _ = changed(Change(kind="spaces", remove=["one"]), spaces__two__addresses=broken)
    assert after == {"two": {}}


def test_what_was_edited_is_looked_at_out_of_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "PORTION", 0)  # no turn comes

    async def edit() -> None:
        seen: list[Any] = []
        name = "spaces/one/users.json"
        driver = FilesDriver(str(tmp_path))
        driver.start(seen.append)
        await driver.edit(name, lambda sources, home: {home: b"{ }"})
        await until(lambda: seen[-1].get(name) == b"{ }")
        await driver.remove_files("one")
        await until(lambda: seen[-1].get(name) is None)
        driver.close()

    asyncio.run(edit())


@asynccontextmanager
async def console(service: Configserv) -> AsyncIterator[Callable[..., Any]]:
    """Yield a function that makes a change of a space, or only checks it."""
    connection = await dial(*host_port(service.settings["listen"]), container="console")
    requester = Requester(connection, "configure")

    async def make(kind: Any, space: str = DEFAULT_SPACE, **change: Any) -> ChangeResult:
        body = msgspec.to_builtins(Change(kind=kind, **change)) | {"space": space, "who": "me", "client": "here"}
        return msgspec.json.decode(await requester.ask(body, 20), type=ChangeResult)

    try:
        yield make
    finally:
        connection.close()


def served(service: Configserv) -> Configserv:
    service.file.write_text(json.dumps(service.settings))
    return service.start()


def test_an_edit_of_one_space_is_in_force_at_once_while_anothers_file_is_broken(
    service: Configserv, connect: Connect
) -> None:
    put(service.config, "spaces.json", {"one": {}, "two": {}})
    put(service.config, "spaces/two/addresses.json", {"a": QUEUE})
    client = connect_to(served(service), connect)
    put(service.config, "spaces/two/addresses.json", '{"a": ')
    client.find("status", lambda body: body["errors"])

    async def edit() -> None:
        async with console(service) as make:
            for kind, entries in (("addresses", {"a": ANYCAST}), ("users", {"alice": {}})):
                assert (await make(kind, "one", set=entries, check=True)).accepted
                assert not (service.config / f"spaces/one/{kind}.json").exists(), "a check writes nothing"
                assert (await make(kind, "one", set=entries)).accepted
            refused = await make("addresses", "two", set={"b": ANYCAST})
            assert not refused.accepted and refused.errors[0].file == "spaces/two/addresses.json"

    asyncio.run(edit())
    found = client.find("addresses", lambda body: "!!one/a" in body["addresses"])
    assert found["addresses"] == {"!!one/a": ANYCAST, "!!two/a": QUEUE}
    found = client.find("permissions/changes", lambda body: body.get("in_spaces"))
    assert found["in_spaces"].keys() == {"!!one/alice"}
    audited = [json.loads(line) for line in Path(service.settings["audit"]).read_text().splitlines()]
    assert ("addresses: a", "one") in {(line["what"], line.get("space")) for line in audited}
    assert "spaces/one/users.json" in {line["from"] for line in audited if line["event"] == "audit.users.changed"}


def test_a_space_is_added_changed_and_removed_with_its_files(service: Configserv, connect: Connect) -> None:
    client = connect_to(served(service), connect)
    spaces = service.config / "spaces"

    async def edit() -> None:
        async with console(service) as make:
            assert (await make("plans", set=PLANS)).accepted
            await until_known(lambda: make("spaces", set={"one": {"plan": "small"}}))
            await until_known(lambda: make("addresses", "one", set={"a": {"plan": "queue"}}))
            assert client.find("spaces", lambda body: body["spaces"])["spaces"] == {"one": {"plan": "small"}}
            client.find("addresses", lambda body: body["addresses"])
            assert (await make("spaces", remove=["one"], if_={"one": "*"})).accepted

    asyncio.run(edit())
    assert client.find("addresses", lambda body: not body["addresses"])
    assert not list(spaces.iterdir()) and json.loads((service.config / "spaces.json").read_text()) == {}
    assert not client.find("status", lambda body: not body["errors"])["errors"]


def connect_to(service: Configserv, connect: Connect) -> Client:
    client = connect()
    client.next("addresses")
    client.next("spaces")
    return client


async def until_known(make: Callable[[], Any]) -> None:
    """Repeat a change until what it builds on is in force."""
    async with asyncio.timeout(DEADLINE):
        while not (await make()).accepted:
            await asyncio.sleep(0.01)  # limit: between two tries
