"""`$SYS/` of MQTT: numbers of the suite under the names of mosquitto and EMQX, for users that may read them."""

from __future__ import annotations

import subprocess

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.console.test_contexts import Elsewhere, elsewhere
from tests.console.walking import PASSWORD
from tests.kit.waiting import wait_for

__all__ = ["elsewhere"]

UPTIME, CONNECTED = "$SYS/broker/uptime", "$SYS/broker/clients/connected"


class Device:
    """A client of MQTT 5 with what it was told."""

    def __init__(self, elsewhere: Elsewhere, user: str) -> None:
        self.messages: list[paho.MQTTMessage] = []
        self.codes: list[int] = []
        self.closed: list[int] = []
        self.client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self.client.username_pw_set(user, PASSWORD)
        self.client.on_message = lambda client, data, message: self.messages.append(message)
        self.client.on_subscribe = lambda client, data, mid, codes, properties: self.codes.extend(
            code.value for code in codes
        )
        self.client.on_unsubscribe = lambda client, data, mid, codes, properties: self.codes.extend(
            code.value for code in codes
        )
        self.client.on_publish = lambda client, data, mid, code, properties: self.codes.append(code.value)
        self.client.on_disconnect = lambda client, data, flags, code, properties: self.closed.append(code.value)
        self.client.connect("127.0.0.1", 1883 + elsewhere.suite.offset)
        self.client.loop_start()
        wait_for(self.client.is_connected, "connected")

    def answer(self, mid: object) -> list[int]:
        """Return the reason codes of the next answer."""
        found = wait_for(lambda: self.codes, "an answer")
        self.codes = []
        return found

    def texts(self, topic: str) -> list[str]:
        return [each.payload.decode() for each in self.messages if each.topic == topic]

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def test_mosquitto_sub_reads_what_dashboards_read(elsewhere: Elsewhere) -> None:
    topics = (
        "version", "uptime", "clients/connected", "clients/total", "messages/received", "publish/messages/sent",
        "bytes/sent", "load/messages/received/1min", "subscriptions/count", "retained messages/count",
    )  # fmt: skip
    names = [*(f"$SYS/broker/{topic}" for topic in topics), "$SYS/brokers/enmasse/metrics/bytes/received"]
    port = str(1883 + elsewhere.suite.offset)
    command = ["mosquitto_sub", "-h", "127.0.0.1", "-p", port, "-u", "dash", "-P", PASSWORD, "-F", "%t|%p"]
    command += [word for name in names for word in ("-t", name)] + ["-C", str(len(names)), "-W", "90"]
    shown = subprocess.run(command, capture_output=True, text=True)
    assert shown.returncode == 0, shown
    found = dict(line.split("|") for line in shown.stdout.splitlines())
    assert found["$SYS/broker/version"].startswith("EnMasse version") and found[UPTIME].endswith(" seconds")
    assert int(found[CONNECTED]) >= 0 and float(found["$SYS/broker/load/messages/received/1min"]) >= 0
    assert found.keys() == set(names)


def test_permission_is_needed_and_everything_does_not_include_it(elsewhere: Elsewhere) -> None:
    dash, root = Device(elsewhere, "dash"), Device(elsewhere, "root")
    try:
        values = Properties(PacketTypes.SUBSCRIBE)
        values.SubscriptionIdentifier = 7
        assert dash.answer(dash.client.subscribe("$SYS/broker/#", qos=2, properties=values)) == [0]
        wait_for(lambda: dash.texts(UPTIME), "the value of before")
        first = next(each for each in dash.messages if each.topic == UPTIME)
        assert first.retain and first.qos == 0 and first.properties.SubscriptionIdentifier == [7]
        assert root.answer(root.client.subscribe("$SYS/#")) == [0x87]
        assert root.answer(root.client.subscribe("#")) == [0]
        wait_for(lambda: len(set(dash.texts(UPTIME))) > 1, "the next value")
        assert not any(each.retain for each in dash.messages if each.topic == UPTIME and each is not first)
        assert not any(each.topic.startswith("$SYS/") for each in root.messages)
        assert root.answer(root.client.publish("$SYS/broker/uptime", "0", qos=1))[0] >= 0x80
        assert "0" not in dash.texts(UPTIME)
        assert dash.answer(dash.client.unsubscribe(["$SYS/broker/#", "$SYS/other"])) == [0, 0x11]
    finally:
        dash.close()
        root.close()


@pytest.mark.slow
def test_numbers_are_sums_over_all_gateways(elsewhere: Elsewhere) -> None:
    here = ("--port-offset", elsewhere.suite.offset)
    elsewhere("scale", "mqtt_gateway=2", *here)
    elsewhere("status", "--wait", "90", *here)
    devices = [Device(elsewhere, "dash") for _ in range(6)]
    try:
        devices[0].client.subscribe(CONNECTED)
        wait_for(lambda: devices[0].texts(CONNECTED)[-1:] == ["6"], "clients of both gateways")
    finally:
        for each in devices:
            each.close()
        elsewhere("scale", "mqtt_gateway=1", *here)
