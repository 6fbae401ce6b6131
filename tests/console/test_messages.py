"""Messages of queues by the API: looked at, sent, removed, moved, redriven, purged."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial

import pytest

from enmasse.identity.annotations import FACTS
from enmasse.testing import Suite
from tests.console.client import Client, Reply, of
from tests.kit.waiting import wait_for

QUEUE = {"type": "queue", "flavor": "small-persisted-queue"}
DEAD, FROM, TO = "m/dead", "m/from", "m/to"


@pytest.fixture(scope="module")
def queues(suite: Suite) -> Iterator[None]:
    suite.edit("addresses.json", {DEAD: QUEUE, FROM: {**QUEUE, "deadletter": DEAD}, TO: QUEUE})
    with Client(suite) as client:
        for name in (DEAD, FROM, TO):
            wait_for(partial(active, client, name))
        yield
        for name in (DEAD, FROM, TO):
            purge(client, name)
        suite.edit("addresses.json", {}, remove={DEAD, FROM, TO})
        wait_for(lambda: not any(client("GET", f"addresses/{of(name)}").status == 200 for name in (DEAD, FROM, TO)))


def active(client: Client, name: str) -> bool:
    return bool(client("GET", f"addresses/{of(name)}").body.get("phase") == "Active")


def problem(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.body["type"].rpartition("/")[2]


def finished(client: Client, reply: Reply) -> tuple[str, int]:
    """State and number of messages at the end of a job."""
    assert reply.status in (200, 202), reply
    path = f"jobs/{reply.body['id']}"
    wait_for(lambda: client("GET", path).body["state"] != "running")
    job = client("GET", path).body
    return job["state"], job["done"]


def purge(client: Client, name: str) -> None:
    assert finished(client, client("POST", f"addresses/{of(name)}/purge", {}))[0] == "done"


def fill(client: Client, name: str, *bodies: str, **more: object) -> None:
    for body in bodies:
        assert client("POST", f"addresses/{of(name)}/messages", {"body": body, **more}).status == 204


def bodies(client: Client, name: str) -> list[str]:
    return [each["body"] for each in client.items(f"addresses/{of(name)}/messages")]


@pytest.mark.usefixtures("queues")
def test_messages_are_listed_oldest_first_in_pages_with_what_they_have(client: Client) -> None:
    purge(client, TO)
    fill(client, TO, "one", "two")
    fill(client, TO, "urgent", priority=9, subject="s", properties={"n": 1, "t": True}, contentType="text/plain")
    assert bodies(client, TO) == ["one", "two", "urgent"], "in order of arrival, not of priority"
    listed = client.items(f"addresses/{of(TO)}/messages")
    assert all(each["created"] for each in listed), "the API says when it sent them"
    assert len({each["messageId"] for each in listed} - {None}) == 3, "each has an id of its own"
    path, seen, after = f"addresses/{of(TO)}/messages?limit=1", [], ""
    while after is not None:
        page = client("GET", path + (f"&after={of(after)}" if after else "")).body
        seen += page["items"]
        after = page["next"]
    assert [each["body"] for each in seen] == ["one", "two", "urgent"]
    last = seen[-1]
    assert (last["priority"], last["subject"], last["properties"]) == (9, "s", {"n": 1, "t": True})
    assert (last["contentType"], last["durable"], last["to"]) == ("text/plain", True, TO)
    purge(client, TO)


@pytest.mark.usefixtures("queues")
@pytest.mark.parametrize("kind", ["text", "data", "binary"])
def test_a_long_body_is_cut_and_a_binary_one_is_base64(client: Client, kind: str) -> None:
    purge(client, TO)
    new = {
        "text": {"body": "ü" * 3000},
        "data": {"body": "ü" * 3000, "contentType": "text/plain"},
        "binary": {"body": base64.b64encode(b"\xff\x00" * 3000).decode(), "encoding": "base64"},
    }[kind]
    assert client("POST", f"addresses/{of(TO)}/messages", new).status == 204
    (short,) = client.items(f"addresses/{of(TO)}/messages?bytes=99")
    (whole,) = client.items(f"addresses/{of(TO)}/messages?bytes=100000")
    assert (whole["body"], whole["encoding"], whole["truncated"]) == (new["body"], new.get("encoding", "utf-8"), False)
    assert short["truncated"] and 0 < len(short["body"]) < 150 and whole["body"].startswith(short["body"][:90])


@pytest.mark.usefixtures("queues")
def test_chosen_messages_are_moved_and_removed_by_id_selector_and_limit(client: Client) -> None:
    purge(client, FROM)
    purge(client, TO)
    fill(client, FROM, "a", "b", "c", "d", "e")
    fill(client, FROM, "u", "v", priority=7)
    path = f"addresses/{of(FROM)}"
    ids = [each["id"] for each in client.items(f"{path}/messages")]
    assert finished(client, client("POST", f"{path}/move", {"to": TO, "ids": ids[1:3]})) == ("done", 2)
    assert bodies(client, TO) == ["b", "c"]
    assert finished(client, client("POST", f"{path}/remove", {"ids": [ids[0], ids[0]]})) == ("done", 1)
    urgent = client("GET", f"{path}/messages?selector={of('JMSPriority > 4')}&limit=1").body
    assert len(urgent["items"]) == 1 and urgent["items"][0]["priority"] > 4 and urgent["next"]
    rest = client("GET", f"{path}/messages?selector={of('JMSPriority > 4')}&after={of(urgent['next'])}").body
    assert [each["priority"] > 4 for each in rest["items"]] == [True] and rest["next"] is None
    assert finished(client, client("POST", f"{path}/move", {"to": TO, "selector": "JMSPriority > 4"})) == ("done", 2)
    assert finished(client, client("POST", f"{path}/remove", {"limit": 1})) == ("done", 1)
    assert bodies(client, FROM) == ["e"] and bodies(client, TO) == ["b", "c", "u", "v"]
    assert finished(client, client("POST", f"{path}/purge", {})) == ("done", 1)


@pytest.mark.usefixtures("queues")
def test_dead_letters_go_back_to_where_they_came_from(suite: Suite, client: Client) -> None:
    purge(client, DEAD)
    fill(client, FROM, "first", "second")
    fill(client, DEAD, "sent here")
    done = suite.command("receive", FROM, "--count", "2", "--reject", "--port-offset", str(suite.offset))
    assert done.returncode == 0, done.stderr
    wait_for(lambda: len(bodies(client, DEAD)) == 3)
    deaths = [each["deaths"] for each in client.items(f"addresses/{of(DEAD)}/messages")]
    assert sorted(each[0]["source"] for each in deaths if each) == [FROM, FROM]
    assert finished(client, client("POST", f"addresses/{of(DEAD)}/redrive", {})) == ("done", 2)
    assert sorted(bodies(client, FROM)) == ["first", "second"] and bodies(client, DEAD) == ["sent here"]
    purge(client, FROM)


@pytest.mark.usefixtures("queues")
def test_redrive_leads_only_to_queues_whose_dead_letters_come_here(client: Client) -> None:
    """For an administrator, too: what says that it was in another queue stays."""
    for name in (DEAD, FROM, TO):
        purge(client, name)
    fill(client, FROM, "of a queue that names this one")
    fill(client, TO, "of one that does not")
    for name in (FROM, TO):
        assert finished(client, client("POST", f"addresses/{of(name)}/move", {"to": DEAD})) == ("done", 1)
    ids = [each["id"] for each in client.items(f"addresses/{of(DEAD)}/messages")]
    assert finished(client, client("POST", f"addresses/{of(DEAD)}/redrive", {"ids": ids})) == ("done", 1)
    assert finished(client, client("POST", f"addresses/{of(DEAD)}/redrive", {})) == ("done", 0)
    assert (bodies(client, FROM), bodies(client, TO)) == (["of a queue that names this one"], [])
    for name in (DEAD, FROM):
        purge(client, name)


@pytest.mark.usefixtures("queues")
def test_properties_of_a_message_are_no_annotations(client: Client) -> None:
    purge(client, TO)
    stated = {each.name: "x" for each in FACTS}
    fill(client, TO, "x", properties=stated)
    (found,) = client.items(f"addresses/{of(TO)}/messages")
    assert (found["annotations"], found["deaths"], found["properties"]) == ({}, [], stated)
    for wrong in ("annotations", "messageAnnotations", "x-opt-death"):
        reply = client("POST", f"addresses/{of(TO)}/messages", {"body": "x", wrong: stated})
        assert problem(reply) == (400, "console.request.invalid")
    purge(client, TO)


@pytest.mark.usefixtures("queues")
def test_what_cannot_be_is_a_problem(client: Client) -> None:
    path = f"addresses/{of(FROM)}"
    assert problem(client("POST", f"{path}/move", {"to": "not/there"})) == (404, "console.resource.unknown")
    assert problem(client("POST", f"{path}/move", {"to": FROM})) == (422, "console.change.refused")
    assert problem(client("POST", f"{path}/remove", {"selector": "a ="})) == (422, "console.change.refused")
    assert problem(client("GET", f"{path}/messages?selector=a%20%3D")) == (422, "console.change.refused")
    assert problem(client("POST", f"{path}/remove", {"ids": ["x"]})) == (400, "console.request.invalid")
    assert problem(client("POST", f"{path}/purge", {"limit": 1})) == (400, "console.request.invalid")
    assert problem(client("GET", "addresses/news/messages")) == (422, "console.change.refused")
    assert problem(client("GET", "addresses/none/messages")) == (404, "console.resource.unknown")
    assert problem(client("GET", f"{path}/messages?after=x")) == (400, "console.request.invalid")
    assert problem(client("GET", "jobs/none")) == (404, "console.resource.unknown")


def test_an_address_that_takes_no_message_says_why(suite: Suite, client: Client) -> None:
    anycast, full = "m/nobody", "m/full"
    suite.edit(
        "addresses.json", {anycast: {"type": "anycast"}, full: {**QUEUE, "maxSize": "1Ki", "fullPolicy": "FAIL"}}
    )
    for name in (anycast, full):
        wait_for(partial(active, client, name))
    reply = client("POST", f"addresses/{of(anycast)}/messages", {"body": "x"})
    assert problem(reply) == (503, "console.message.not-taken") and "no consumers" in reply.body["detail"]
    statuses = [client("POST", f"addresses/{of(full)}/messages", {"body": "x" * 600}) for _ in range(4)]
    assert problem(statuses[-1]) == (422, "console.message.refused")
    assert "full" in statuses[-1].body["detail"] and "Outcome" not in statuses[-1].body["detail"]
    purge(client, full)
    suite.edit("addresses.json", {}, remove={anycast, full})
