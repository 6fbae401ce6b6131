"""The whole suite on Artemis brokers: what clients were promised holds over the SIGKILL of every process in the way."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import psutil
import pytest
from proton import ConnectionException, Delivery, Message, symbol
from proton.utils import BlockingConnection, BlockingSender

from enmasse.engines.artemis import peers
from enmasse.identity.annotations import FACTS, OF_FACTS
from enmasse.identity.processes.credentials import Credential, read_credential
from enmasse.process.settings import host_port
from enmasse.testing import Suite, running
from tests import one_program
from tests.artemis import ENVIRONMENT, Artemis, running_artemis
from tests.console.client import Client, of
from tests.console.test_messages import bodies, fill, finished, problem
from tests.identity.kit import refusal
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, wait_for
from tests.load import Consumer, Producer, subscribe
from tests.router.harness import outcome_of
from tests.router.test_section_checks import faults, section
from tests.spark import sinking
from tests.stomp_gateway.stomp_environment import RawClient
from tests.system.mqtt_devices import exactly_once
from tests.system.seeing import carrier, component, wait_address, wait_process
from tests.test_artemis import manage

pytestmark = pytest.mark.slow
UNIQUE = {"type": "queue", "flavor": "small-persisted-queue", "duplicates": "message-id"}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield from _suite(tmp_path_factory)


def _suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("artemis"), options=("--broker", "artemis", "--with", "stomp")) as found:
        found.up(300)
        one_program.check_files(found.config)
        yield found
        assert found.down() == 0


def kill(suite: Suite, name: str) -> None:
    """Returns when it runs again."""
    one = component(suite, name)
    os.kill(one["pid"], signal.SIGKILL)
    wait_process(suite, name, one["pid"])


def test_one_program_for_every_engine(suite: Suite) -> None:
    one_program.check(suite.url, f"mqtt://127.0.0.1:{suite.mqtt_port}")


@asyncio_test
async def test_only_processes_of_the_suite_reach_the_brokers(suite: Suite) -> None:
    """Nor do the settings of Artemis and its arguments have a secret."""
    router = read_credential(suite.data / "run" / "router-0.credential")
    other = read_credential(suite.data / "run" / "ragent.credential")
    brokers = [one for one in suite.status()["components"] if one["engine"] == "artemis"]
    assert brokers
    for one in brokers:
        host, port = host_port(one["endpoints"]["amqp"])
        assert host == "127.0.0.1"
        assert await refusal(port, router) == ""
        for credential in (None, other, Credential(router.name, router.role, other.secret)):
            assert await refusal(port, credential) == "amqp:unauthorized-access"
        words = " ".join(psutil.Process(one["pid"]).cmdline())
        files = list((suite.data / "run" / one["name"] / "etc").iterdir())
        files += [suite.data / "run" / name for name in (peers.USERS, peers.ROLES)]
        assert not any(secret in text for secret in (router.secret, other.secret)
                       for text in (words, *(path.read_text() for path in files)))  # fmt: skip
        assert {path.stat().st_mode & 0o077 for path in files} == {0}


def test_qos_2_is_exactly_once_over_the_death_of_broker_subserv_and_router(suite: Suite) -> None:
    """Artemis does not settle, so the gateway does, and it starts slowly: publishers have to wait."""
    exactly_once(suite, "mytopic", lambda name: kill(suite, name))


def test_nothing_accepted_is_lost_when_brokers_are_killed_under_load(suite: Suite) -> None:
    """A queue, and a durable subscription whose client is away."""
    subscribe(suite.url, "mytopic", "artemis")
    away = Consumer(suite.url, "mytopic", container_id="artemis", subscription="durable")
    producers = [Producer(suite.url, name) for name in ("myqueue", "mytopic")]
    worker = Consumer(suite.url, "myqueue")
    for client in (worker, *producers):
        client.start()
    for producer in producers:
        producer.wait_accepted(100)
    for name in ("myqueue", "mytopic"):
        kill(suite, carrier(suite, name)["name"])
    for producer in producers:
        producer.enough()
        producer.wait_end()
    away.start()
    for producer, consumer in zip(producers, (worker, away), strict=True):
        consumer.wait_all(producer)
        assert producer.accepted == consumer.seen.keys() == set(range(producer.sent))
    for client in (worker, away, *producers):
        client.stop()


def test_the_sink_of_spark_stores_each_row_once_and_names_those_that_fail(suite: Suite) -> None:
    names = ("sunk", "sunk-dead")
    suite.edit("addresses.json", {name: {"type": "queue", "flavor": "small-persisted-queue"} for name in names})
    for name in names:
        wait_address(suite, name, ready=True)
    connection = BlockingConnection(suite.url, timeout=sinking.PATIENCE)
    sinking.check(connection, *names, url=suite.url)
    connection.close()
    suite.edit("addresses.json", {}, remove=names)


@pytest.mark.parametrize("size", [10, 300_000])
@pytest.mark.parametrize("to", ["myqueue", "mytopic"])
def test_no_message_is_read_by_artemis_otherwise_than_by_the_router(suite: Suite, to: str, size: int) -> None:
    """One with two sections of properties, over the anonymous terminus: Artemis takes the `to` of the second one. What
    stands behind the body Artemis does not read."""
    other = "mytopic" if to == "myqueue" else "myqueue"
    body = section(0x75, b"x" * size)
    front, again = section(0x73, [None, None, to]), section(0x73, [None, None, other])
    connection = BlockingConnection(suite.url, timeout=DEADLINE)
    mine, theirs = (connection.create_receiver(name, credit=10) for name in (to, other))
    for target in (None, to):
        sender = connection.create_sender(target)
        for bad in faults(to).values():
            assert sent_raw(sender, bad + body) == Delivery.REJECTED
        for good in (front + body, front + body + again):
            assert sent_raw(sender, good) == Delivery.ACCEPTED
            mine.receive()
            mine.accept()
        sender.close()
    assert sent_raw(connection.create_sender(other), again + body) == Delivery.ACCEPTED
    assert theirs.receive().address == other, "the first one"
    theirs.accept()
    connection.close()


FORGED: dict[Any, Any] = {symbol(each.name + "ADDRESS" * each.is_prefix): "in/from" for each in FACTS}
WAYS = {"link": 10, "anonymous": 10, "pieces": 300_000}
"""How a message enters, and the size of its body. `pieces`: too large for the router to wait for its end."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("to", ["myqueue", "mytopic", "mytopic/below"])
def test_artemis_is_told_no_fact_by_a_client(suite: Suite, to: str, way: str) -> None:
    """Nor is a receiver behind it; other annotations arrive."""
    connection = BlockingConnection(suite.url, timeout=DEADLINE)
    receiver = connection.create_receiver(to, credit=1)
    sender = connection.create_sender(None if way == "anonymous" else to)
    stated = {**FORGED, symbol("x-opt-mine"): "kept"}
    sender.send(Message(address=to, body=b"x" * WAYS[way], durable=True, annotations=stated))
    found = receiver.receive()
    receiver.accept()
    connection.close()
    names = {str(name) for name in found.annotations}
    assert "x-opt-mine" in names and not [name for name in names if OF_FACTS.has(name)]


def test_a_forged_origin_lets_no_dead_letter_of_artemis_go_elsewhere(suite: Suite) -> None:
    """Artemis calls the annotations `_AMQ_ORIG_ADDRESS`, as which a client may state a property."""
    queue = {"type": "queue", "flavor": "small-persisted-queue"}
    of_both = {name: {**queue, "deadletter": "of/dead"} for name in ("of/from", "of/other")}
    suite.edit("addresses.json", {"of/dead": queue, **of_both})
    for name in of_both:
        wait_address(suite, name, ready=True)
    forged = {"_AMQ_ORIG_ADDRESS": "of/other", "_AMQ_ORIG_QUEUE": "of/other"}
    connection = BlockingConnection(suite.url, timeout=DEADLINE)
    for to, body, properties in (
        ("of/from", "died", {}), ("of/from", "died and lies", forged), ("of/dead", "never died", forged),
    ):  # fmt: skip
        sender = connection.create_sender(to)
        sender.send(Message(body=body, durable=True, properties=properties, annotations={**FORGED}))
        sender.close()
    connection.close()
    done = command(suite, "receive", "of/from", "--count", "2", "--reject")
    assert done.returncode == 0, done.stderr
    with Client(suite) as client:
        wait_for(lambda: sorted(bodies(client, "of/dead")) == ["died", "died and lies", "never died"])
        done = command(suite, "address", "redrive", "of/dead")
        assert done.returncode == 0, done
        assert (bodies(client, "of/from"), bodies(client, "of/other")) == (["died", "died and lies"], [])
        assert bodies(client, "of/dead") == ["never died"]
    for name in ("of/from", "of/dead"):
        done = command(suite, "address", "purge", name, "--force")
        assert done.returncode == 0, done
    suite.edit("addresses.json", {}, remove=["of/from", "of/other", "of/dead"])


def sent_raw(sender: BlockingSender, payload: bytes) -> Any:
    """Send these bytes; returns the outcome."""
    sender.connection.wait(lambda: sender.link.credit > 0, msg="credit")
    delivery = sender.link.delivery(sender.link.delivery_tag())
    sender.link.stream(payload)
    sender.link.advance()
    state = outcome_of(sender.connection, delivery)
    delivery.settle()
    return state


def test_messages_of_artemis_in_the_console(suite: Suite) -> None:
    """The same API and words as with the embedded broker, and the page's numbers."""
    queue = {"type": "queue", "flavor": "small-persisted-queue"}
    suite.edit("addresses.json", {"in/dead": queue, "in/from": {**queue, "deadletter": "in/dead"}, "in/to": queue})
    for name in ("in/from", "in/to"):
        wait_address(suite, name, ready=True)
    with Client(suite) as client:
        fill(client, "in/from", "a", "b", "c", "d", subject="s", properties={"n": 1})
        fill(client, "in/from", "u", priority=7)
        (urgent, first, *_) = client.items(f"addresses/{of('in/from')}/messages")
        assert (urgent["body"], first["body"], first["subject"], first["properties"]) == ("u", "a", "s", {"n": 1})
        wait_for(lambda: stats(client, "in/from")["totals"]["in"] == 5)
        wait_for(lambda: (now := stats(client, "in/from"))["messages"] == 5 and now["size"])

        path = f"addresses/{of('in/from')}"
        assert finished(client, client("POST", f"{path}/move", {"to": "in/to", "ids": [urgent["id"]]})) == ("done", 1)
        assert finished(client, client("POST", f"{path}/remove", {"selector": "JMSType = 'x'"})) == ("done", 0)
        assert problem(client("POST", f"{path}/remove", {"selector": "JMSReplyTo = 'x'"}))[0] == 422
        done = command(suite, "receive", "in/from", "--count", "4", "--reject")
        assert done.returncode == 0, done.stderr
        wait_for(lambda: stats(client, "in/dead")["messages"] == 4)
        assert {each["deaths"][0]["source"] for each in client.items(f"addresses/{of('in/dead')}/messages")} == {
            "in/from"
        }
        wait_for(lambda: stats(client, "in/from")["totals"]["deadLettered"] == 4)
        done = command(suite, "address", "redrive", "in/dead")
        assert done.returncode == 0 and "4" in done.stdout, done
        assert bodies(client, "in/from") == ["a", "b", "c", "d"]
        shown = command(suite, "address", "browse", "in/from", "--json")
        assert [each["body"] for each in json.loads(shown.stdout)["items"]] == ["a", "b", "c", "d"]
        done = command(suite, "address", "move", "in/from", "in/to")
        assert done.returncode == 0 and bodies(client, "in/to") == ["u", "a", "b", "c", "d"], done
        done = command(suite, "address", "purge", "in/to", "--force")
        assert done.returncode == 0 and bodies(client, "in/to") == [], done
        wait_for(lambda: stats(client, "in/to")["messages"] == stats(client, "in/from")["messages"] == 0)
        wait_for(lambda: counted(suite, client, "messages_in_total", "in/from") == 9)
        assert counted(suite, client, "dead_lettered_total", "in/from") == 4
    suite.edit("addresses.json", {}, remove=["in/from", "in/to", "in/dead"])


def test_connections_at_artemis_are_listed_and_closed(suite: Suite, tmp_path: Path) -> None:
    """Those of processes at brokers of the suite, and those of clients at a broker that is managed by hand."""
    suite.edit("addresses.json", {"counted": {"type": "queue", "flavor": "small-persisted-queue"}})
    wait_address(suite, "counted", ready=True)
    with Client(suite) as client:
        name = carrier(suite, "counted")["name"]
        (router,) = wait_for(lambda: client.items(f"connections?inside=true&component={name}&user=router-0"))
        assert (router["protocol"], router["container"], router["inside"]) == ("amqp", "router-0", True)
        assert router["peer"].startswith("127.0.0.1:") and router["since"] and router["tls"] is None
        sent = router["totals"]["in"]
        assert command(suite, "send", "counted", "one").returncode == 0
        row = f"connections/{of(router['id'])}"
        wait_for(lambda: client("GET", row).body["totals"]["in"] > sent)
        assert "counted" in {each["address"] for each in client.items(f"{row}/links")}
        assert command(suite, "connection", "close", router["id"]).returncode == 0
        wait_for(lambda: client("GET", row).status == 404)
        assert client("DELETE", row).status == 404
        wait_for(lambda: client.items(f"connections?inside=true&component={name}&user=router-0"), "it connects again")
        suite.wait_ready()
        assert command(suite, "receive", "counted", "--count", "1", "--timeout", "60").stdout == "one\n"
        with running_artemis(tmp_path) as hand:
            _by_hand(suite, client, hand)
    suite.edit("addresses.json", {}, remove=["counted"])


def _by_hand(suite: Suite, client: Client, hand: Artemis) -> None:
    c = BlockingConnection(hand.address, timeout=DEADLINE)
    external = {"type": "queue", "templateName": "queue-external"}
    queue = {"name": "hand", "address": "hand", "routing-type": "ANYCAST", "auto-create-address": True}
    manage(c, "createQueue", json.dumps(queue))
    suite.edit("flavors.json", {"hand": {**external, "templateParameters": {"HOST": "127.0.0.1", "PORT": hand.port}}})
    suite.edit("addresses.json", {"hand": {"type": "queue", "flavor": "hand"}})
    wait_address(suite, "hand", ready=True)
    receiver = c.create_receiver("hand", credit=7)
    (found,) = wait_for(lambda: client.items(f"connections?container={c.container.container_id}"))
    assert (found["component"], found["user"], found["inside"]) == (hand.address, None, False)
    (link,) = wait_for(lambda: client.items(f"links?connection={of(found['id'])}&address=hand"))
    assert (link["direction"], link["unsettled"]) == ("out", 0)
    c.create_sender("hand").send(Message(body="x"))
    receiver.receive(timeout=DEADLINE)
    wait_for(lambda: [it for it in client.items(f"connections?container={found['container']}") if it["totals"]["out"]])
    assert command(suite, "connection", "show", found["id"]).returncode == 0
    assert command(suite, "connection", "close", found["id"]).returncode == 0
    with pytest.raises(ConnectionException):
        c.wait(lambda: False, timeout=DEADLINE)
    audit = [json.loads(line) for line in (suite.data / "logs" / "audit.log").read_text().splitlines()]
    assert any(line["event"] == "audit.connection.closed" and found["id"] in line["what"] for line in audit)
    suite.edit("addresses.json", {}, remove=["hand"])
    suite.wait_ready()
    suite.edit("flavors.json", {}, remove=["hand"])


def command(suite: Suite, *words: str) -> CompletedProcess[str]:
    return suite.command(*words, "--port-offset", str(suite.offset))


def counted(suite: Suite, client: Client, metric: str, address: str) -> float | None:
    """Return a number of a broker's address from the metrics of the suite."""
    for line in client.at("GET", "/metrics", **suite.operator_headers).body.splitlines():
        if line.startswith(f"enmasse_broker_{metric}{{") and f'address="{address}"' in line:
            return float(line.rpartition(" ")[2])
    return None


def stats(client: Client, name: str) -> dict[str, Any]:
    found: dict[str, Any] = client("GET", f"addresses/{of(name)}").body["stats"]
    return found


def test_clients_of_stomp(suite: Suite) -> None:
    """A receipt after Artemis has it, transactions, and a message that expires there."""
    late = {"type": "queue", "flavor": "small-persisted-queue"}
    suite.edit("addresses.json", {"late": late, "short": {**late, "expiry": "late"}})
    for name in ("late", "short"):
        wait_address(suite, name)
    client = RawClient(61613 + suite.offset)
    client.connect()
    client.done("SUBSCRIBE", id="late", destination="late")
    client.done("SEND", b"too late", destination="short", expires=str(int(time.time() * 1000) + 1000))
    client.done("SEND", b"kept", destination="short", priority="7")
    expired = client.read()
    assert (expired.headers["subscription"], expired.body) == ("late", b"too late")
    client.done("SUBSCRIBE", id="1", destination="short", ack="client-individual")
    message = client.read()
    assert (message.body, message.headers["priority"]) == (b"kept", "7")
    for name in ("aborted", "done"):
        client.done("BEGIN", transaction=name)
        for n in range(10):
            client.done("SEND", f"{name} {n}".encode(), destination="late", transaction=name)
        client.done("ACK", id=message.headers["ack"], transaction=name)
        client.send("ABORT" if name == "aborted" else "COMMIT", transaction=name, receipt=name)
        frames = [client.read() for _ in range(1 if name == "aborted" else 11)]
        assert [each.headers["receipt-id"] for each in frames if each.command == "RECEIPT"] == [name]
        assert [each.body for each in frames if each.command == "MESSAGE"] == [
            b"done %d" % n for n in range(len(frames) - 1)
        ]
    client.done("DISCONNECT")
    suite.edit("addresses.json", {}, remove=["short", "late"])


def test_what_artemis_has_not_is_refused(suite: Suite) -> None:
    suite.edit("addresses.json", {"unique": UNIQUE})
    unique = wait_address(suite, "unique", phase="Failed", ready=False)
    assert "duplicates" in unique["message"] and "artemis" in unique["message"]
    suite.edit("addresses.json", {}, remove=["unique"])
