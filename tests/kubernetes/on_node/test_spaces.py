"""An address space with a router and an MQTT gateway of its own, as pods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from enmasse.testing import wait_for
from tests.kubernetes.node import Node
from tests.kubernetes.on_node.installation import PATIENCE, VALUES, Device, Installation
from tests.kubernetes.on_node.sockets import connected
from tests.load import Consumer

pytestmark = pytest.mark.timeout(1800)

FILES: dict[str, dict[str, Any]] = {
    "enmasse-spaces": {"spaces.json": {"one": {}}},
    "one-addresses": {"addresses.json": {"readings": {"type": "topic", "flavor": "small-persisted-topic"}}},
}
"""ConfigMap of the release → its content."""
USERS = {"anonymous": {"permissions": [{"allow": ["send", "recv"], "addresses": ["#"]}]}}


@pytest.fixture(scope="module")
def installed(node: Node) -> Iterator[Installation]:
    node.define_routes()
    values: dict[str, Any] = {
        name: {**VALUES[name], "spaces": {"one": {"replicas": 1}}} for name in ("router", "mqttGateway")
    }
    users = {"users": {"enabled": True}, "authserv": VALUES["router"]}
    made = Installation(node, configuration={"spaces": {"one": ["one-addresses"]}}, **users, **values)
    made.kubectl("create", "secret", "generic", "enmasse-users", f"--from-literal=one.users.json={json.dumps(USERS)}")
    try:
        made.install()
        for config_map, content in FILES.items():
            data = {name: json.dumps(entries) for name, entries in content.items()}
            made.kubectl("patch", "configmap", config_map, "--type=merge", f"--patch={json.dumps({'data': data})}")
        yield made
    finally:
        made.close()


def test_the_gateway_of_a_space_is_at_its_router_and_both_are_replaced_without_loss(installed: Installation) -> None:
    """Clients without a name mean the space by where they connect."""
    url = f"amqp://{installed.address('router-one')}:5672"
    consumer = Consumer(url, "readings", container_id="of-one", subscription="of-one")
    consumer.start()
    consumer.wait_attached()
    device = Device(installed.address("mqtt-gateway-one"), 1883, "readings", "of-one")
    device.wait_acknowledged(20)
    [gateway] = installed.pods("mqtt-gateway-one")
    assert {address for address, port in connected(gateway) if port == 5674} == {installed.address("router-one")}
    for workload in ("statefulset/enmasse-router-one", "deployment/enmasse-mqtt-gateway-one"):
        installed.restart(workload)
        device.wait_acknowledged(20)
    device.stop()
    wait_for("every reading", lambda: device.acknowledged <= set(consumer.seen), PATIENCE)
    consumer.stop()
