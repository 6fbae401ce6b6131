"""Prometheus scrapes a running suite as the guide has it, and the rules of the chart work on what it gets."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import paho.mqtt.client as mqtt
import psutil
import pytest
import yaml
from proton import LinkException, Message
from proton.utils import BlockingConnection

from enmasse.identity.proofs.passwords import hashed
from enmasse.metrics import OTHERS
from enmasse.testing import Suite, free_port, running, wait_for
from tests.console.client import Client
from tests.console.walking import PASSWORD
from tests.kit.kept import kept
from tests.kit.waiting import DEADLINE

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "charts" / "enmasse" / "files" / "rules.yaml"
BOARDS = sorted((ROOT / "charts" / "enmasse" / "files" / "dashboards").glob("*.json"))
PATIENCE = DEADLINE
BOUND = 4
"""Addresses with metrics of their own."""
FLAVOR = {"type": "queue", "templateName": "queue-persisted", "templateParameters": {"STORAGE_CAPACITY": "1Gi"}}
QUEUES = [f"q{number}" for number in range(BOUND + 3)]
SPARK = "enmasse_spark_"
"""Beginning of the metrics of a pipeline, which this suite does not have."""

pytestmark = pytest.mark.needs("prometheus")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    addresses = {name: {"type": "queue", "flavor": "bounded", "maxSize": "10Mi"} for name in QUEUES}
    options = ("--tls", "auto", "--metrics-addresses", str(BOUND))
    with running(tmp_path_factory.mktemp("scraped"), addresses, {"bounded": FLAVOR}, options=options) as suite:
        suite.edit("addresses.json", {"sensors": {"type": "topic", "flavor": "small-persisted-topic"}})
        every = {"allow": ["view", "send", "recv", "manage"], "addresses": ["#"]}
        users: dict[str, Any] = {"alice": {"password": hashed(PASSWORD).password, "permissions": [every]}}
        users["anonymous"] = {"permissions": [every]}
        (suite.config / "users.json").write_text(json.dumps(users))
        suite.up()
        yield suite
        assert suite.down() == 0


class Prometheus:
    """A server that scrapes a suite: `folder` has its files."""

    def __init__(self, folder: Path, suite: Suite) -> None:
        self._port = free_port()
        config = folder / "prometheus.yml"
        token = folder / "enmasse.token"
        made = suite.command(
            "token", "add", "prometheus", "--user", "alice", "--read-only", "--output", str(token),
            "--port-offset", str(suite.offset),
        )  # fmt: skip
        assert made.returncode == 0, made
        config.write_text(documented(suite, token))
        with (folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
                 f"--web.listen-address=127.0.0.1:{self._port}", "--log.level=warn"],
                stdout=log, stderr=log, cwd=folder, env={**os.environ, "GOMAXPROCS": "1"},
            )  # fmt: skip
        self._log = folder / "log"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE)

    def _get(self, path: str, **query: str) -> Any:
        assert self._process.poll() is None, self._log.read_text()
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}?{urlencode(query)}", timeout=DEADLINE) as answer:
                return json.load(answer)["data"]
        except URLError:
            return None

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series; empty while it does not answer."""
        found = self._get("query", query=expression)
        return [] if found is None else [(each["metric"], float(each["value"][1])) for each in found["result"]]

    def names(self) -> set[str]:
        """Return the names of the metrics that it has, recorded ones included."""
        return set(self._get("label/__name__/values") or ())

    def alerts(self, alert: str, **labels: str) -> list[str]:
        """Return the state of each alert of this name and with these labels."""
        wanted = {"alertname": alert, **labels}
        found = (self._get("alerts") or {"alerts": []})["alerts"]
        return [each["state"] for each in found if wanted.items() <= each["labels"].items()]

    def scraped_since(self, begin: float) -> bool:
        return any(value >= begin for _, value in self.query('timestamp(up{job="enmasse"} == 1)'))


def started_after(suite: Suite, pid: int) -> bool:
    """Whether another process is the console now, and is ready."""
    console = suite.component("console")
    return bool(console["ready"]) and console["pid"] != pid


def documented(suite: Suite, token: Path) -> str:
    """Return the configuration of the guide, for this suite and this file with the token, with short intervals."""
    guide = (ROOT / "docs" / "guides" / "monitor.md").read_text()
    block = re.search(r"(?m)^ +scrape_configs:\n(?: +.*\n)+", guide)
    assert block is not None
    config = yaml.safe_load(block[0])
    (job,) = config["scrape_configs"]
    assert job["authorization"] == {"credentials_file": "/etc/prometheus/enmasse.token"}
    assert job["static_configs"] == [{"targets": ["127.0.0.1:8080"]}]
    job["authorization"]["credentials_file"] = str(token)
    job["static_configs"] = [{"targets": [f"127.0.0.1:{8080 + suite.offset}"]}]
    config |= {"rule_files": [str(RULES)], "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}}
    return str(yaml.safe_dump(config))


@pytest.fixture(scope="module")
def prometheus(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), suite)
    try:
        wait_for("a scrape", lambda: [value for _, value in server.query('up{job="enmasse"}')] == [1], PATIENCE)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def used(suite: Suite) -> Iterator[BlockingConnection]:
    """The suite with messages: queue number N has N + 1, and no consumer; an MQTT client, and a refused one."""
    connection = BlockingConnection(suite.url, timeout=DEADLINE)
    for number, name in enumerate(QUEUES):
        sender = connection.create_sender(name)
        for _ in range(number + 1):
            sender.send(Message("x"))
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "device")
    client.connect("127.0.0.1", suite.mqtt_port)
    client.loop_start()
    client.publish("sensors/1", "x", 1).wait_for_publish(60)
    refuse(connection, 1)
    yield connection
    client.disconnect()
    client.loop_stop()
    connection.close()


def refuse(connection: BlockingConnection, times: int) -> None:
    for _ in range(times):
        with pytest.raises(LinkException):  # Proton waits for the reason for a second only
            connection.create_receiver("not/there")


NEEDED = {
    "messages and bytes": [
        f"enmasse_{of}_{what}_{way}_total"
        for of in ("broker", "router") for what in ("messages", "bytes") for way in ("in", "out")
    ],
    "outcomes": ["enmasse_router_outcomes_total", "enmasse_router_receiver_outcomes_total"],
    "fates": [f"enmasse_broker_{what}_total" for what in ("rejected", "redelivered", "expired", "dead_lettered")],
    "depth and age": ["enmasse_broker_messages", "enmasse_broker_oldest_message_timestamp_seconds"],
    "links": [f"enmasse_{of}_{role}" for of in ("broker", "router") for role in ("consumers", "producers")],
    "capacity": ["enmasse_broker_capacity_used_ratio", "enmasse_broker_address_used_ratio"],
    "disk": ["enmasse_broker_disk_used_bytes", "enmasse_broker_disk_free_bytes", "enmasse_broker_sync_seconds_bucket"],
    "clients": ["enmasse_connections", "mqtt_packets_in_total", "mqtt_packets_out_total", "enmasse_refusals_total"],
    "processes": [
        "enmasse_loop_lag_seconds_bucket", "enmasse_build_info", "enmasse_certificate_expiry_timestamp_seconds",
    ],
}  # fmt: skip
"""What an alert may need."""
REFUSED = 'enmasse_refusals_total{what="receive"}'


@pytest.mark.usefixtures("used")
def test_every_metric_of_rules_and_dashboards_is_scraped(prometheus: Prometheus) -> None:
    texts = [RULES.read_text(), *(board.read_text() for board in BOARDS)]
    wanted = {name for text in texts for name in re.findall(r"\b(?:enmasse|mqtt)[_:][a-z0-9_:]*[a-z0-9]\b", text)}
    groups = yaml.safe_load(texts[0])["groups"]
    assert len(BOARDS) == 3 and len(wanted) > 30
    wanted -= {group["name"] for group in groups}
    wanted = {name for name in wanted if not name.startswith(SPARK)}
    wanted.remove("enmasse_router_path_cost")  # of each other router, and here is one: test_two_routers has it

    wait_for("all metrics", lambda: wanted <= prometheus.names(), PATIENCE)
    described = set(re.findall("[a-z0-9_]+", (ROOT / "docs" / "metrics.md").read_text()))
    made = re.compile("up|ALERTS.*|scrape_.*|.*:.*")
    scraped = {re.sub("_(bucket|count|sum)$", "", name) for name in prometheus.names() if not made.fullmatch(name)}
    assert scraped <= described | {"artemis_lost_message"}
    assert {name for names in NEEDED.values() for name in names} <= prometheus.names()


@pytest.mark.usefixtures("used")
def test_more_addresses_than_the_bound_are_counted_together(prometheus: Prometheus) -> None:
    left = sum(range(1, len(QUEUES) - BOUND + 1))
    alone = {name: number + 1 for number, name in enumerate(QUEUES)}
    wanted = {name: alone[name] for name in QUEUES[-BOUND:]}

    def is_bounded(series: str, *, also: bool = False) -> bool:
        """`also`: there are other messages than those of the queues."""
        shown = {labels["address"]: value for labels, value in prometheus.query(series)}
        rest = shown.pop(OTHERS, 0)
        return shown == wanted and (rest == left or (also and rest > left))

    for series in (
        'enmasse_broker_messages_in_total{process="bounded-0"}',
        'enmasse_broker_messages{process="bounded-0"}',
        'enmasse_address_messages{job="enmasse"}',
    ):
        wait_for(series, partial(is_bounded, series), PATIENCE)
    series = 'enmasse_router_messages_in_total{process="router-0"}'
    wait_for(series, partial(is_bounded, series, also=True), PATIENCE)


def test_a_console_of_which_only_metrics_are_scraped_follows_no_live_state(
    suite: Suite, prometheus: Prometheus
) -> None:
    before = suite.component("console")["pid"]
    os.kill(before, signal.SIGKILL)  # it was asked for the token, and follows since
    wait_for("a console that was asked for nothing", lambda: started_after(suite, before))
    begin = time.time()
    wait_for("a scrape", lambda: prometheus.scraped_since(begin), PATIENCE)
    console = psutil.Process(suite.component("console")["pid"])

    def follows() -> bool:
        there = [each.raddr.port for each in console.net_connections("tcp") if each.raddr]
        return 5673 + suite.offset in there

    assert not follows()
    with Client(suite) as client:
        assert client("GET", "me").status == 200
    wait_for("it follows for the first who looks", follows, PATIENCE)


@pytest.mark.slow  # promtool (tests/test_metrics.py) has the alerts, the tests above what they are made from
def test_alerts_become_pending_and_fire(suite: Suite, used: BlockingConnection, prometheus: Prometheus) -> None:
    queue = QUEUES[-1]
    with kept(used):
        wait_for("pending", lambda: "pending" in prometheus.alerts("EnMasseQueueNotConsumed", address=queue), PATIENCE)
        assert prometheus.alerts("EnMasseClientsRefused") == []
        wait_for("the first refusal", lambda: prometheus.query(REFUSED), PATIENCE)
    refuse(used, 150)
    refused = "EnMasseClientsRefused"
    with kept(used):
        wait_for(refused, lambda: prometheus.alerts(refused, what="receive") == ["firing"], PATIENCE)
    broker = suite.component("broker", queue)["name"]

    def killed() -> bool:
        if prometheus.alerts("EnMasseComponentRestarts", name=broker) == ["firing"]:
            return True
        suite.kill(suite.component("broker", queue))
        suite.wait_ready()
        return False

    wait_for("the alert of a broker that ends again and again", killed, PATIENCE)
    receiver = used.create_receiver(queue, credit=10)
    wait_for("a consumer", lambda: not prometheus.alerts("EnMasseQueueNotConsumed", address=queue), PATIENCE)
    receiver.close()


def test_the_first_address_space_leaves_the_token_of_the_guide_its_metrics(
    suite: Suite, prometheus: Prometheus
) -> None:
    offset = ("--port-offset", str(suite.offset))
    first, second = (suite.command("space", "add", name, *offset) for name in ("one", "two"))
    assert (first.returncode, second.returncode) == (0, 0), (first, second)
    assert "/metrics" in first.stderr and "/metrics" not in second.stderr
    begin = time.time()
    wait_for("a scrape with spaces", lambda: prometheus.scraped_since(begin), PATIENCE)
