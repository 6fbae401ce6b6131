"""A file that does not parse changes nothing that runs, not even for a configuration service that comes up with it."""

from __future__ import annotations

from typing import Any

from enmasse.testing import Suite, wait_for
from tests.load import Consumer, Producer
from tests.system.exchange import exchange
from tests.system.seeing import kill, status, wait_process

BAD = {"addresses.json": '{"orders": ', "flavors.json": "[]"}


def test_invalid_files_change_nothing_that_runs(suite: Suite) -> None:
    consumer, producer = Consumer(suite.url, "orders"), Producer(suite.url, "orders")
    consumer.start()
    producer.start()
    before = status(suite)
    good = {name: (suite.config / name).read_text() for name in BAD}
    for name, text in BAD.items():
        (suite.config / name).write_text(text)
    try:
        wait_for("both to be reported", lambda: {e["file"] for e in status(suite)["errors"]} == BAD.keys())
        for controller in ("configserv", "storage_controller", "ragent"):
            wait_process(suite, controller, kill(suite, controller))

        def ready() -> dict[str, Any] | None:
            now = status(suite)
            return now if now["ready"] else None

        now = wait_for("readiness", ready)
        assert {e["file"] for e in now["errors"]} == BAD.keys()
        for key in ("name", "type", "flavor", "phase"):
            assert [a[key] for a in now["addresses"]] == [a[key] for a in before["addresses"]]
        assert now["config"] == before["config"]
        exchange(suite.url, ["news", "direct", "all", "scratch"])
        producer.wait_accepted(10)
    finally:
        for name, text in good.items():
            (suite.config / name).write_text(text)
    wait_for("no error", lambda: not status(suite)["errors"])
    producer.enough()
    producer.wait_end()
    consumer.wait_all(producer)
    consumer.stop()
    assert consumer.disturbances == producer.disturbances == []
    assert consumer.came == list(range(producer.sent))
