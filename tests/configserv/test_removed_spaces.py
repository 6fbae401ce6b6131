"""A removed address space keeps its name until nothing of it is left, also when configserv is killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from enmasse.api.types import Change
from enmasse.model.configuration import Applied, apply
from enmasse.model.merged import FilePart
from enmasse.model.tenants.tenancy import NAME_IS_KEPT
from services.configserv.editing import Refused, checked
from tests.configserv.running import Client, Configserv
from tests.configserv.test_spaces import put
from tests.model.test_tenancy import files

Connect = Callable[[], Client]
QUEUE = {"type": "queue", "flavor": "q"}
HOLDERS = ("mqtt_lwt", "storage_controller", "subserv")
BOTH: dict[str, Any] = {"one": {}, "two": {}}


def confirm(client: Client, role: str, ended: dict[str, str]) -> None:
    client.send("usage", {"number": 1, "seen": 0, "role": role, "ended": ended}, link=f"{role} uses")


def waits(status: dict[str, Any], *texts: str) -> bool:
    """Whether the status has the entry that waits, and these texts."""
    reasons = [each["reason"] for each in status["errors"] if NAME_IS_KEPT in each["reason"]]
    return len(reasons) == 1 and all(text in reasons[0] for text in texts)


def test_a_name_is_given_again_when_each_holder_has_nothing_left(service: Configserv, connect: Connect) -> None:
    files: dict[str, Any] = {"addresses.json": {}, "users.json": {"admin": {}}, "spaces.json": BOTH}
    files |= {"spaces/one/addresses.json": {"orders": QUEUE}}
    for path, content in files.items():
        put(service.config, path, content)
    service.file.write_text(json.dumps({**service.settings, "holders": HOLDERS}))
    service.start()
    client = connect()
    for reporter in ("ragent", "storage_controller"):
        client.ready(reporter, "!!one/orders")
    client.phases(**{"!!one/orders": "Active"})

    put(service.config, "spaces.json", {"two": {}})
    removal = client.find("addresses", lambda body: body.get("ending"))["ending"]
    assert removal.keys() == {"one"}
    put(service.config, "spaces.json", BOTH)
    client.find("status", lambda body: waits(body, "'orders'"))
    for reporter in ("ragent", "storage_controller"):
        client.send("readiness", {"addresses": {}, "removed": ["!!one/orders"]}, subject="change", link=reporter)
    client.find("status", lambda body: waits(body, ": storage_controller has yet"))
    assert "ending" not in client.next("permissions/changes"), "brokers first: what they hold comes to the others"

    confirm(client, "storage_controller", {"one": "of another removal"})
    confirm(client, "subserv", removal)
    service.kill()
    service.start()
    client = connect()
    assert client.next("addresses")["ending"] == removal, "it survives SIGKILL, and all are asked again"
    client.find("status", lambda body: waits(body, ": storage_controller has yet"))
    confirm(client, "storage_controller", removal)
    assert client.find("permissions/changes", lambda body: body.get("ending"))["ending"] == removal
    client.find("status", lambda body: waits(body, ": mqtt_lwt, subserv has yet"))
    confirm(client, "subserv", removal)
    client.find("status", lambda body: waits(body, ": mqtt_lwt has yet"))
    confirm(client, "mqtt_lwt", removal)
    found = client.find("permissions/changes", lambda body: "one" in body["spaces"])
    assert "ending" not in found and "ending" not in client.find(
        "addresses", lambda body: "!!one/orders" in body["addresses"]
    )
    client.find("status", lambda body: not body["errors"])

    put(service.config, "spaces.json", {"two": {}})
    again = client.find("addresses", lambda body: body.get("ending"))["ending"]
    assert again["one"] != removal["one"], "what was confirmed for the first removal says nothing of the second one"


def test_an_edit_that_takes_such_a_name_is_refused_with_what_is_left() -> None:
    contents = files(spaces={"two": {}}, spaces__one__addresses=None)
    before = apply(contents, apply(files(spaces=BOTH), Applied()))
    source = FilePart("spaces.json", b'{"two": {}}')
    change, left = Change(kind="spaces", set={"one": {}}), {"one": "'orders': holds 3 messages"}
    with pytest.raises(Refused, match=f"{NAME_IS_KEPT}: 'orders': holds 3 messages"):
        checked(change, contents, [source], "spaces.json", before, left=left)
    texts, _ = checked(Change(kind="spaces", set={"six": {}}), contents, [source], "spaces.json", before, left=left)
    assert json.loads(texts["spaces.json"]).keys() == {"two", "six"}
    texts, _ = checked(change, contents, [source], "spaces.json", before)
    assert json.loads(texts["spaces.json"]).keys() == BOTH.keys(), "when nothing is left"


def test_another_edit_is_not_refused_for_an_entry_that_waits() -> None:
    before = apply(files(spaces={"two": {}}), apply(files(spaces=BOTH), Applied()))
    contents = files(spaces=BOTH)
    waiting = apply(contents, before, left={"one": "3 messages"})
    assert waiting.judged.keys() == {"two"} and [each.entry for each in waiting.problems] == ["one"]
    source = FilePart("spaces.json", json.dumps(BOTH).encode())
    change = Change(kind="spaces", set={"six": {}})
    texts, _ = checked(change, contents, [source], "spaces.json", waiting, left={"one": "2 messages"})
    assert "six" in json.loads(texts["spaces.json"])


def test_a_space_is_not_added_to_files_of_an_earlier_one() -> None:
    """configserv may be killed between the edit that removes a space and the removal of its files: its users must not
    be those of another tenant's space."""
    contents = files(spaces={"two": {}}, spaces__one__users={"alice": {}})
    before = apply(contents, Applied())
    source = FilePart("spaces.json", b'{"two": {}}')
    with pytest.raises(Refused) as refused:
        checked(Change(kind="spaces", set={"one": {}}), contents, [source], "spaces.json", before)
    assert {each.file for each in refused.value.errors} == {"spaces/one/addresses.json", "spaces/one/users.json"}
    checked(Change(kind="spaces", set={"six": {}}), contents, [source], "spaces.json", before)
