"""Metrics by address are bounded, their sums right, and counters never fall."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from enmasse import metrics
from enmasse.http.health import common
from enmasse.metrics import OTHERS, Histogram, largest
from services.broker.core.connections import Connections
from services.broker.metrics import by_address, of_process
from services.broker.metrics import families as of_broker
from services.router.metrics import by_address as of_addresses
from services.router.metrics import families as of_router
from tests.broker.sansio import Core, outlet
from tests.router.test_live import Load

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CHART = Path(__file__).resolve().parents[1] / "charts" / "enmasse"


def values(families: Iterable[Metric], name: str, **labels: str) -> float:
    """Return the sum of the series of this name with these labels."""
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 100), max_size=30), st.integers(0, 10))
def test_the_largest_are_shown_and_the_rest_counts_together(rows: dict[str, int], most: int) -> None:
    found = largest(rows, most, float)
    assert sum(sum(some) for _, some in found) == sum(rows.values())
    assert len(found) <= max(most + 1, 1) or len(rows) <= most
    shown = [name for name, _ in found if name != OTHERS]
    if len(rows) > most:
        left = [value for name, value in rows.items() if name not in shown]
        assert max(left) <= min((rows[name] for name in shown), default=100)


def test_a_histogram_is_cumulative() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7):
        histogram.observe(value)
    samples = {(sample.name, sample.labels.get("le")): sample.value for sample in histogram.family("x", "X.").samples}
    assert samples == {
        ("x_bucket", "0.1"): 2,
        ("x_bucket", "1.0"): 3,
        ("x_bucket", "+Inf"): 4,
        ("x_count", None): 4,
        ("x_sum", None): 7.65,
    }


def test_a_router_counts_by_address_and_outcome_without_a_follower() -> None:
    load = Load()
    for address in ("a", "m"):
        load.receiver(0, address)
        load.sender(1, address)
    load.send(0, 5, settled=False)
    load.send(1, 2, settled=False)
    for _ in range(3):
        load.settle(0, "rejected")
    load.close(load.senders, 0)
    found = list(of_router(load.router))
    assert values(found, "enmasse_router_messages_in_total", address="a") == 5
    assert values(found, "enmasse_router_messages_out_total", address="m") == 2
    assert values(found, "enmasse_router_outcomes_total", outcome="rejected") == 3
    assert values(found, "enmasse_router_bytes_in_total", address="a") == load.truth["a"]["bytesIn"]
    assert values(found, "enmasse_router_producers", address="a") == 0
    assert values(found, "enmasse_router_consumers", address="a") == 1
    assert values(found, "enmasse_connections", protocol="amqp", user="anonymous") == 3
    few = list(of_router(load.router, 1))
    assert values(few, "enmasse_router_messages_in_total") == 7
    assert values(few, "enmasse_router_messages_in_total", address=OTHERS) == 2


def test_a_topic_counts_all_its_subscriptions_also_those_that_have_ended(tmp_path: Path) -> None:
    core = Core(tmp_path)
    catalogue = core.broker.catalogue
    catalogue.create_address("t", frozenset({"MULTICAST"}))
    counted = {"in": 0.0, "out": 0.0}
    for n in range(3):
        queue = catalogue.create_queue("t/x", f"s{n}", "MULTICAST", durable=True)
        core.send("x", "t/x")
        core.commit()
        consumer = core.consumer(queue, 5)
        queue.outcomes.accept(consumer, [message for _, message in outlet(consumer).take()])
        catalogue.destroy_queue(f"s{n}", remove_consumers=True)
        core.broker.jobs.run(lambda: False)
        found = list(of_broker(core.broker, Connections()))
        now = {
            "in": values(found, "enmasse_broker_messages_in_total", address="t"),
            "out": values(found, "enmasse_broker_messages_out_total", address="t"),
        }
        assert now == {"in": counted["in"] + 1, "out": counted["out"] + 1}
        counted = now
    assert "enmasse_broker_sync_seconds" in {family.name for family in found}
    assert values(found, "enmasse_broker_disk_free_bytes") > 0
    catalogue.delete_address("t", force=True)
    assert not core.broker.history.ended


def test_names_follow_the_conventions_of_prometheus(tmp_path: Path) -> None:
    core, load = Core(tmp_path), Load()
    core.queue()
    for family in (*of_broker(core.broker, Connections()), *of_router(load.router)):
        if family.name.startswith("enmasse_"):
            assert family.documentation.endswith(".")
            assert not family.name.endswith("_total"), "the library adds it to counters"
            assert not any(unit in family.name for unit in ("_ms", "_kb", "_percent"))


def test_rules_and_dashboards_use_metrics_that_there_are(tmp_path: Path) -> None:
    core, load = Core(tmp_path, capacity=1 << 30), Load()
    core.queue()
    families = [*of_broker(core.broker, Connections()), *of_router(load.router), *common(Histogram((1.0,)))]
    known = {family.name for family in families} | {each.removesuffix("_total") for each in OF_THE_SUITE}
    rules = (CHART / "files" / "rules.yaml").read_text()
    texts = [rules, *(path.read_text() for path in (CHART / "files" / "dashboards").glob("*.json"))]
    recorded = {
        rule["record"] for group in yaml.safe_load(rules)["groups"] for rule in group["rules"] if "record" in rule
    }
    for text in texts:
        for name in re.findall(r"\b(?:enmasse|mqtt)_[a-z_]+[a-z]\b", text):
            assert re.sub("_(total|bucket|count|sum)$", "", name) in known, name
        assert set(re.findall(r"\benmasse:[a-z_]+:?[a-z0-9]*\b", text)) <= recorded
    for path in (CHART / "files" / "dashboards").glob("*.json"):
        board = json.loads(path.read_text())
        assert board["panels"] and len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


OF_THE_SUITE = (
    "enmasse_ready", "enmasse_component_restarts_total", "enmasse_component_resident_memory_bytes",
    "enmasse_config_errors", "enmasse_configuration_errors", "mqtt_packets_in_total", "mqtt_packets_out_total",
)  # fmt: skip


@pytest.mark.needs("promtool")
@pytest.mark.parametrize(
    "arguments", [["check", "rules", "charts/enmasse/files/rules.yaml"], ["test", "rules", "tests/rules.test.yaml"]]
)
def test_promtool_accepts_the_rules_and_the_alerts_fire(arguments: list[str]) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=CHART.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("promtool")
def test_promtool_finds_no_fault_in_what_is_served(tmp_path: Path) -> None:
    core, load = Core(tmp_path), Load()
    core.queue()
    core.broker.refusals.note("send", condition="x")
    served = (
        *core.broker.refusals.families(),
        *by_address(core.broker, lambda queue: None, 10),
        *of_process(core.broker),
    )
    text = metrics.text((*served, *common(Histogram((1.0,))), *of_addresses(load.router, 10)))
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_series_of_the_default_space_have_no_label_of_a_space() -> None:
    assert metrics.labelled("address", "a/b") == {"address": "a/b"}
    assert metrics.labelled("address", "!!one/a/b") == {"address": "a/b", "space": "one"}
    assert metrics.labelled("address", metrics.OTHERS) == {"address": metrics.OTHERS}
    assert metrics.by_space(3, {}) == [({}, 3)]
    assert metrics.by_space(3, {"one": 2}) == [({}, 1), ({"space": "one"}, 2)]
