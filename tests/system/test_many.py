"""Many addresses, and many edits."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable
from functools import partial

import pytest

from enmasse.testing import Suite, wait_for
from tests.load import RATE, Client, Consumer, Producer
from tests.system.conftest import QUEUE, TOPIC
from tests.system.exchange import exchange
from tests.system.seeing import status, wait_address, wait_process

KINDS: list[dict[str, str]] = [
    {"type": "queue", "flavor": QUEUE},
    {"type": "topic", "flavor": TOPIC},
    {"type": "anycast"},
    {"type": "multicast"},
]
EDITS = 300


@pytest.mark.slow  # each step has tests with few
def test_a_thousand_addresses_become_ready_and_are_removed(suite: Suite) -> None:
    """All become ready, 200 random ones carry a message each, and all go again."""
    many = {f"many/{i}": KINDS[i % 4] for i in range(1000)}
    suite.edit("addresses.json", many)
    suite.wait_ready()
    found = {a["name"]: a for a in status(suite)["addresses"] if a["name"] in many}
    assert found.keys() == many.keys()
    assert all(a["ready"] and a["phase"] == "Active" for a in found.values())
    assert {name: a["type"] for name, a in found.items()} == {name: entry["type"] for name, entry in many.items()}
    chosen = random.Random(1000).sample(sorted(many), 200)
    exchange(suite.url, chosen)
    suite.edit("addresses.json", {}, remove=many)
    wait_for("all to be gone", lambda: not any_of(suite, many))


NAMES = [
    "a/b/c", "x.y", "Ünïcode-☃", "per%cent", "q'uote", 'd"quote', "semi;colon", "back\\slash", "a?b=c&d", "x" * 200,
    "-dash", "~tilde", "a:b", "(round)", "[square]", "{curly}", "a,b", "a@b", "1", "a//b", "trailing/",
    "CamelCase", "camelcase",
]  # fmt: skip


def test_names_with_unusual_characters_work(suite: Suite) -> None:
    every = {f"{kind['type']}:{name}": kind for kind in KINDS for name in NAMES}
    suite.edit("addresses.json", every)
    suite.wait_ready()
    exchange(suite.url, every)
    suite.edit("addresses.json", {}, remove=every)
    wait_for("all to be gone", lambda: not any_of(suite, every))


CONTROL, CARRIERS = ["configserv", "ragent", "storage_controller"], ["router", "broker"]


@pytest.mark.slow
def test_the_configuration_is_applied_although_processes_are_killed_meanwhile(suite: Suite) -> None:
    """Whoever dies in the middle of it: what the file says comes about all the same."""
    ours: dict[str, dict[str, str]] = {}
    for number, kinds in enumerate((CONTROL, CARRIERS, CONTROL + CARRIERS)):
        more = {f"round-{number}/{i}": KINDS[i % 4] for i in range(100)}
        suite.edit("addresses.json", more)
        wait_for("the first of them", partial(any_of, suite, more))
        processes = [c for c in status(suite)["components"] if c["kind"] in kinds]
        suite.kill(*processes)
        for process in processes:
            wait_process(suite, process["name"], process["pid"])
        ours |= more
    suite.wait_ready()
    found = {a["name"]: a for a in status(suite)["addresses"]}
    wanted = json.loads((suite.config / "addresses.json").read_text())
    assert found.keys() == wanted.keys() > ours.keys()
    assert all(found[name]["ready"] and found[name]["type"] == entry["type"] for name, entry in ours.items())
    exchange(suite.url, random.Random(5).sample(sorted(ours), 50))
    suite.edit("addresses.json", {}, remove=ours)
    wait_for("all to be gone", lambda: not any_of(suite, ours))


def any_of(suite: Suite, names: Iterable[str]) -> bool:
    """Whether the status shows one of these."""
    return bool({a["name"] for a in status(suite)["addresses"]}.intersection(names))


def applied(suite: Suite) -> bool:
    """The file as it is now has been applied, and everything is ready."""
    now = status(suite)
    content = (suite.config / "addresses.json").read_bytes()
    return bool(now["ready"]) and now["config"]["addresses.json"] == hashlib.sha256(content).hexdigest()


@pytest.mark.slow  # the test of a thousand addresses, and tests/configserv/test_edits.py
def test_hundreds_of_edits_do_not_affect_other_addresses(suite: Suite) -> None:
    """Other addresses come and go; of an untouched one no link is detached, no message lost, doubled or moved."""
    consumers = [
        Consumer(suite.url, "orders"),
        Consumer(suite.url, "news", container_id="editing", subscription="editing"),
        Consumer(suite.url, "direct"),
        Consumer(suite.url, "all"),
    ]
    producers = [Producer(suite.url, consumer.address, rate=RATE) for consumer in consumers]
    clients: list[Client] = [*consumers, *producers]
    for consumer in consumers:
        consumer.start()
        consumer.wait_attached()
    for producer in producers:
        producer.start()
    for i in range(EDITS):
        gone = [f"edited-{i - 10}"] if i >= 10 else []
        suite.edit("addresses.json", {f"edited-{i}": KINDS[i % 4]}, remove=gone)
        if i % 50 == 49:
            wait_for(f"edit {i} to be applied", partial(applied, suite))
            assert f"edited-{i}" in {a["name"] for a in status(suite)["addresses"]}
            for producer in producers:
                producer.wait_accepted(1)
    suite.edit("addresses.json", {}, remove=[f"edited-{i}" for i in range(EDITS)])
    wait_for("the last edit to be applied", partial(applied, suite))
    for producer, consumer in zip(producers, consumers, strict=True):
        producer.enough()
        producer.wait_end()
        consumer.wait_all(producer)
    for client in clients:
        client.stop()
    assert [client.disturbances for client in clients] == [[]] * 8
    assert [client.attached for client in clients] == [1] * 8
    for producer, consumer in zip(producers, consumers, strict=True):
        assert consumer.came == list(range(producer.sent))
    wait_address(suite, "orders", messages=0)
