"""A broker that reads its disk reports its progress, and ends when it is asked to."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from proton import Message

from services.broker.core.broker import Broker
from services.broker.core.messages.condition import Condition
from services.broker.core.routing.subscription import Identity, queue_name
from services.broker.nodes import Nodes
from services.broker.storage.store import Store
from tests.broker.disks import HeldFiles
from tests.broker.harness import DEADLINE, BrokerProcess, until
from tests.broker.sansio import Core

MESSAGES = 40
SIZE = 1 << 20


@pytest.fixture
def half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    """A broker that reads the first segment of its journal, and the others when it is let."""
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m:
        m.queue("q")
    with broker.connect() as connection:
        sender = connection.create_sender("q")
        for _ in range(MESSAGES):
            sender.send(Message(bytes(SIZE), durable=True))
    broker.stop()
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "power_cut"))
    monkeypatch.setenv("ENMASSE_FILES", "held")
    broker.launch()
    yield broker
    go_on(broker)
    broker.stop()


def go_on(broker: BrokerProcess) -> None:
    (broker.directory / "data" / HeldFiles.GO_ON).touch()


def how_far(broker: BrokerProcess) -> dict[str, Any] | None:
    """What health says while it says so many per cent."""
    reports = broker.health_says()
    return reports if str(reports.get("detail", "")).endswith("%") else None


def test_health_says_how_far_the_recovery_is(half_way: BrokerProcess) -> None:
    reports = until(lambda: how_far(half_way), "an answer")
    assert reports["ready"] is False and reports["endpoints"] == {}
    assert reports["detail"] == "recovering: 0 %"
    go_on(half_way)
    until(half_way.ready, "the broker to be ready")
    with half_way.manage() as m:
        assert m.count("q") == MESSAGES


def test_a_broker_is_told_to_stop_while_it_recovers(half_way: BrokerProcess) -> None:
    until(lambda: how_far(half_way), "an answer")
    assert half_way.process is not None
    half_way.process.terminate()
    go_on(half_way)
    assert half_way.process.wait(DEADLINE) == 0


def test_progress_of_the_store(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=4096)
    queue = store.new_id()
    store.define(queue, b"{}")
    for _ in range(200):
        store.add(bytes(100), [queue])
    store.commit()
    store.flush()
    store.close()
    reports: list[float] = []
    store = Store.open(tmp_path, progress=reports.append)
    assert len(reports) > 5 and reports == sorted(set(reports)) and reports[0] == 0 and reports[-1] < 1
    store.close()


def test_progress_may_end_the_opening(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.define(store.new_id(), b"{}")
    store.commit()
    store.flush()
    store.close()

    class Enough(Exception):
        pass

    def stop(_: float) -> None:
        raise Enough

    with pytest.raises(Enough):
        Store.open(tmp_path, progress=stop)
    Store.open(tmp_path).close()  # it is not locked


def test_what_was_found_is_let_go_of_when_it_is_taken_in(tmp_path: Path) -> None:
    core = Core(tmp_path)
    core.queue()
    for n in range(10):
        core.send(n, durable=True)
    core.commit()
    assert core.store is not None
    core.store.close()
    store = Store.open(tmp_path)
    found = weakref.ref(store.recovered)
    reports: list[float] = []
    broker = Broker("b", clock=lambda: 0, store=store, progress=reports.append)
    assert broker.catalogue.queues["q"].count == 10
    assert reports == [0]
    assert found() is None
    store.close()


def test_a_subscription_that_an_earlier_version_has_named_is_found(tmp_path: Path) -> None:
    core = Core(tmp_path)
    create = partial(core.broker.catalogue.create_queue, "news", routing_type="MULTICAST", durable=True)
    old = create("my.host.sub", subscription=("news", None, None), client="my.host", auto_create_address=True)
    core.send("x", to="news", durable=True)
    core.commit()
    core.restart()
    client = SimpleNamespace(router=False, user="", remote="")
    name = queue_name(Identity("my.host", "sub"), durable=True, shared=False, everywhere=False)
    nodes = Nodes(core.broker, client)  # type: ignore[arg-type]  # what Nodes uses of a connection
    queue = nodes.subscription(name, "news", Condition(), durable=True, shared=False, client="my.host")
    assert (queue.id, queue.count) == (old.id, 1)
    assert len(core.broker.catalogue.queues) == 1
