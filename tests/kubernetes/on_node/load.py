"""What goes on while something is killed, scaled or upgraded; and what each installation does, whatever its engines."""

from __future__ import annotations

from proton import Message

from enmasse.testing import wait_for
from tests import one_program
from tests.kubernetes.on_node.installation import PATIENCE, Device, Installation
from tests.load import Consumer, Producer


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

    def undisturbed(self) -> bool:
        """No connection of a client was lost."""
        return self.producer.attached == self.subscriber.attached == self.device.connected == 1

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


def check_program(installed: Installation) -> None:
    """The program and the files that every engine has (tests/one_program.py)."""
    assert installed.files() == one_program.FILES
    one_program.check(installed.url, f"mqtt://{installed.address('mqtt-gateway')}:1883")


def check_from_outside(installed: Installation) -> None:
    """To the queue and back, over TLS, through a proxy that is started for it."""
    installed.open_door()
    connection = installed.connect_from_outside()
    connection.create_sender("myqueue").send(Message("from outside", durable=True))
    receiver = connection.create_receiver("myqueue", credit=1)
    assert receiver.receive(PATIENCE).body == "from outside"
    receiver.accept()
    connection.close()
