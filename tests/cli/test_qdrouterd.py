"""`enmasse up --router qdrouterd`: what is refused before the start, and the suite with a real Qpid Dispatch."""

from __future__ import annotations

import os
import queue
import signal
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from enmasse.supervisor.plan import Options, Spec, router
from enmasse.supervisor.ports import InternalPorts
from tests.cli.running import Up, alive, enmasse, wait_for

ROUTER = ("--router", "qdrouterd")


def program(folder: Path, script: str) -> dict[str, str]:
    """The environment with a `qdrouterd` that does this."""
    folder.mkdir()
    file = folder / "qdrouterd"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return {"PATH": str(folder), "ENMASSE_ROUTER": "qdrouterd"}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "no program qdrouterd is on PATH"),
        ("echo 1.18.0", "is version 1.18.0"),
        ("echo 1.9.0", "is version 1.9.0"),
        ("echo what", "does not show a version"),
        ("echo 1.19.0; exit 3", "does not show a version"),
    ],
)
def test_no_router_to_run(config: Path, tmp_path: Path, script: str | None, said: str) -> None:
    environment = program(tmp_path / "bin", script or "")
    if script is None:
        (tmp_path / "bin" / "qdrouterd").unlink()
    ended = enmasse("up", "--config", config, "--data", tmp_path / "data", env=environment)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert said in line
    assert "Install Apache Qpid Dispatch Router 1.19" in line
    assert not (tmp_path / "data").exists()


def specs(folder: Path, engine: str) -> Spec:
    ports = InternalPorts(folder / f"{engine}.json")
    try:
        return router(Options(folder, folder, router=engine), ports, "router-0")
    finally:
        ports.close()


def test_the_same_entities(tmp_path: Path) -> None:
    """Dispatch gets what the embedded router gets, without an attribute that it would refuse, and what a mesh needs."""
    ours, theirs = specs(tmp_path, "embedded"), specs(tmp_path, "qdrouterd")
    assert (ours.engine, theirs.engine, theirs.kind) == ("embedded", "qdrouterd", "router")
    assert ours.wanted_endpoints == theirs.wanted_endpoints
    made = {attributes.get("name", kind): attributes for kind, attributes in theirs.settings["entities"]}
    for kind, attributes in ours.settings["entities"]:
        wanted = {key: value for key, value in attributes.items() if key not in ("management", "mode", "port")}
        assert made[attributes.get("name", kind)].items() >= wanted.items()
    assert "management" not in made["services"]
    assert made["router"]["mode"] == "interior"
    assert made["inter-router"]["role"] == "inter-router"


@pytest.mark.needs("qdrouterd")
def test_a_suite(config: Path, tmp_path: Path) -> None:
    with Up(config, tmp_path / "data", fake=False, options=ROUTER) as up:
        up.until_ready()
        shown = up.component("router-0")
        assert shown["engine"] == "qdrouterd"
        assert shown["detail"].startswith("Apache Qpid Dispatch 1.")
        assert shown["endpoints"]["amqp"] == f"127.0.0.1:{5672 + up.offset}"
        _passes(up, "myqueue", "one")
        _mqtt(up)

        os.kill(shown["pid"], signal.SIGKILL)
        wait_for(lambda: up.runs("router-0", after=shown["pid"]) and up.status()["ready"], what="the router is back")
        assert up.component("router-0")["restarts"] == 1
        _passes(up, "myqueue", "two")
        _mqtt(up)
        assert "Listening on" in (up.data / "logs" / "router-0.log").read_text()

        pid = up.pids()["router-0"]
        assert f'enmasse_component_up{{kind="router",name="router-0"}} 1.0' in up.http("/metrics")[1]  # noqa: F541
        up.process.kill()
        wait_for(lambda: not alive(pid), what="the router ends with its parent")


def _mqtt(up: Up) -> None:
    """Every QoS to a topic and to a queue, a session that waits, a retained message, a will."""
    got: queue.SimpleQueue[tuple[str, bytes, bool]] = queue.SimpleQueue()
    reader, writer = mqtt_client(up, "reader", got), mqtt_client(up, "writer", got)
    with_will = mqtt_client(up, "lost", got, will="mytopic/will")
    reader.subscribe("mytopic/#", 2)
    wait_for(lambda: acknowledged(reader), what="SUBACK")
    for qos in (0, 1, 2):
        writer.publish(f"mytopic/{qos}", b"now", qos).wait_for_publish(60)
    assert sorted(got.get(timeout=60)[0] for _ in range(3)) == ["mytopic/0", "mytopic/1", "mytopic/2"]
    reader.disconnect()
    writer.publish("mytopic/away", b"later", 2, retain=True).wait_for_publish(60)
    writer.publish("myqueue", b"for AMQP", 2).wait_for_publish(60)
    reader = mqtt_client(up, "reader", got)
    assert got.get(timeout=60) == ("mytopic/away", b"later", False)
    again = mqtt_client(up, "new", got)
    again.subscribe("mytopic/away", 1)
    assert got.get(timeout=60) == ("mytopic/away", b"later", True)
    again.unsubscribe("mytopic/away")
    with_will.loop_stop()
    with_will.socket().close()
    assert got.get(timeout=60)[:2] == ("mytopic/will", b"lost")
    writer.publish("mytopic/away", b"", 1, retain=True).wait_for_publish(60)
    received = enmasse("receive", "myqueue", "--count", 1, "--port-offset", up.offset)
    assert received.stdout == "for AMQP\n"
    for client in (reader, writer, again):
        client.disconnect()
        client.loop_stop()


def mqtt_client(up: Up, name: str, got: queue.SimpleQueue[Any], will: str = "") -> Any:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, clean_session=False)
    connected: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.on_connect = lambda *arguments: connected.put(arguments[3])
    client.on_subscribe = lambda *arguments: client.user_data_set("subscribed")
    client.on_message = lambda _, __, message: got.put((message.topic, message.payload, message.retain))
    if will:
        client.will_set(will, b"lost", 1)
    client.connect("127.0.0.1", 1883 + up.offset)
    client.loop_start()
    assert connected.get(timeout=60) == 0
    return client


def acknowledged(client: Any) -> bool:
    return bool(client.user_data_get() == "subscribed")


def _passes(up: Up, address: str, body: str) -> None:
    sent = enmasse("send", address, body, "--port-offset", up.offset)
    assert sent.returncode == 0, sent.stderr
    received = enmasse("receive", address, "--count", 1, "--port-offset", up.offset)
    assert received.stdout == f"{body}\n"
