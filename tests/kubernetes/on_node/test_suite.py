"""The suite as pods: clients of every kind reach each other through it, and whatever is killed, scaled or upgraded
meanwhile, nothing that was acknowledged is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message, SSLDomain
from proton.utils import BlockingConnection

from enmasse.testing import wait_for
from tests import one_program
from tests.kubernetes.node import Node
from tests.kubernetes.on_node.installation import HOSTS, PATIENCE, Device, Installation
from tests.load import Consumer, Producer


@pytest.fixture(scope="module")
def installed(node: Node) -> Iterator[Installation]:
    node.define_routes()
    made = Installation(node)
    try:
        made.install()
        yield made
    finally:
        made.close()


class Load:
    """A producer for the queue, and a device for the topic with a durable subscriber."""

    def __init__(self, installed: Installation, name: str) -> None:
        self.installed = installed
        url = installed.url
        self.subscriber = Consumer(url, "mytopic", container_id=name, subscription=name)
        self.subscriber.start()
        self.subscriber.wait_attached()
        self.producer = Producer(url, "myqueue", rate=50)
        self.producer.start()
        self.device = Device(installed.address("mqtt-gateway"), 1883, "mytopic", name)

    def goes_on(self) -> None:
        """Both are acknowledged again."""
        self.producer.wait_accepted(50)
        self.device.wait_acknowledged(20)

    def check(self) -> None:
        """All that was acknowledged comes out."""
        self.producer.enough()
        self.producer.wait_end()
        self.device.stop()
        consumer = Consumer(self.installed.url, "myqueue")
        consumer.start()
        wait_for("every order", lambda: self.producer.accepted <= set(consumer.seen), PATIENCE)
        consumer.stop()
        wait_for("every reading", lambda: self.device.acknowledged <= set(self.subscriber.seen), PATIENCE)
        self.subscriber.stop()


def test_devices_consumers_and_queues_reach_each_other(installed: Installation) -> None:
    load = Load(installed, "first")
    load.goes_on()
    load.check()


def test_one_program_for_every_engine(installed: Installation) -> None:
    """Embedded engines on one machine and those of the field have the same test (tests/system)."""
    assert installed.files() == one_program.FILES
    one_program.check(installed.url, f"mqtt://{installed.address('mqtt-gateway')}:1883")


def test_amqps_from_outside_by_host_name(installed: Installation) -> None:
    installed.open_door()
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(installed.authority()))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    url = f"amqps://{HOSTS['amqps']}:{installed.proxy_port}"
    connection = BlockingConnection(url, ssl_domain=domain, timeout=PATIENCE)
    connection.create_sender("myqueue").send(Message("from outside", durable=True))
    receiver = connection.create_receiver("myqueue", credit=1)
    assert receiver.receive(PATIENCE).body == "from outside"
    receiver.accept()
    connection.close()


def test_mqtts_from_outside_by_host_name(installed: Installation) -> None:
    authority: Path = installed.authority()
    device = Device(HOSTS["mqtts"], installed.proxy_port, "mytopic", "outside", authority)
    device.wait_acknowledged(5)
    device.stop()


def test_a_killed_router_loses_nothing(installed: Installation) -> None:
    load = Load(installed, "router")
    load.goes_on()
    installed.kill("router")
    load.goes_on()
    load.check()


def test_a_killed_broker_loses_nothing(installed: Installation) -> None:
    load = Load(installed, "broker")
    load.goes_on()
    installed.kill("broker")
    load.goes_on()
    load.check()


def test_gateways_are_scaled_under_load(installed: Installation) -> None:
    load = Load(installed, "scaled")
    load.goes_on()
    for replicas in (3, 1):
        installed.kubectl("scale", "deployment/enmasse-mqtt-gateway", f"--replicas={replicas}")
        installed.wait_ready("mqtt-gateway", replicas)
        load.goes_on()
    load.check()


def test_an_upgrade_under_load_loses_nothing(installed: Installation) -> None:
    load = Load(installed, "upgrade")
    load.goes_on()
    before = {pod["metadata"]["uid"] for pod in installed.pods("router") + installed.pods("mqtt-gateway")}
    installed.helm("upgrade", "--set=logLevel=debug")
    after = {pod["metadata"]["uid"] for pod in installed.pods("router") + installed.pods("mqtt-gateway")}
    assert not before & after
    load.goes_on()
    load.check()
