"""The clients that count messages: a message that comes twice is a defect of the suite only if they keep to MQTT."""

from __future__ import annotations

import socket
import threading

import pytest

from enmasse.mqtt.encode import encode
from enmasse.mqtt.packets import V5, V311, ConnAck, Connect, Packet, Publish, PubRec, PubRel
from enmasse.mqtt.reader import Reader
from tests.kit.waiting import DEADLINE
from tests.system.mqtt_devices import Device


class Server:
    """Ends the connection before PUBCOMP, the next one before CONNACK, and has the packets of the third."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.third: list[Packet] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(DEADLINE)

    def _run(self) -> None:
        with self._listening:
            for last in (PubRel, Connect):
                self._serve(last)
            self.third = self._serve(PubRel, Publish)

    def _serve(self, *last: type[Packet]) -> list[Packet]:
        """Answer a client until one of the last packets has come; return all."""
        found: list[Packet] = []
        client, _ = self._listening.accept()
        with client:
            client.settimeout(DEADLINE)
            reader = Reader()
            while not isinstance(found[-1] if found else None, last):
                for packet in reader.feed(client.recv(4096)):
                    found.append(packet)
                    if isinstance(packet, Connect) and Connect not in last:
                        client.sendall(encode(ConnAck(True, 0), self._version))
                    elif isinstance(packet, Publish):
                        client.sendall(encode(PubRec(packet.packet_id), self._version))
        return found


@pytest.mark.parametrize(("version", "of_server"), [(4, V311), (5, V5)])
def test_a_device_says_pubrel_again_after_two_lost_connections(version: int, of_server: int) -> None:
    """Paho itself says PUBLISH, which is a second message."""
    server = Server(of_server)
    device = Device("device", server.port, version)
    device.client.reconnect_delay_set(0.01, 0.01)
    device.connect()
    try:
        device.publish("topic", "once")
        server.join()
    finally:
        device.close()
    assert [type(packet) for packet in server.third] == [Connect, PubRel], device.way("once")
