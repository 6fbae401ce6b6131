"""The ledger alone writes sizes and counts, and they come to nothing when everything has gone."""

from __future__ import annotations

import ast
from pathlib import Path

import services.broker
from services.broker.core.limits.usage import AddressTotals, BrokerTotals, QueueTotals
from tests.broker.sansio import Core, outlet


def test_nothing_else_adjusts_sizes_and_counts() -> None:
    names = {*QueueTotals.__slots__, *AddressTotals.__slots__, *BrokerTotals.__slots__}
    folder = Path(services.broker.__path__[0])
    found = [
        f"{path.relative_to(folder)}:{node.lineno}"
        for path in folder.rglob("*.py")
        if "storage" not in path.parts and path.name != "usage.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute) and node.target.attr in names
    ]
    assert not found


def test_everything_is_counted_once_for_its_address_and_once_for_each_queue() -> None:
    core = Core()
    ledger, catalogue = core.broker.ledger, core.broker.catalogue
    topic = catalogue.create_address("t", frozenset({"MULTICAST"}))
    queues = [catalogue.create_queue("t/#", name, "MULTICAST", durable=False) for name in "ab"]
    other = core.queue()
    for n in range(3):
        core.send(n, "t/x")
    core.send("one", "q")
    assert [queue.count for queue in (*queues, other)] == [3, 3, 1]
    assert (topic.count, topic.routed, topic.size) == (3, 3, queues[0].bytes)
    assert ledger.size == ledger.resident == topic.size + other.bytes
    first = core.consumer(queues[0], 5)
    queues[0].outcomes.accept(first, [token for _, token in outlet(first).take()])
    assert (queues[0].count, queues[0].acknowledged, topic.count) == (0, 3, 3)
    catalogue.destroy_queue("b")
    other.disposal.purge()
    assert (topic.count, topic.size, ledger.size, ledger.resident) == (0, 0, 0, 0)
