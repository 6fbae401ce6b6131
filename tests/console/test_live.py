"""Live state: traffic of addresses, connections, links and events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import ConnectionException, Message
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection

from enmasse import __version__
from enmasse.testing import Suite
from tests.broker.harness import BrokerProcess
from tests.console.client import Client, of
from tests.kit.waiting import DEADLINE, wait_for


@pytest.fixture
def amqp(suite: Suite) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(suite.url, timeout=DEADLINE)
    yield connection
    connection.close()


def stats(client: Client, name: str) -> Any:
    return client("GET", f"addresses/{of(name)}").body["stats"]


def test_traffic_of_a_queue_is_counted_and_streamed(client: Client, suite: Suite, amqp: BlockingConnection) -> None:
    before = stats(client, "orders")["totals"]
    sender = amqp.create_sender("orders")
    for number in range(20):
        sender.send(Message(f"message {number}"))
    wait_for(lambda: stats(client, "orders")["totals"]["in"] == before["in"] + 20)
    wait_for(lambda: stats(client, "orders")["messages"] == 20 and stats(client, "orders")["producers"] == 1)
    now = stats(client, "orders")
    assert now["size"] > 0 and now["oldest"] is not None
    receiver = amqp.create_receiver("orders", credit=20)
    with Client(suite) as watching:
        events = watching.events("addresses?watch=1&name=orders")
        assert next(events)[0] == "snapshot"
        for _ in range(20):
            receiver.receive()
            receiver.accept()
        receiver.close()  # which sends what was accepted last
        while next(events)[1]["items"][0]["stats"]["messages"] != 0:
            pass
    wait_for(lambda: stats(client, "orders")["totals"]["accepted"] == before["accepted"] + 20)
    wait_for(lambda: any(each["rates"]["out"] > 0 for each in client("GET", "addresses/orders/stats").body["samples"]))
    wait_for(lambda: stats(client, "orders")["rates"]["out"] == 0, "the rate of what has stopped")


def test_brokers_and_routers_say_what_they_use_and_how_busy_they_are(client: Client) -> None:
    def all_known() -> list[dict[str, Any]]:
        found = client.items("brokers") + client.items("routers")
        return found if all(each["busy"] is not None for each in found) else []

    for each in wait_for(all_known, "two reports of each"):
        assert 0 <= each["busy"] <= 1 and each["memory"] > 1 << 20 and each["version"]
        assert "diskFree" not in each or (each["diskFree"] > 0 and each["size"] >= 0 and each["connections"] > 0)


@pytest.mark.parametrize("kind", ["brokers", "routers"])
def test_brokers_and_routers_have_a_history(kind: str, client: Client) -> None:
    where = f"{kind}/{client.items(kind)[0]['name']}/stats?minutes=10"

    def known() -> list[dict[str, Any]]:
        return [each for each in client("GET", where).body["samples"] if each["busy"] is not None]

    sample = wait_for(known, "two reports, and ten seconds")[-1]
    assert sample["memory"] > 1 << 20 and sample["connections"] >= 0 and 0 <= sample["busy"] <= 1
    assert {"in", "out"} == sample["rates"].keys() and (sample["messages"] is None) == (kind == "routers")
    assert client("GET", f"{kind}/none/stats").status == 404


def test_addresses_without_a_broker(client: Client, amqp: BlockingConnection) -> None:
    before = stats(client, "broadcast")["totals"]
    receivers = [amqp.create_receiver("broadcast", credit=5, name=f"r{number}") for number in range(2)]
    amqp.create_sender("broadcast", options=AtMostOnce()).send(Message("all"))
    for each in receivers:
        each.receive()  # settled
    wait_for(lambda: stats(client, "broadcast")["totals"]["out"] == before["out"] + 2)
    assert stats(client, "broadcast")["consumers"] == 2 and stats(client, "broadcast")["messages"] is None


def test_a_connection_with_its_links_is_shown_and_closed(client: Client, suite: Suite) -> None:
    amqp = BlockingConnection(suite.url, timeout=DEADLINE)
    receiver = amqp.create_receiver("orders", credit=7, name='a"link<b>')
    name = amqp.container.container_id
    (found,) = wait_for(lambda: client.items(f"connections?container={name}"))
    assert (found["protocol"], found["user"], found["tls"], found["links"]) == ("amqp", "anonymous", None, 1)
    path = f"connections/{of(found['id'])}"
    wait_for(lambda: [each["credit"] for each in client.items(f"{path}/links")] == [7])
    (link,) = client.items(f"{path}/links")
    assert (link["address"], link["direction"], link["name"], link["credit"]) == ("orders", "out", 'a"link<b>', 7)
    assert client("GET", path).body["id"] == found["id"]
    assert client("DELETE", path).status == 204
    with pytest.raises(ConnectionException):
        while True:
            receiver.receive(timeout=DEADLINE)
    wait_for(lambda: client("GET", path).status == 404)
    audit = (suite.data / "logs" / "audit.log").read_text().splitlines()
    assert "audit.connection.closed" in [json.loads(line)["event"] for line in audit]


@pytest.fixture
def broker_by_hand(suite: Suite, client: Client, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker without users, which the suite uses, and its clients reach without a router too."""
    broker = BrokerProcess(tmp_path, name="by-hand").start()
    with broker.manage() as management:
        management.queue("elsewhere")
    external = {"type": "queue", "templateName": "queue-external"}
    suite.edit("flavors.json", {"hand": {**external, "templateParameters": {"HOST": "127.0.0.1", "PORT": broker.port}}})
    suite.edit("addresses.json", {"elsewhere": {"type": "queue", "flavor": "hand"}})
    wait_for(lambda: client("GET", "addresses/elsewhere").body.get("phase") == "Active")
    try:
        yield broker
    finally:
        suite.edit("addresses.json", {}, remove={"elsewhere"})
        wait_for(lambda: client("GET", "addresses/elsewhere").status == 404)
        suite.edit("flavors.json", {}, remove={"hand"})
        broker.stop()


def test_a_connection_to_a_broker_itself_is_shown_and_closed(
    client: Client, suite: Suite, broker_by_hand: BrokerProcess
) -> None:
    amqp = BlockingConnection(broker_by_hand.url, timeout=DEADLINE)
    receiver = amqp.create_receiver("elsewhere", credit=7)
    name = amqp.container.container_id
    (found,) = wait_for(lambda: client.items(f"connections?container={name}"))
    assert (found["component"], found["protocol"]) == ("by-hand", "amqp")
    done = suite.command("connection", "close", found["id"], "--port-offset", str(suite.offset))
    assert done.returncode == 0, done.stderr
    with pytest.raises(ConnectionException, match=r"amqp:connection:forced.*closed by an administrator"):
        while True:
            receiver.receive(timeout=DEADLINE)
    path = f"connections/{of(found['id'])}"
    wait_for(lambda: client("GET", path).status == 404)
    assert client("DELETE", path).status == 404
    audit = [json.loads(line) for line in (suite.data / "logs" / "audit.log").read_text().splitlines()]
    assert any(line["event"] == "audit.connection.closed" and found["id"] in line["what"] for line in audit)


def test_connections_of_processes_are_shown_apart_and_closed(client: Client, suite: Suite) -> None:
    offset = ("--port-offset", str(suite.offset))
    controller = "connections?inside=true&component=small-persisted-queue-0&container=storage_controller"
    (before, *_) = wait_for(lambda: client.items(controller))
    wait_for(lambda: client.items(f"connections/{of(before['id'])}/links"))
    wait_for(lambda: client.items("connections?inside=true&component=router-0&container=ragent"))
    shown = suite.command("connection", "list", "--inside", "--json", *offset)
    rows = {row["id"]: row for row in json.loads(shown.stdout)["items"]}
    assert rows[before["id"]]["user"] == "storage_controller" and all(row["inside"] for row in rows.values())
    assert not any(row["inside"] for row in client.items("connections"))
    assert suite.command("connection", "close", before["id"], *offset).returncode == 0
    wait_for(lambda: [each for each in client.items(controller) if each["id"] != before["id"]], "it connects again")
    assert suite.command("connection", "list", "--inside", "--refused", *offset).returncode == 2
    own = "connections?inside=true&component=small-persisted-topic-0&container=console"
    (before, *_) = wait_for(lambda: client.items(own))
    assert client("DELETE", f"connections/{of(before['id'])}").status == 204
    wait_for(lambda: [each for each in client.items(own) if each["id"] != before["id"]], "the console connects again")
    suite.wait_ready()


def test_brokers_and_routers(client: Client) -> None:
    wait_for(lambda: all(each["connected"] for each in client.items("brokers")))
    brokers = {each["name"]: each for each in client.items("brokers")}
    assert brokers["small-persisted-queue-0"]["addresses"]["orders"] == "active"
    (router,) = client.items("routers")
    assert (router["version"], router["routes"]) == (__version__, [])
    assert router["connected"] and "ragent" in router["peers"] and set(brokers) <= set(router["peers"])
    assert router["neighbours"] == [{"name": name, "kind": "broker", "rates": None} for name in sorted(brokers)]
