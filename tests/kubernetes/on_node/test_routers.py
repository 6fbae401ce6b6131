"""Several embedded routers and MQTT gateways as pods: replaced one after the other, scaled and killed, with clients of
all kinds that see no more of it than reconnects."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from enmasse.testing import wait_for
from tests.kit.waiting import DEADLINE
from tests.kubernetes.node import Node
from tests.kubernetes.on_node.installation import PATIENCE, VALUES, Installation
from tests.system.roaming import ADDRESSES, Fleet

pytestmark = pytest.mark.timeout(3600)

IDLE = 40
"""Connections that do nothing, of AMQP and of MQTT: a third router relieves two of some, and not only of a surplus that
is too small to be worth it."""
SERVICES = {"router": "router", "mqttGateway": "mqtt-gateway"}
"""Name in the chart's values → component."""


@pytest.fixture(scope="module")
def installed(node: Node) -> Iterator[Installation]:
    node.define_routes()
    values: dict[str, Any] = {name: {**VALUES[name], "replicas": 2} for name in SERVICES}
    made = Installation(node, **values)
    try:
        made.install()
        made.add(**ADDRESSES)
        yield made
    finally:
        made.close()


def test_clients_see_reconnects_while_routers_and_gateways_are_replaced_scaled_and_killed(
    installed: Installation,
) -> None:
    fleet = Fleet(installed.url, 1883, installed.address("mqtt-gateway"), IDLE)
    try:
        fleet.goes_on()
        for name, component in SERVICES.items():
            with fleet.step(f"upgrade of {component}"):
                upgrade(installed, name, component)
                fleet.goes_on()
        for workload in ("statefulset/enmasse-router", "deployment/enmasse-mqtt-gateway"):
            component = workload.partition("/enmasse-")[2]
            with fleet.step(f"{component}: 2 to 3"):
                before = uids(installed, component)
                installed.kubectl("scale", workload, "--replicas=3")
                installed.wait_ready(component, 3)
                wait_for("clients spread", lambda c=component, b=before: clients(installed, c, b), PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default
                fleet.goes_on()
            with fleet.step(f"{component}: 3 to 2"):
                installed.kubectl("scale", workload, "--replicas=2")
                wait_for("one has gone", lambda c=component: len(uids(installed, c)) == 2, PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default
                fleet.goes_on()
        for component in SERVICES.values():
            victim = installed.pods(component)[0]
            with fleet.step(f"{component}: deleted with force"):
                installed.kubectl("delete", "pod", victim["metadata"]["name"], "--grace-period=0", "--force")
                installed.wait_ready(component, 2)
                fleet.goes_on()
            assert victim["metadata"]["uid"] not in uids(installed, component)
        installed.wait_addresses()
        print(fleet.check(), flush=True)
    finally:
        fleet.end()


def upgrade(installed: Installation, name: str, component: str) -> None:
    """Another template of the pods, one after the other; returns when the former ones have ended."""
    before = uids(installed, component)
    installed.values[name]["podAnnotations"] = {"again": "yes"}
    installed.helm("upgrade")
    wait_for("the pods of before have ended", lambda: not before & uids(installed, component), PATIENCE)


def uids(installed: Installation, component: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in installed.pods(component)}


def clients(installed: Installation, component: str, others: set[str]) -> int:
    """How many clients the pods have that are none of these others."""
    found = 0
    for pod in installed.pods(component):
        if pod["metadata"]["uid"] not in others:
            with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8080/healthz", timeout=DEADLINE) as answer:
                found += json.load(answer).get("counts", {}).get("clients", 0)
    return found
