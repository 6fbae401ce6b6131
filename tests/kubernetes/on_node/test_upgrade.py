"""A release of the last version without users and certificates, upgraded under load: addresses and data stay.

`889b2e1-chart.txz` has the chart of that version; its images are those of this version, which take its settings.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from enmasse.engines import maven
from enmasse.testing import wait_for
from tests.kubernetes.node import Node
from tests.kubernetes.on_node.installation import CHART, PATIENCE, VALUES, Device, Installation, connect, session
from tests.kubernetes.on_node.load import Load
from tests.load import receive, send
from tests.upgrade.archive import FOLDER

pytestmark = pytest.mark.timeout(3600)

BEFORE = FOLDER / "889b2e1-chart.txz"


@pytest.fixture(scope="module")
def installed(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("before")
    maven.unpack(BEFORE, folder)
    node.define_routes()
    made = Installation(node, folder / "enmasse", users=None)
    try:
        made.install()
        yield made
    finally:
        made.close()


def retained(installed: Installation, topic: str) -> bytes:
    """What a new subscriber gets."""
    came: list[bytes] = []
    client = session("new")
    client.on_message = lambda client, data, message: came.append(message.payload)
    connect(client, installed.address("mqtt-gateway"), 1883)
    client.subscribe(topic, qos=1)
    wait_for(f"a retained message of {topic}", lambda: came, PATIENCE)
    client.disconnect()
    client.loop_stop()
    return came[0]


def leave_session(installed: Installation, name: str, topic: str) -> None:
    """With a subscription, and without a connection."""
    subscribed = threading.Event()
    client = session(name)
    client.on_subscribe = lambda *_: subscribed.set()
    connect(client, installed.address("mqtt-gateway"), 1883)
    client.subscribe(topic, qos=1)
    assert subscribed.wait(PATIENCE)
    client.disconnect()
    client.loop_stop()


def test_a_release_without_identity_is_upgraded_under_load(installed: Installation) -> None:
    assert not installed.identities()
    installed.add(kept={"type": "queue", "flavor": "small-persisted-queue"})
    files = installed.files()
    send(installed.url, "kept", 100)
    leave_session(installed, "away", "mytopic/away")
    device = Device(installed.address("mqtt-gateway"), 1883, "mytopic/away", "away-device")
    device.wait_acknowledged(20)
    device.stop()
    publisher = session("kitchen")
    connect(publisher, installed.address("mqtt-gateway"), 1883)
    publisher.publish("mytopic/kitchen", "21.5", qos=1, retain=True).wait_for_publish(PATIENCE)
    publisher.disconnect()
    publisher.loop_stop()
    before = {pod["metadata"]["uid"] for pod in installed.pods("broker")}

    load = Load(installed, "upgrade")
    load.goes_on()
    installed.chart, installed.values["users"] = CHART, VALUES["users"]
    installed.helm("upgrade")
    wait_for(
        "brokers with certificates",
        lambda: before.isdisjoint(pod["metadata"]["uid"] for pod in installed.pods("broker")),
        PATIENCE,
    )
    installed.wait_addresses()
    installed.wait_mounted()
    load.goes_on()
    load.check()

    assert installed.files() == files
    assert sorted(receive(installed.url, "kept", 100)) == list(range(100))
    assert retained(installed, "mytopic/kitchen") == b"21.5"
    seen: list[int] = []
    client = session("away")
    client.on_message = lambda client, data, message: seen.append(int(message.payload))
    connect(client, installed.address("mqtt-gateway"), 1883)
    wait_for("what waited for the session", lambda: device.acknowledged <= set(seen), PATIENCE)
    client.disconnect()
    client.loop_stop()
