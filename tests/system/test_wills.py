"""Wills of real MQTT clients in a whole suite, on both stores; gateway, last-will service and router killed."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from proton.utils import BlockingConnection, BlockingReceiver

from enmasse.testing import Suite, running, wait_for
from tests.kit.waiting import DEADLINE
from tests.redis_server import RedisServer

PATIENCE = DEADLINE
DEVICES = 20
IN_TIME = 4.0
"""Seconds within which who is back is back within the grace time, however the seconds are counted."""
STORES: dict[int, RedisServer | None] = {}
"""Port offset of a suite → its Redis; None: it has files."""
ADDRESSES = {
    "wills": {"type": "queue", "flavor": "small-persisted-queue"},
    "state": {"type": "topic", "flavor": "small-persisted-topic"},
}


@pytest.fixture(scope="module", params=["sqlite", pytest.param("redis", marks=pytest.mark.slow)])
def suite(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    folder = tmp_path_factory.mktemp("wills")
    with contextlib.ExitStack() as stack:
        options: list[str] = []
        server: RedisServer | None = None
        if request.param == "redis":
            server = RedisServer(folder / "redis")
            stack.callback(server.stop)
            options = ["--store", server.url]
        found = stack.enter_context(running(folder, ADDRESSES, options=options))
        found.up()
        STORES[found.offset] = server
        yield found


class Device:
    """An MQTT client with a will. It comes again by itself if its connection is lost, as often as it takes."""

    def __init__(
        self, suite: Suite, name: str, *, to: str = "wills", qos: int = 1, retain: bool = False, version: int = MQTTv5
    ) -> None:
        self.name = name
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=version)
        self.client.will_set(to, name, qos=qos, retain=retain)
        self.client.reconnect_delay_set(1, 1)
        self.connects = 0
        self.connected_at = 0.0
        self.client.on_connect = self._on_connect
        self.client.connect("127.0.0.1", suite.mqtt_port, keepalive=60)
        self.client.loop_start()

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not reason.is_failure:
            self.connects += 1
            self.connected_at = time.monotonic()

    def die(self) -> None:
        """Without a word, and for good."""
        self.client.loop_stop()
        connection: socket.socket | None = self.client.socket()
        if connection is not None:
            connection.close()

    def leave(self) -> None:
        """With a DISCONNECT."""
        self.client.disconnect()
        self.client.loop_stop()


@contextlib.contextmanager
def devices(suite: Suite, count: int, prefix: str, **more: Any) -> Iterator[list[Device]]:
    """Connected ones; those that live at the end leave."""
    found = [Device(suite, f"{prefix}-{number}", qos=1 + number % 2, **more) for number in range(count)]
    try:
        connected(found)
        wait_for("their wills are counted", lambda: wills(suite) >= count, PATIENCE)
        yield found
    finally:
        for device in found:
            device.leave()


def connected(devices: list[Device], times: int = 1) -> None:
    wait_for("the devices are connected", lambda: all(device.connects >= times for device in devices), PATIENCE)


@contextlib.contextmanager
def receiver(suite: Suite, address: str) -> Iterator[BlockingReceiver]:
    connection = BlockingConnection(suite.url, timeout=PATIENCE)
    try:
        yield connection.create_receiver(address, credit=1000)
    finally:
        connection.close()


def wills(suite: Suite) -> int:
    """How many the last-will service has; -1 while it is not ready."""
    found = [each for each in suite.status()["components"] if each["kind"] == "mqtt_lwt"]
    return int(found[0]["counts"]["wills"]) if found and found[0]["ready"] else -1


def published(suite: Suite, left: int) -> list[str]:
    """What has come to the queue once `left` wills are there. (Its receiver comes last: a blocking connection of proton
    that nobody waits on sends nothing, and is closed.)"""
    wait_for(f"{left} wills are left", lambda: wills(suite) == left, PATIENCE)
    with devices(suite, 1, "last") as (last,):
        last.client.publish("wills", "the last", qos=1).wait_for_publish(PATIENCE)
    found: list[str] = []
    with receiver(suite, "wills") as queue:
        while True:
            message = queue.receive(PATIENCE)
            queue.accept()
            if (body := bytes(message.body).decode()) == "the last":
                return sorted(found)
            found.append(body)


def names(devices: list[Device]) -> list[str]:
    return sorted(device.name for device in devices)


@pytest.mark.clause("v5", "MQTT-3.1.2-8", "MQTT-3.1.2-10", "MQTT-3.14.4-3")
@pytest.mark.clause("v3.1.1", "MQTT-3.1.2-8", "MQTT-3.1.2-10")
@pytest.mark.parametrize("version", [pytest.param(MQTTv311, marks=pytest.mark.slow), MQTTv5])
def test_wills_of_lost_devices_are_published_and_those_of_disconnected_ones_are_not(suite: Suite, version: int) -> None:
    with devices(suite, DEVICES, f"d{version}", version=version) as found:
        for device in found[::2]:
            device.die()
        for device in found[1::2]:
            device.leave()
        assert published(suite, 0) == names(found[::2])


@pytest.mark.clause("v5", "MQTT-3.1.2-14", "MQTT-3.1.2-15")
@pytest.mark.parametrize("retain", [False, True])
def test_a_will_on_a_topic_reaches_amqp_and_mqtt_and_may_be_retained(suite: Suite, retain: bool) -> None:
    topic = f"state/{retain}"
    got: list[tuple[str, bytes, bool]] = []
    with receiver(suite, topic) as amqp, devices(suite, 1, "watcher") as (watcher,):
        watcher.client.on_message = lambda client, data, message: got.append(
            (message.topic, message.payload, message.retain)
        )
        granted: list[Any] = []
        watcher.client.on_subscribe = lambda client, data, packet, codes, properties: granted.append(codes)
        watcher.client.subscribe(topic, qos=1)
        wait_for("it has subscribed", lambda: granted, PATIENCE)
        with devices(suite, 1, f"dies-{retain}", to=topic, retain=retain) as (device,):
            device.die()
            message = amqp.receive(PATIENCE)
            amqp.accept()
            assert bytes(message.body).decode() == device.name
        wait_for("the watcher has it", lambda: got, PATIENCE)
        assert got == [(topic, device.name.encode(), False)]
        granted.clear()
        watcher.client.subscribe(f"{topic}/#", qos=1)  # again: now it is there already, if it is retained
        wait_for("it has subscribed", lambda: granted, PATIENCE)
        watcher.client.publish(topic, "after", qos=1).wait_for_publish(PATIENCE)
        wait_for("what was published after", lambda: any(payload == b"after" for _, payload, _ in got), PATIENCE)
        assert ((topic, device.name.encode(), True) in got) == retain
        if retain:
            watcher.client.publish(topic, b"", qos=1, retain=True).wait_for_publish(PATIENCE)
    wait_for("all are forgotten", lambda: wills(suite) == 0, PATIENCE)


@pytest.mark.parametrize("kind", ["mqtt_gateway", "mqtt_lwt", "router"])
def test_after_a_crash_only_wills_of_devices_that_do_not_reconnect_are_published_once(suite: Suite, kind: str) -> None:
    """Devices that are dead before anybody can tell of it, and devices that live. On a slow machine the gateway may not
    be back within the grace time: nothing is said of devices that connect again as late."""
    with devices(suite, DEVICES, f"after-{kind}") as found:
        dead, living = found[::2], found[1::2]
        killed_at = time.monotonic()
        if kind == "mqtt_gateway":
            for device in dead:
                device.client.loop_stop()  # it does not come again
            suite.kill(suite.component(kind))
            connected(living, 2)
        else:
            suite.kill(suite.component(kind))
            for device in dead:
                device.die()
        suite.wait_ready()
        found_wills = published(suite, len(living))
        late = names([device for device in living if device.connected_at > killed_at + IN_TIME])
        assert [name for name in found_wills if name not in late] == names(dead)
        assert len(set(found_wills)) == len(found_wills)
        for device in living:
            device.leave()
        wait_for("all are forgotten", lambda: wills(suite) == 0, PATIENCE)


def test_devices_with_a_will_are_refused_while_the_store_of_wills_is_unavailable(suite: Suite) -> None:
    server = STORES[suite.offset]
    if server is None:
        (suite.data / "mqtt_lwt" / "store.db").rename(suite.data / "away")
    else:
        server.kill()
    wait_for("the last-will service says so", lambda: wills(suite) == -1, PATIENCE)
    device = Device(suite, "waits")
    refused: list[Any] = []
    device.client.on_connect_fail = lambda *_: refused.append("failed")
    device.client.on_disconnect = lambda client, data, flags, reason, properties: refused.append(reason)
    wait_for("it is refused", lambda: refused, PATIENCE)
    assert device.connects == 0
    if server is None:
        (suite.data / "away").rename(suite.data / "mqtt_lwt" / "store.db")
    else:
        server.start()
    connected([device])
    device.leave()
    wait_for("all are forgotten", lambda: wills(suite) == 0, PATIENCE)
