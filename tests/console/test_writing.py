"""Changes of the configuration by the API."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from enmasse.testing import Suite
from tests.console.client import Client, Reply, of
from tests.kit.waiting import wait_for

QUEUE = {"type": "queue", "flavor": "small-persisted-queue"}
ODD = 'a-"<b>&'


@pytest.fixture
def name(client: Client) -> Iterator[str]:
    """The name of an address that is gone at the end: others count the addresses of the suite."""
    yield "made/here"
    client("DELETE", f"addresses/{of('made/here')}", If_Match="*")
    wait_for(lambda: client("GET", f"addresses/{of('made/here')}").status == 404, "the address is gone")


def problem(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.body["type"].rpartition("/")[2]


def test_an_address_is_made_changed_and_removed(name: str, suite: Suite, client: Client) -> None:
    path, file = f"addresses/{of(name)}", suite.config / "addresses.json"
    before = file.read_text()
    made = client("PUT", path, {"type": "anycast"})
    assert (made.status, made.body["entry"]) == (201, {"type": "anycast"})
    assert problem(client("PUT", path, {"type": "anycast"})) == (428, "console.etag.missing")
    changed = client("PUT", path, QUEUE, If_Match=made.etag)
    assert (changed.status, changed.body["entry"]) == (200, QUEUE) and changed.etag != made.etag
    assert problem(client("PUT", path, QUEUE, If_Match=made.etag)) == (412, "console.etag.differs")
    merge_patch = "application/merge-patch+json"
    patched = client("PATCH", path, {"maxSize": "1Mi"}, If_Match=changed.etag, Content_Type=merge_patch)
    assert patched.body["entry"] == {**QUEUE, "maxSize": 1 << 20}
    assert client("GET", path).etag == patched.etag, "what was written is read"
    patched = client("PATCH", path, {"maxSize": None}, If_Match=patched.etag)
    assert patched.body["entry"] == QUEUE
    assert json.loads(file.read_text())[name] == QUEUE
    wait_for(lambda: client("GET", path).body["phase"] == "Active")
    assert client("DELETE", path, If_Match=patched.etag).status == 204
    assert file.read_text() == before
    wait_for(lambda: client("GET", path).status == 404)


def test_what_is_invalid_changes_nothing_and_names_the_field(suite: Suite, client: Client) -> None:
    before = (suite.config / "addresses.json").read_text()
    refused = client("PUT", "addresses/new", {**QUEUE, "maxSize": "much"})
    assert problem(refused) == (422, "console.change.refused")
    assert {**refused.body["errors"][0], "line": 0, "reason": ""} == {
        "file": "addresses.json", "entry": "new", "field": "maxSize", "line": 0, "reason": "", "since": None,
    }  # fmt: skip
    refused = client("PUT", "addresses/new", {**QUEUE, "maxSize": "much", "fullPolicy": "some"})
    assert [each["field"] for each in refused.body["errors"]] == ["maxSize", "fullPolicy"], "a form marks all of them"
    refused = client("PUT", f"addresses/{of(ODD)}", {"type": "nonsense"})
    assert refused.body["errors"][0]["entry"] == ODD
    assert problem(client("PUT", "addresses/new", b"[1]")) == (400, "console.request.invalid")
    assert problem(client("PUT", "addresses/new", b"{", Content_Type="text/plain")) == (415, "console.type.unsupported")
    assert problem(client("PUT", "addresses/new", QUEUE, If_Match="a, b")) == (400, "console.request.invalid")
    assert problem(client("PUT", "addresses/new", QUEUE, If_Match='"0"')) == (412, "console.etag.differs")
    assert problem(client("DELETE", "addresses/none", If_Match="*")) == (404, "console.resource.unknown")
    assert (suite.config / "addresses.json").read_text() == before


def test_an_unknown_field_of_a_body_is_refused_by_its_name(client: Client) -> None:
    """Of every request, but for entries, whose fields are those of the files."""
    refused = client("POST", "config", {"kind": "addresses", "sett": {"new": QUEUE}})
    assert problem(refused) == (400, "console.request.invalid") and "unknown field `sett`" in refused.body["detail"]
    document = client("GET", "openapi.json").body
    schemas, found = document["components"]["schemas"], set()
    for path in document["paths"].values():
        for operation in path.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                name = content["schema"].get("$ref", "").rpartition("/")[2]
                if name:
                    found.add(name)
                    assert schemas[name]["additionalProperties"] is False, name
    assert found >= {"Change", "Login", "Move", "NewMessage", "Selected"}


def test_a_change_can_be_checked_without_being_made(suite: Suite, client: Client) -> None:
    before = (suite.config / "addresses.json").read_text()
    good = client("POST", "config", {"kind": "addresses", "set": {"new": QUEUE}, "if": {"new": None}})
    assert good.body["accepted"] and set(good.body["etags"]) == {"new"}
    bad = client("POST", "config", {"kind": "addresses", "set": {"new": {"type": "x"}}}).body
    assert not bad["accepted"] and bad["errors"][0]["field"] == "type"
    assert (suite.config / "addresses.json").read_text() == before


def test_flavors_and_the_addresses_that_need_them(name: str, client: Client) -> None:
    flavor = {"type": "queue", "templateName": "queue-inmemory"}
    made = client("PUT", "flavors/mine", flavor)
    assert (made.status, made.body["type"]) == (201, "queue")
    assert client("PUT", f"addresses/{of(name)}", {**QUEUE, "flavor": "mine"}).status == 201
    refused = client("DELETE", "flavors/mine", If_Match=made.etag)
    assert problem(refused) == (422, "console.change.refused") and name in refused.body["detail"]
    assert client("DELETE", f"addresses/{of(name)}", If_Match="*").status == 204
    assert client("DELETE", "flavors/mine", If_Match=made.etag).status == 204
    assert client("GET", "flavors/mine").status == 404


def test_edits_by_hand_and_by_the_api_stay_beside_each_other(suite: Suite, client: Client) -> None:
    file = suite.config / "addresses.json"
    for number in range(10):
        text = file.read_text()
        file.write_text(text.replace("{", f'{{ "hand-{number}": {{"type": "anycast"}}, ', 1))  # in place, as some do
        assert client("PUT", f"addresses/api-{number}", {"type": "anycast"}).status == 201
    found = json.loads(file.read_text())
    made = {f"{who}-{number}" for who in ("hand", "api") for number in range(10)}
    assert made <= found.keys()
    suite.edit("addresses.json", {}, remove=made)
    wait_for(lambda: not made & {each["name"] for each in client.items("addresses?limit=1000")})


def test_a_killed_configserv_has_made_a_change_or_not(name: str, suite: Suite, client: Client) -> None:
    path, file = f"addresses/{of(name)}", suite.config / "addresses.json"
    before = file.read_text()
    os.kill(suite.component("configserv")["pid"], signal.SIGKILL)
    reply = client("PUT", path, {"type": "anycast"})
    if reply.status == 201:
        assert name in json.loads(file.read_text())
    else:
        assert problem(reply)[1] in ("console.service.failed", "console.service.unavailable"), reply
        assert file.read_text() == before or name in json.loads(file.read_text())
    suite.wait_ready()

    def written() -> bool:
        exists = client("GET", path).status == 200
        headers = {"If_Match": "*"} if exists else {}
        return client("PUT", path, {"type": "multicast"}, **headers).status in (200, 201)

    wait_for(written)
    assert json.loads(file.read_text())[name] == {"type": "multicast"}
