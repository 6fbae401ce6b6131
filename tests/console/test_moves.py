"""Moves of messages from a queue of one broker to a queue of another, with every process killed in their middle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPException
from threading import Thread
from typing import Any

import pytest

from enmasse.testing import Suite
from services.console.jobs.moves import WINDOW
from tests.console.client import Client, Reply, of
from tests.console.test_messages import QUEUE, active, bodies, fill, finished, problem, purge
from tests.kit.waiting import wait_for

NEAR, FAR, DEAD = "near", "far", "near/dead"
FLAVOR = {"type": "queue", "templateName": "queue-persisted", "templateParameters": {"MEMORY": "512Mi"}}
MANY = 3000


@pytest.fixture(scope="module")
def queues(suite: Suite) -> Iterator[None]:
    suite.edit("flavors.json", {"far-queue": FLAVOR})
    suite.edit(
        "addresses.json", {DEAD: QUEUE, NEAR: {**QUEUE, "deadletter": DEAD}, FAR: {**QUEUE, "flavor": "far-queue"}}
    )
    with Client(suite) as client:
        for name in (DEAD, NEAR, FAR):
            wait_for(partial(active, client, name))
        places = {tuple(client("GET", f"addresses/{of(name)}").body["brokers"]) for name in (NEAR, FAR)}
        assert len(places) == 2, "both are on one broker"
        yield
        for name in (DEAD, NEAR, FAR):
            purge(client, name)
        suite.edit("addresses.json", {}, remove={DEAD, NEAR, FAR})
        wait_for(lambda: not any(client("GET", f"addresses/{of(name)}").status == 200 for name in (DEAD, NEAR, FAR)))


@pytest.fixture(autouse=True)
def empty(queues: None, client: Client) -> None:
    for name in (NEAR, FAR, DEAD):
        purge(client, name)


def send_many(suite: Suite, address: str, count: int) -> None:
    """Send messages whose bodies differ."""
    done = suite.command("send", address, "--count", str(count), "--port-offset", str(suite.offset))
    assert done.returncode == 0, done.stderr


def move(client: Client, **wanted: Any) -> Reply:
    return client("POST", f"addresses/{of(NEAR)}/move", {"to": FAR, **wanted})


@contextmanager
def moving(suite: Suite, client: Client) -> Iterator[str]:
    """Move all messages; yield the path of the job in its midst, before the request for it is answered."""

    def ask() -> None:
        with Client(suite) as other, suppress(OSError, HTTPException):  # it is killed
            move(other)

    known = {each["id"] for each in client.items("jobs")}
    asking = Thread(target=ask)
    asking.start()
    new = wait_for(lambda: [each for each in client.items("jobs") if each["id"] not in known and each["done"]])
    yield f"jobs/{new[0]['id']}"
    asking.join()


def content(client: Client, name: str) -> Counter[str]:
    """Bodies of all messages of a queue."""
    found: list[str] = []
    after = ""
    while after is not None:
        path = f"addresses/{of(name)}/messages?limit=200&bytes=100" + (f"&after={of(after)}" if after else "")
        page = client("GET", path)
        assert page.status == 200, page
        found += [each["body"] for each in page.body["items"]]
        after = page.body["next"]
    return Counter(found)


def test_messages_are_moved_between_brokers_by_id_selector_and_limit(client: Client) -> None:
    fill(client, NEAR, "a", "b", "c")
    fill(client, NEAR, "u", "v", priority=7, properties={"n": 1})
    chosen = [each["id"] for each in client.items(f"addresses/{of(NEAR)}/messages")]
    assert finished(client, move(client, ids=[chosen[1], chosen[1]])) == ("done", 1)
    assert finished(client, move(client, selector="n = 1")) == ("done", 2)
    assert finished(client, move(client, limit=1)) == ("done", 1)
    assert bodies(client, NEAR) == ["c"] and bodies(client, FAR) == ["b", "u", "v", "a"]
    moved = client.items(f"addresses/{of(FAR)}/messages")[1]
    assert (moved["priority"], moved["properties"], moved["durable"]) == (7, {"n": 1}, True)
    assert moved["annotations"]["x-opt-ORIG-ADDRESS"] == NEAR


def test_a_message_that_comes_back_is_moved_again(client: Client) -> None:
    fill(client, NEAR, "same")
    for _ in range(2):
        assert finished(client, move(client)) == ("done", 1)
        assert finished(client, client("POST", f"addresses/{of(FAR)}/move", {"to": NEAR})) == ("done", 1)
    assert bodies(client, NEAR) == ["same"]


def test_an_invalid_selector_is_refused_and_nothing_is_moved(client: Client) -> None:
    fill(client, NEAR, "stays")
    assert problem(move(client, selector="a =")) == (422, "console.change.refused")
    assert bodies(client, NEAR) == ["stays"] and bodies(client, FAR) == []


KILLED: dict[str, Callable[[Suite], Any]] = {
    "source": lambda suite: suite.component("broker", NEAR),
    "target": lambda suite: suite.component("broker", FAR),
    "router": lambda suite: suite.component("router"),
}


@pytest.mark.parametrize(
    "killed", ["source", *(pytest.param(each, marks=pytest.mark.slow) for each in ("target", "router"))]
)
def test_nothing_is_lost_or_doubled_if_a_process_is_killed_in_the_middle(
    suite: Suite, client: Client, killed: str
) -> None:
    send_many(suite, NEAR, MANY)
    before = content(client, NEAR)
    assert len(before) == MANY
    process = KILLED[killed](suite)
    with moving(suite, client) as job:
        suite.kill(process)
    wait_for(lambda: client("GET", job).body["state"] != "running")
    ended = client("GET", job).body
    assert (ended["state"], ended["done"], ended["total"]) == ("done", MANY, MANY), ended
    suite.wait_ready()
    assert content(client, FAR) == before and not content(client, NEAR)


@pytest.mark.slow  # test_nothing_is_lost_or_doubled_if_a_process_is_killed_in_the_middle
def test_a_move_that_is_repeated_after_the_console_was_killed_doubles_nothing(suite: Suite, client: Client) -> None:
    send_many(suite, NEAR, MANY)
    before = content(client, NEAR)
    process = suite.component("console")
    with moving(suite, client):
        suite.kill(process)
    suite.wait_ready()
    wait_for(lambda: client("GET", "jobs").status == 200)
    left, there = content(client, NEAR), content(client, FAR)
    assert left | there == before and (left & there).total() <= WINDOW
    assert finished(client, move(client)) == ("done", left.total())
    assert content(client, FAR) == before and not content(client, NEAR)


def test_a_cancelled_move_leaves_each_message_in_one_of_the_queues(suite: Suite, client: Client) -> None:
    suite.edit("addresses.json", {FAR: {**QUEUE, "flavor": "far-queue", "maxSize": "40k", "fullPolicy": "BLOCK"}})
    wait_for(lambda: (client("GET", f"addresses/{of(FAR)}").body["entry"] or {}).get("maxSize") and active(client, FAR))
    send_many(suite, NEAR, MANY)
    wait_for(lambda: client("GET", f"addresses/{of(NEAR)}").body["stats"]["messages"] == MANY)
    begun = move(client)
    job = f"jobs/{begun.body['id']}"
    wait_for(lambda: client("GET", job).body["done"] > 0)
    assert begun.status == 202 and client("GET", job).body["total"] == MANY
    assert client("DELETE", job).status == 204
    state, done = finished(client, begun)
    here, there = content(client, NEAR), content(client, FAR)
    assert len(here | there) == here.total() + there.total() == MANY
    assert there.total() == done and state == "cancelled"


def test_dead_letters_go_back_to_a_queue_that_is_on_another_broker_by_now(suite: Suite, client: Client) -> None:
    fill(client, NEAR, "first", "second")
    fill(client, DEAD, "sent here")
    done = suite.command("receive", NEAR, "--count", "2", "--reject", "--port-offset", str(suite.offset))
    assert done.returncode == 0, done.stderr
    wait_for(lambda: len(bodies(client, DEAD)) == 3)
    far = {**QUEUE, "flavor": "far-queue"}
    suite.edit("addresses.json", {DEAD: far, NEAR: {**far, "deadletter": DEAD}})
    there = client("GET", f"addresses/{of(FAR)}").body["brokers"]
    wait_for(lambda: client("GET", f"addresses/{of(NEAR)}").body["brokers"] == there)
    assert len(client("GET", f"addresses/{of(DEAD)}").body["brokers"]) == 2, "the dead letters are where they were"
    assert finished(client, client("POST", f"addresses/{of(DEAD)}/redrive", {})) == ("done", 2)
    assert sorted(bodies(client, NEAR)) == ["first", "second"] and bodies(client, DEAD) == ["sent here"]
    purge(client, DEAD)
    wait_for(lambda: client("GET", f"addresses/{of(DEAD)}").body["brokers"] == there, "the end of the old queue")
