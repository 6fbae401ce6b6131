"""Clients of others against the gateway's MQTT half: paho-mqtt, amqtt, mosquitto's programs; TCP, TLS, WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from amqtt.client import MQTTClient
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from enmasse.testing import wait_for
from services.mqtt_gateway.interfaces import Ending
from tests.certificates import Authority
from tests.kit.waiting import DEADLINE
from tests.mqtt_gateway.live import Live, live

PATIENCE = DEADLINE
"""Seconds for the handshakes of TLS and WebSocket: the client's own five are too few on a loaded machine."""
PROTOCOLS = pytest.mark.parametrize("protocol", [paho.MQTTv31, paho.MQTTv311, paho.MQTTv5])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def gateway(authority: Authority) -> Iterator[Live]:
    cert, key = authority.issue("server")
    with live(cert=str(cert), key=str(key)) as found:
        yield found


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


class Device:
    """A paho client whose loop runs in a thread."""

    def __init__(
        self,
        name: str,
        protocol: int,
        transport: Any = "tcp",
        tls: ssl.SSLContext | None = None,
        clean_session: bool | None = None,
    ) -> None:
        self.messages: list[paho.MQTTMessage] = []
        self.granted: list[int] = []
        self.published: set[int] = set()
        self.connected: list[Any] = []
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=name,
            clean_session=clean_session,
            protocol=protocol,
            transport=transport,
        )
        self.client.connect_timeout = PATIENCE
        if transport == "websockets":
            self.client.ws_set_options(path="/mqtt")
        if tls is not None:
            self.client.tls_set_context(tls)
        self.client.on_message = lambda client, data, message: self.messages.append(message)
        self.client.on_connect = lambda client, data, flags, reason, given: self.connected.append(flags)
        self.client.on_subscribe = lambda client, data, mid, codes, given: self.granted.extend(c.value for c in codes)
        self.client.on_publish = lambda client, data, mid, reason, given: self.published.add(mid)

    @contextlib.contextmanager
    def running(self, port: int, **more: Any) -> Iterator[Device]:
        self.client.connect("localhost", port, **more)
        self.client.loop_start()
        try:
            wait_for("CONNACK", lambda: self.connected)
            yield self
        finally:
            self.client.disconnect()
            self.client.loop_stop()

    def subscribe(self, filter: Any, qos: int = 2, **more: Any) -> None:
        self.granted.clear()
        self.client.subscribe(filter, qos, **more) if "options" not in more else self.client.subscribe(filter, **more)
        wait_for("SUBACK", lambda: self.granted)


@pytest.mark.clause("v3.1.1", "MQTT-6.0.0-2", "MQTT-6.0.0-4")
@pytest.mark.clause("v5", "MQTT-6.0.0-2", "MQTT-6.0.0-4")
@PROTOCOLS
@pytest.mark.parametrize("kind", ["mqtt", "mqtts", "ws", "wss"])
def test_paho_publishes_and_receives_in_every_qos(
    gateway: Live, authority: Authority, name: str, protocol: int, kind: str
) -> None:
    device = Device(
        name,
        protocol,
        "websockets" if kind in ("ws", "wss") else "tcp",
        authority.client_context() if kind in ("mqtts", "wss") else None,
    )
    with device.running(gateway.ports[kind]):
        device.subscribe(f"{name}/#")
        sent = [b"%d" % number * (1 + number * 37 % 5000) for number in range(150)]
        mids = {device.client.publish(f"{name}/x", payload, number % 3).mid for number, payload in enumerate(sent)}
        wait_for("all messages", lambda: len(device.messages) >= len(sent))
        wait_for("all acknowledgements", lambda: mids <= device.published)
        tls = gateway.inside(lambda: [each.described(0.0)["tls"] for each in gateway.gateway.server_state.clients])
        assert [each is not None and each["protocol"][:4] for each in tls] == [kind in ("mqtts", "wss") and "TLSv"]
    assert len(device.messages) == len(sent)
    for qos in (0, 1, 2):
        assert [m.payload for m in device.messages if m.qos == qos] == sent[qos::3]
    ended = (name, Ending.CLEAN, None)
    wait_for("the gateway to read DISCONNECT", lambda: gateway.inside(lambda: ended in gateway.backend.endings))


@PROTOCOLS
def test_paho_gets_what_came_while_it_was_away(gateway: Live, name: str, protocol: int) -> None:
    port = gateway.ports["mqtt"]
    given: dict[str, Any] = {}
    if protocol == paho.MQTTv5:
        keep = Properties(PacketTypes.CONNECT)
        keep.SessionExpiryInterval = 1000
        given = {"clean_start": False, "properties": keep}

    kept = None if protocol == paho.MQTTv5 else False
    first = Device(name, protocol, clean_session=kept)
    with first.running(port, **given):
        first.subscribe(f"{name}/#")
    with Device(f"{name}-other", protocol).running(port) as other:
        mids = {other.client.publish(f"{name}/x", b"%d" % number, 1 + number % 2).mid for number in range(20)}
        wait_for("acknowledgements", lambda: mids <= other.published)
    second = Device(name, protocol, clean_session=kept)
    with second.running(port, **given):
        wait_for("the messages", lambda: len(second.messages) >= 20)
    assert second.connected[0].session_present
    assert len(second.messages) == 20
    for qos in (1, 2):  # paho hands over QoS 2 with PUBREL
        assert [m.payload for m in second.messages if m.qos == qos] == [b"%d" % n for n in range(qos - 1, 20, 2)]


def test_paho_5_options_and_properties(gateway: Live, name: str) -> None:
    with Device(name, paho.MQTTv5).running(gateway.ports["mqtt"]) as device:
        identified = Properties(PacketTypes.SUBSCRIBE)
        identified.SubscriptionIdentifier = 77
        options = SubscribeOptions(qos=1, noLocal=False, retainAsPublished=True)
        device.subscribe(f"{name}/#", options=options, properties=identified)
        given = Properties(PacketTypes.PUBLISH)
        given.UserProperty = [("k", "1"), ("k", "2")]
        device.client.publish(f"{name}/x", b"x", 1, retain=True, properties=given)
        wait_for("the message", lambda: device.messages)
    message = device.messages[0]
    assert message.retain
    assert message.properties is not None
    assert message.properties.SubscriptionIdentifier == [77]
    assert message.properties.UserProperty == [("k", "1"), ("k", "2")]


def test_amqtt_publishes_and_receives(gateway: Live, name: str) -> None:
    async def main() -> list[bytes]:
        client = MQTTClient(client_id=name, config={"auto_reconnect": False})
        await client.connect(f"mqtt://127.0.0.1:{gateway.ports['mqtt']}/")
        assert await client.subscribe([(f"{name}/#", 2), (f"{name}/a", 1)]) == [2, 1]
        for number in range(30):
            await client.publish(f"{name}/x", b"%d" % number, qos=number % 3)
        got = []
        for _ in range(30):
            message = await client.deliver_message(timeout_duration=60)
            assert message is not None
            got.append(bytes(message.data))
        await client.ping()
        await client.unsubscribe([f"{name}/#"])
        await client.disconnect()
        return got

    assert sorted(asyncio.run(main()), key=int) == [b"%d" % number for number in range(30)]


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquittos_programs(gateway: Live, name: str, version: str) -> None:
    common = ["-V", version, "-h", "127.0.0.1", "-p", str(gateway.ports["mqtt"])]
    receiver = subprocess.Popen(
        ["mosquitto_sub", *common, "-i", name, "-t", f"{name}/+", "-q", "2", "-C", "3", "-v"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(
            "the subscription",
            lambda: gateway.inside(
                lambda: name in gateway.backend.stored and bool(gateway.backend.stored[name].filters)
            ),
        )
        for qos in "012":
            sender = ["mosquitto_pub", *common, "-t", f"{name}/{qos}", "-m", f"hello {qos}", "-q", qos]
            subprocess.run(sender, check=True, timeout=DEADLINE)
        output, _ = receiver.communicate(timeout=DEADLINE)
    finally:
        receiver.kill()
        receiver.wait()
    assert output.splitlines() == [f"{name}/{qos} hello {qos}" for qos in "012"]


def test_new_connections_see_a_renewed_certificate(authority: Authority) -> None:
    cert, key = authority.issue("first")
    with live(cert=str(cert), key=str(key)) as gateway:

        def shown() -> set[str]:
            found = set()
            for kind in ("mqtts", "wss"):
                with (
                    socket.create_connection(("127.0.0.1", gateway.ports[kind])) as plain,
                    authority.client_context().wrap_socket(plain, server_hostname="localhost") as secure,
                ):
                    certificate: Any = secure.getpeercert()
                    found.add(certificate["subject"][0][0][1])
            return found

        assert shown() == {"first"}
        for new, old in zip(authority.issue("second"), (cert, key), strict=True):
            new.rename(old)
        wait_for("the new certificate", lambda: shown() == {"second"})
