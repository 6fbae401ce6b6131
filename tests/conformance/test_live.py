"""What the live state of a running suite's router, broker and gateway tells an operator, and no client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from proton import Message
from proton.utils import BlockingConnection, LinkDetached

from enmasse.control import ControlConnection
from enmasse.control.live_followers import follow
from enmasse.live_state import Merged
from enmasse.testing import Suite, wait_for
from tests.kit.waiting import DEADLINE, until
from tests.system.operating import talk
from tests.system.seeing import carrier, status


@pytest.fixture
def suite(running_suite: Suite) -> Suite:
    return running_suite


@pytest.fixture
def device(suite: Suite) -> Iterator[Client]:
    """An MQTT client that is connected."""
    client = Client(CallbackAPIVersion.VERSION2, client_id="watched", protocol=MQTTv5)
    client.connect("localhost", suite.mqtt_port)
    client.loop_start()
    wait_for("CONNACK", client.is_connected)
    yield client
    client.disconnect()
    client.loop_stop()


def gateways(suite: Suite) -> list[str]:
    return [each["name"] for each in status(suite)["components"] if each["kind"] == "mqtt_gateway"]


def test_a_gateways_clients_are_followed_through_the_router(suite: Suite, device: Client) -> None:
    async def work(connection: ControlConnection) -> None:
        router, each = Merged(), {name: Merged() for name in gateways(suite)}
        follow(connection, router)
        for name, merged in each.items():
            follow(connection, merged, node=f"$live/{name}")
        await until(lambda: "watched" in clients(each.values()), "the row of the client")
        row = clients(each.values())["watched"]
        assert (row["protocol"], row["version"], row["user"], row["client"]) == ("mqtt", "5", "anonymous", "watched")
        await until(lambda: all(merged.complete for merged in each.values()), "the state of both gateways")
        assert all((merged.kind, merged.component) == ("mqtt_gateway", name) for name, merged in each.items())
        device.publish("news/x", b"hello", 1).wait_for_publish(60)
        await until(lambda: clients(each.values())["watched"]["packetsIn"] > row["packetsIn"], "the packet")
        assert clients(each.values())["watched"]["bytesIn"] > row["bytesIn"]
        device.publish("orders", b"hello", 1, retain=True)  # a queue retains nothing
        await until(
            lambda: [it for merged in each.values() for it in merged.events if it.get("address") == "orders"],
            "the refusal",
        )
        await until(lambda: router.complete, "the router's rows")
        assert each.keys() <= {it["container"] for it in router.kinds["connections"].values()}
        await asyncio.to_thread(device.disconnect)
        await until(lambda: "watched" not in clients(each.values()), "the end of the client")

    talk(suite, suite.operators, work)


def clients(states: Iterable[Merged]) -> dict[str, dict[str, Any]]:
    """Rows of clients, of all gateways."""
    return {id: row for merged in states for id, row in merged.kinds.get("connections", {}).items()}


def test_router_and_broker_tell_of_a_queue(suite: Suite) -> None:
    client = BlockingConnection(suite.url, timeout=DEADLINE)
    client.create_sender("orders").send(Message("x", durable=True))

    async def work(connection: ControlConnection) -> None:
        merged = Merged()
        follow(connection, merged)
        await until(lambda: merged.kinds.get("addresses", {}).get("orders", {}).get("producers"), "the address")
        assert merged.kinds["addresses"]["orders"]["in"] >= 1

    talk(suite, suite.operators, work)

    async def at_broker(connection: ControlConnection) -> None:
        merged = Merged()
        follow(connection, merged)
        await until(lambda: merged.kinds.get("queues", {}).get("orders", {}).get("messages") == 1, "the queue")
        assert merged.kinds["queues"]["orders"]["oldest"] is not None

    broker = carrier(suite, "orders")
    talk(suite, broker["endpoints"]["amqp"], at_broker)
    receiver = client.create_receiver("orders", credit=1)
    receiver.receive(DEADLINE)
    receiver.accept()
    client.close()


@pytest.mark.parametrize("node", ["$live", "$live/{gateway}"])
def test_clients_do_not_get_it(suite: Suite, node: str) -> None:
    gateway = gateways(suite)[0]
    client = BlockingConnection(suite.url, timeout=DEADLINE)
    with pytest.raises(LinkDetached, match="listener for operators"):
        client.create_receiver(node.format(gateway=gateway))
    client.close()
