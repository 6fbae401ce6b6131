"""A real mosquitto as a bridge to the suite, with its default options, while either side is restarted."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from enmasse.testing import Suite, free_port, running, wait_for
from tests.conformance.test_sessions import Name
from tests.kit.mosquitto import PROGRAM, answers

BACKLOG = 300


class Mosquitto:
    """A mosquitto that is started again on the same data, and bridges `up/…` out and `down/…` in."""

    def __init__(self, folder: Path, suite_port: int, name: str, version: str, qos: int) -> None:
        self.port = free_port()
        self._config = folder / "mosquitto.conf"
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\n"
            f"persistence true\npersistence_location {folder}/\nuser root\n"
            f"connection {name}\naddress 127.0.0.1:{suite_port}\nbridge_protocol_version {version}\n"
            f"topic {name}/up/# out {qos}\ntopic {name}/down/# in {qos}\nrestart_timeout 1\n"
        )
        self._log = folder / "mosquitto.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([PROGRAM, "-v", "-c", str(self._config)], stdout=log, stderr=log)
        wait_for("mosquitto", self._answers)

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self._log.read_text()
        return answers(self.port)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()
            self._process = None


class Client:
    """A paho client that comes back by itself; `got`: payload → how often it came."""

    def __init__(self, port: int, name: str) -> None:
        self.got: Counter[bytes] = Counter()
        self._subscribed = False
        self._client = paho.Client(CallbackAPIVersion.VERSION2, name, clean_session=False)
        self._client.max_queued_messages_set(0)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_message = self._on_message
        self._client.on_subscribe = self._on_subscribe
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def _on_message(self, client: Any, data: Any, message: paho.MQTTMessage) -> None:
        self.got[message.payload] += 1

    def _on_subscribe(self, *_: Any) -> None:
        self._subscribed = True

    def subscribe(self, topic: str, qos: int) -> None:
        self._client.subscribe(topic, qos)
        wait_for("SUBACK", lambda: self._subscribed)

    def publish(self, topic: str, payloads: list[bytes], qos: int) -> list[paho.MQTTMessageInfo]:
        return [self._client.publish(topic, payload, qos) for payload in payloads]

    def end(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def _acknowledged(sent: list[paho.MQTTMessageInfo]) -> None:
    wait_for("all acknowledgements", lambda: all(each.is_published() for each in sent))


@contextmanager
def _bridged(folder: Path, port: int, name: str, version: str, qos: int) -> Iterator[tuple[Mosquitto, Client, Client]]:
    """The mosquitto, a client of it and one of the suite, each subscribed to what comes over the bridge."""
    mosquitto = Mosquitto(folder, port, name, version, qos)
    mosquitto.start()
    clients: list[Client] = []
    try:
        clients = [Client(mosquitto.port, f"{name}-near"), Client(port, f"{name}-far")]
        near, far = clients
        near.subscribe(f"{name}/down/#", qos)
        far.subscribe(f"{name}/up/#", qos)
        _wait_until_it_passes(name, near, far, qos)
        yield mosquitto, near, far
    finally:
        for each in clients:
            each.end()
        mosquitto.stop()


def _wait_until_it_passes(name: str, near: Client, far: Client, qos: int) -> None:
    """A message passes in both directions."""
    sent = count()

    def passed() -> bool:
        probe = b"probe %d" % next(sent)
        near.publish(f"{name}/up/x", [b"up " + probe], qos)
        far.publish(f"{name}/down/x", [b"down " + probe], qos)
        return all(
            any(got.startswith(b"%s probe" % way) for got in list(end.got))
            for end, way in ((near, b"down"), (far, b"up"))
        )

    for end in (near, far):
        for probe in [got for got in list(end.got) if b" probe" in got]:
            del end.got[probe]
    wait_for("the bridge", passed)


def _arrived(client: Client, wanted: list[bytes], once: bool) -> None:
    wait_for("all messages", lambda: all(client.got[each] for each in wanted))
    if once:
        assert {client.got[each] for each in wanted} == {1}


def _exchange(name: str, near: Client, far: Client, wanted: list[bytes], qos: int) -> None:
    """All of these pass in both directions."""
    _acknowledged(near.publish(f"{name}/up/x", wanted, qos) + far.publish(f"{name}/down/x", wanted, qos))
    _arrived(near, wanted, qos == 2)
    _arrived(far, wanted, qos == 2)


def _restart_gateway(suite: Suite) -> None:
    gateway = suite.component("mqtt_gateway")
    suite.kill(gateway)
    wait_for(
        "the gateway is back",
        lambda: any(
            each["kind"] == "mqtt_gateway" and each["pid"] != gateway["pid"] and each["ready"]
            for each in suite.status()["components"]
        ),
    )


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.slow
def test_a_bridge_of_3_1_1_loses_nothing_when_either_side_is_restarted(
    running_suite: Suite, tmp_path: Path, unique: Name, qos: int
) -> None:
    name = unique("bridge")
    with _bridged(tmp_path, running_suite.mqtt_port, name, "mqttv311", qos) as (mosquitto, near, far):
        wanted = [b"%d" % number for number in range(BACKLOG)]
        sent = near.publish(f"{name}/up/x", wanted, qos) + far.publish(f"{name}/down/x", wanted, qos)
        _restart_gateway(running_suite)
        _acknowledged(sent)
        mosquitto.stop()
        waiting = [b"waiting %d" % number for number in range(BACKLOG)]
        _acknowledged(far.publish(f"{name}/down/x", waiting, qos))
        mosquitto.start()
        wait_for("the first of them", lambda: near.got[waiting[0]])
        _restart_gateway(running_suite)
        _arrived(near, wanted + waiting, qos == 2)
        _arrived(far, wanted, qos == 2)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.slow
def test_a_bridge_of_5_loses_nothing_that_the_mosquitto_has_when_the_gateway_is_restarted(
    running_suite: Suite, tmp_path: Path, unique: Name, qos: int
) -> None:
    """mosquitto 2.0 asks for no session expiry as a bridge of MQTT 5: its session ends with the connection."""
    name = unique("bridge")
    with _bridged(tmp_path, running_suite.mqtt_port, name, "mqttv50", qos) as (mosquitto, near, far):
        _exchange(name, near, far, [b"before %d" % number for number in range(BACKLOG)], qos)
        _restart_gateway(running_suite)
        during = [b"during %d" % number for number in range(BACKLOG)]
        _acknowledged(near.publish(f"{name}/up/x", during, qos))
        _arrived(far, during, False)
        mosquitto.stop()
        mosquitto.start()
        _wait_until_it_passes(name, near, far, qos)
        after = [b"after %d" % number for number in range(BACKLOG)]
        _acknowledged(far.publish(f"{name}/down/x", after, qos))
        _arrived(near, after, qos == 2)


@pytest.mark.slow  # bridges have tests beside it
def test_a_bridge_with_default_options_connects_though_no_address_takes_its_state(tmp_path: Path) -> None:
    """Its will and its retained message are for `$SYS/broker/connection/NAME/state`."""
    versions = ("mqttv311", "mqttv50")
    addresses = {version: {"type": "topic", "flavor": "small-persisted-topic"} for version in versions}
    with running(tmp_path / "suite", addresses, options=()) as suite:
        suite.up()
        for version in versions:
            folder = tmp_path / version
            folder.mkdir()
            with _bridged(folder, suite.mqtt_port, version, version, 1) as (_, near, far):
                _exchange(version, near, far, [b"%d" % number for number in range(BACKLOG)], 1)
