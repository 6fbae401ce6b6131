"""Apache ActiveMQ Artemis as the brokers of the suite on the node."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.testing import wait_for
from tests.certificates import Authority
from tests.kit.running import asyncio_test
from tests.kubernetes.node import Node
from tests.kubernetes.on_node.installation import PATIENCE, VALUES, Device, Installation
from tests.kubernetes.on_node.load import Load
from tests.kubernetes.stranger import attempts, shown_at
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


@asyncio_test
async def test_peers_without_a_certificate_of_the_release_are_refused(installed: Installation, tmp_path: Path) -> None:
    forged = Authority(tmp_path / "ca").issue_folder(tmp_path / "forged", "router/enmasse-router")
    folders = {"forged": forged, "operator": installed.certificate("operator", tmp_path / "operator")}
    for broker in installed.pods("broker"):
        assert await attempts(broker["status"]["podIP"], 5672, folders) == ["operator"]


def test_certificates_are_replaced_under_load(installed: Installation) -> None:
    """Open connections stay; a router that connects anew sees the new ones, and shows its own."""
    load = Load(installed, "certificates")
    load.goes_on()
    before = installed.restarts("broker")
    installed.replace_certificates()
    wanted = installed.identities()["broker"].strip()
    places = [broker["status"]["podIP"] for broker in installed.pods("broker")]

    def all_show_it() -> bool:
        with contextlib.suppress(OSError):  # Artemis reads it while its listener is closed for a moment
            return {shown_at(at, 5672) for at in places} == {wanted}
        return False

    wait_for("all show the new one", all_show_it, PATIENCE)
    load.goes_on()
    assert load.undisturbed() and installed.restarts("broker") == before
    installed.restart("statefulset/enmasse-router")
    load.goes_on()
    load.check()
