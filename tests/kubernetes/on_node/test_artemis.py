"""Apache ActiveMQ Artemis as the brokers of the suite on the node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from enmasse.testing import wait_for
from tests.kubernetes.node import Node
from tests.kubernetes.on_node.installation import PATIENCE, VALUES, Device, Installation
from tests.kubernetes.on_node.load import Load
from tests.load import Consumer

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def installed(node: Node) -> Iterator[Installation]:
    made = Installation(node, broker={**VALUES["broker"], "engine": "artemis"}, routes={"enabled": False})
    try:
        made.install()
        yield made
    finally:
        made.close()


def test_an_mqtt_device_a_queue_of_artemis_and_an_amqp_consumer(installed: Installation) -> None:
    """All brokers are killed meanwhile; they are Artemis."""
    images = {one["spec"]["containers"][0]["image"].rpartition("/")[2] for one in installed.pods("broker")}
    assert {image.partition(":")[0] for image in images} == {"artemis"}
    installed.add(jobs={"type": "queue", "flavor": "small-persisted-queue"})
    load = Load(installed, "artemis")
    device = Device(installed.address("mqtt-gateway"), 1883, "jobs", "jobs")
    load.goes_on()
    device.wait_acknowledged(20)
    installed.kill("broker", "artemis")
    load.goes_on()
    device.wait_acknowledged(20)
    load.check()
    device.stop()
    consumer = Consumer(installed.url, "jobs")
    consumer.start()
    wait_for("every job", lambda: device.acknowledged <= set(consumer.seen), PATIENCE)
    consumer.stop()
