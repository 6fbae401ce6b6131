"""Subscriptions and messages of MQTT clients are seen at their addresses and at their clients, each once."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest
from proton.utils import BlockingConnection

from enmasse.mqtt.packets import V5, V311, Disconnect, Unsubscribe, Will
from enmasse.testing import Suite
from tests.console.client import Client, of
from tests.kit.waiting import DEADLINE, wait_for
from tests.system.mqtt_users import Device


def stats(client: Client, name: str) -> Any:
    return client("GET", f"addresses/{of(name)}").body["stats"]


@pytest.mark.parametrize("version", [V311, V5])
def test_subscribers_and_publishers_of_a_topic(suite_with_mqtt: Suite, version: int) -> None:
    suite = suite_with_mqtt
    with Client(suite) as client, ExitStack() as devices:
        before = stats(client, "news")["totals"]
        filters = [("news/#", "news/+"), ("news/a",), ("$share/g/news/#",), ("#",)]
        wills = (Will("news/gone"), None, None, None)
        receiving = [
            devices.enter_context(
                Device(suite.mqtt_port, f"seen/{n} out 1", None, None, version=version, will=will)
            ).connected()
            for n, will in enumerate(wills)
        ]
        for device, wanted in zip(receiving, filters, strict=True):
            assert device.subscribe(*wanted) == [1] * len(wanted)
        sender = devices.enter_context(Device(suite.mqtt_port, "seen/sender", None, None, version=version)).connected()
        for _ in range(3):
            assert sender.publish("news/a", b"1234") == 0
        for device in receiving:
            for _ in range(3):
                assert device.receive() == b"1234"

        def counted() -> tuple[int, ...]:
            now = stats(client, "news")
            more = {name: now["totals"][name] - before[name] for name in ("in", "out", "bytesOut")}
            return now["consumers"], now["producers"], more["in"], more["out"], more["bytesOut"]

        wait_for(lambda: counted() == (5, 1, 3, 12, 48))

        (shown,) = client.items(f"connections?container={of('seen/0 out 1')}")
        assert shown["links"] == 2
        assert shown["mqtt"]["version"] == {V311: "3.1.1", V5: "5"}[version]
        assert (shown["mqtt"]["subscriptions"], shown["mqtt"]["will"]) == (2, True)
        assert not client.items(f"connections?container={of('seen/1 out 1')}")[0]["mqtt"]["will"]
        links = client.items(f"connections/{of(shown['id'])}/links")
        assert {
            (each["name"], each["address"], each["direction"], each["qos"], each["totals"]["out"]) for each in links
        } == {("news/#", "news", "out", 1, 3), ("news/+", "news", "out", 1, 3)}
        (sent,) = client.items("links?address=news&direction=in")
        assert (sent["connection"].endswith("/seen/sender"), sent["totals"]["in"], sent["qos"]) == (True, 3, None)

        wills_shown = suite.command("mqtt", "wills", "--json", "--port-offset", str(suite.offset)).stdout
        assert [(row["client"], row["topic"]) for row in json.loads(wills_shown)["items"]] == [
            ("seen/0 out 1", "news/gone")
        ]

        receiving[0].send(Unsubscribe(77, ("news/+",)))
        wait_for(lambda: stats(client, "news")["consumers"] == 4)
        wait_for(lambda: len(client.items(f"connections/{of(shown['id'])}/links")) == 1)
        receiving[0].send(Disconnect())  # without the will
    with Client(suite) as client:
        wait_for(lambda: (stats(client, "news")["consumers"], stats(client, "news")["producers"]) == (0, 0))
        assert stats(client, "news")["totals"]["out"] == before["out"] + 12
        wait_for(lambda: not client.items("links?address=news"))


def test_a_receiver_of_a_topic_and_one_of_a_queue_count_once_whatever_they_speak(suite_with_mqtt: Suite) -> None:
    suite = suite_with_mqtt
    amqp = BlockingConnection(suite.url, timeout=DEADLINE)
    with Client(suite) as client, Device(suite.mqtt_port, "once", None, None) as device:
        device.connected()

        def wait_consumers(name: str, number: int) -> None:
            wait_for(lambda: stats(client, name)["consumers"] == number)

        for name in ("news", "orders"):
            amqp.create_receiver(name)
            wait_consumers(name, 1)
            assert device.subscribe(name) == [1]
            wait_consumers(name, 2)

        def of_command(verb: str) -> Any:
            return json.loads(
                suite.command("address", verb, "news", "--json", "--port-offset", str(suite.offset)).stdout
            )

        listed, shown = of_command("list")["addresses"][0], of_command("show")["status"]
        assert (listed["consumers"], shown["consumers"]) == (2, 2)
        line = 'enmasse_address_consumers{address="news",type="topic"} 2.0\n'
        wait_for(lambda: line in client.at("GET", "/metrics", **suite.operator_headers).body)
        assert device.publish("orders", b"x") == 0
        wait_for(lambda: stats(client, "orders")["producers"] == 1)
    amqp.close()
