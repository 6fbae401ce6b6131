"""Bindings: several of one queue, diverts, what comes back after a restart, what one more costs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from services.broker.core.errors import BrokerError
from services.broker.core.queue import Queue
from services.broker.core.verdict import Verdict
from services.broker.selector import SelectorError
from tests.broker.sansio import Core, taken


def session(core: Core, *patterns: str, name: str = "session", durable: bool = True) -> Queue:
    """A queue on an address of its own, with bindings to topics."""
    queue = core.broker.catalogue.create_queue(
        f"{name}-address", name, "MULTICAST", durable=durable, auto_create_address=True
    )
    for pattern in patterns:
        core.broker.catalogue.bind(queue, pattern)
    return queue


def topic(core: Core, *names: str) -> None:
    for name in names:
        core.broker.catalogue.create_address(name, frozenset({"MULTICAST"}))


def test_one_queue_gets_each_message_once_and_in_order() -> None:
    core = Core()
    topic(core, "t", "u")
    queue = session(core, "t/+/temperature", "t/#", "u")
    for n, name in enumerate(["t/a/temperature", "u", "t", "u/x", "t/b/humidity", "t/b/temperature"]):
        core.send(n, name)
    assert taken(core.consumer(queue, 10)) == [0, 1, 2, 4, 5]
    assert (core.broker.catalogue.addresses["t"].count, core.broker.catalogue.addresses["u"].count) == (4, 1)


def test_each_binding_has_a_filter_of_its_own() -> None:
    core = Core()
    topic(core, "t")
    queue = session(core)
    core.broker.catalogue.bind(queue, "t/#", filter="n > 10")
    core.broker.catalogue.bind(queue, "t/a", filter="n < 2")
    core.broker.catalogue.bind(queue, "t/b")
    for n in (0, 5, 20):
        for name in ("t/a", "t/b", "t/c"):
            core.send(f"{name} {n}", name, properties={"n": n})
    assert taken(core.consumer(queue, 10)) == ["t/a 0", "t/b 0", "t/b 5", "t/a 20", "t/b 20", "t/c 20"]


def test_no_local_is_the_binding_s() -> None:
    core = Core()
    topic(core, "t")
    queue = session(core)
    core.broker.catalogue.bind(queue, "t/a", no_local="")  # what the core sends comes from container ""
    core.broker.catalogue.bind(queue, "t/b")
    assert [core.send(name, name) for name in ("t/a", "t/b")] == [Verdict.ACCEPT] * 2
    assert taken(core.consumer(queue, 5)) == ["t/b"]


def test_bindings_come_and_go() -> None:
    core = Core()
    topic(core, "t")
    catalogue = core.broker.catalogue
    queue = session(core, "t/a")
    catalogue.bind(queue, "t/a", filter="n = 1")  # in place of the one before
    core.send("x", "t/a", properties={"n": 0})
    core.send("y", "t/a", properties={"n": 1})
    catalogue.unbind(queue, "t/a")
    core.send("z", "t/a", properties={"n": 1})
    assert taken(core.consumer(queue, 5)) == ["y"]
    with pytest.raises(BrokerError, match="no binding t/a"):
        catalogue.unbind(queue, "t/a")
    with pytest.raises(BrokerError, match="update the queue"):
        catalogue.bind(queue, "session-address")
    with pytest.raises(BrokerError, match="no binding"):
        catalogue.unbind(queue, "session-address")
    with pytest.raises(BrokerError, match="anycast"):
        catalogue.bind(core.queue(), "t/a")
    with pytest.raises(SelectorError):
        catalogue.bind(queue, "t/b", filter="n =")
    assert [binding.pattern for binding in catalogue.bindings_of(queue)] == ["session-address"]


def test_a_binding_waits_for_its_topic() -> None:
    core = Core()
    catalogue = core.broker.catalogue
    queue = session(core, "t/#")
    assert catalogue.route("t/a", None) is None
    for n in range(2):
        topic(core, "t")
        core.send(n, "t/a")
        catalogue.delete_address("t")
    assert taken(core.consumer(queue, 5)) == [0, 1]


def test_a_divert_leads_to_another_address() -> None:
    core = Core()
    topic(core, "t")
    catalogue = core.broker.catalogue
    all_of_it, errors = core.queue("copy"), core.queue("errors")
    subscriber = session(core, "t/#")
    catalogue.bind(catalogue.addresses["copy"], "t/#")
    catalogue.bind(catalogue.addresses["errors"], "t/+", filter="level = 'error'")
    core.send(1, "t/a", properties={"level": "info"}, durable=True)
    core.send(2, "t/b", properties={"level": "error"}, durable=True)
    core.send(3, "copy")
    found = [taken(core.consumer(queue, 5)) for queue in (all_of_it, errors, subscriber)]
    assert found == [[1, 2, 3], [2], [1, 2]]
    assert (catalogue.addresses["t"].count, catalogue.addresses["copy"].count) == (2, 1)
    catalogue.delete_address("errors", force=True)
    assert core.send(4, "t/a", properties={"level": "error"}) is Verdict.ACCEPT


def test_diverts_in_a_circle_end() -> None:
    core = Core()
    catalogue = core.broker.catalogue
    queues = [core.queue(name) for name in "abc"]
    for source, target in ("ab", "bc", "ca", "aa"):
        catalogue.bind(catalogue.addresses[target], source)
    core.send("x", "a")
    assert [taken(core.consumer(queue, 5)) for queue in queues] == [["x"], ["x"], ["x"]]


def test_bindings_survive_a_restart(tmp_path: Path) -> None:
    core = Core(tmp_path)
    topic(core, "t")
    catalogue = core.broker.catalogue
    queue = session(core, "t/a", "t/b", "t/gone")
    catalogue.bind(queue, "t/c", filter="n = 1", no_local="me")
    catalogue.unbind(queue, "t/gone")
    session(core, "t/#", name="ended")
    session(core, "t/#", name="passing", durable=False)
    catalogue.destroy_queue("ended")
    core.queue("copy")
    catalogue.bind(catalogue.addresses["copy"], "t/#")
    for _ in range(2):
        core.commit()
        core.restart()
        catalogue = core.broker.catalogue
        assert set(catalogue.queues) == {"session", "copy"}
        found = [
            (binding.pattern, binding.condition.filter.text if binding.condition.filter else None)
            for binding in catalogue.bindings_of(catalogue.queues["session"])
        ]
        assert found == [("session-address", None), ("t/a", None), ("t/b", None), ("t/c", "n = 1")]
        core.send("b", "t/b", durable=True)
        core.send("c", "t/c", durable=True, properties={"n": 1})
        core.send("d", "t/d", durable=True)
        core.commit()
        assert [taken(core.consumer(catalogue.queues[name], 9)) for name in ("session", "copy")] == [
            ["b", "c"],
            ["b", "c", "d"],
        ]
        for q in catalogue.queues.values():
            for consumer in list(q.consumers):
                q.accept(consumer, list(consumer.unsettled.values()))
                q.detach(consumer)


def test_definitions_without_bindings_are_read(tmp_path: Path) -> None:
    """As brokers wrote them before queues had more than one."""
    core = Core(tmp_path)
    assert core.store is not None
    old: dict[str, Any] = {
        "kind": "queue", "name": "s", "address": "t/+", "routingType": "MULTICAST", "filter": "n = 1", "noLocal": None,
        "maxConsumers": -1, "purgeOnNoConsumers": False, "exclusive": False, "autoCreated": False, "autoDelete": False,
        "user": "", "paused": False, "subscription": None,
    }  # fmt: skip
    address = {"kind": "address", "name": "t", "routingTypes": ["MULTICAST"], "autoCreated": False}
    for value in (address, old):
        core.store.define(core.store.new_id(), json.dumps(value).encode())
    core.store.commit()
    core.store.flush()
    core.restart()
    core.send("x", "t/a", properties={"n": 1})
    core.send("y", "t/a", properties={"n": 2})
    assert taken(core.consumer(core.broker.catalogue.queues["s"], 5)) == ["x"]


def work(core: Core, queue: Queue, pattern: str) -> tuple[int, int]:
    """Function calls and bytes written for a binding that is made, found by a route, and removed."""
    assert core.store is not None
    calls = written = 0
    define = core.store.define

    def counted(id: int, value: bytes) -> None:
        nonlocal written
        written += len(value)
        define(id, value)

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    core.store.define = counted  # type: ignore[method-assign]  # watched by the test
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        core.broker.catalogue.bind(queue, pattern)
        route = core.broker.catalogue.route(pattern, None)
        core.broker.catalogue.unbind(queue, pattern)
    finally:
        sys.setprofile(before)
        core.store.define = define  # type: ignore[method-assign]  # watched by the test
    assert route is not None and route.targets == [queue]
    return calls, written


def test_one_more_binding_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    core = Core(tmp_path)
    topic(core, "t")
    queues = [session(core, name=f"session-{n}") for n in range(10)]
    for n in range(10):
        core.broker.catalogue.bind(queues[n], f"t/{n:06}/x")
    few = min(work(core, queues[0], "t/123456/y") for _ in range(3))  # the store does a little more now and then
    for n in range(10, 10_000):
        core.broker.catalogue.bind(queues[n % 10], f"t/{n:06}/x")
    assert len(list(core.broker.catalogue.bindings_of(queues[0]))) == 1001
    assert min(work(core, queues[0], "t/123456/y") for _ in range(3)) == few
