"""What was accepted is there after the broker was killed at the worst moment, and a restart brings everything back."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from proton import Delivery, Message, symbol
from proton.utils import BlockingConnection

from tests.broker.harness import (
    DEADLINE,
    BrokerProcess,
    Terminus,
    attach,
    bodies,
    flush,
    modify,
    named,
    reject,
    take,
    until,
)
from tests.broker.load import Receiver, Sender
from tests.kit.processes import run, service


def test_killed_under_load_nothing_accepted_is_lost(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m:
        m.queue("q")
    for least in (300, 700, 1100):
        send_until_killed(broker, least)
    broker.stop()


def send_until_killed(broker: BrokerProcess, least: int) -> None:
    """Kills the broker when it has accepted so many; what it accepted is there afterwards, each message once."""
    sender = Sender(broker.url, "q", size=200)
    until(lambda: len(sender.accepted) > least, "accepted messages")
    broker.kill()
    assert sender.over.wait(DEADLINE)
    broker.start()
    with broker.manage() as m:
        held = m.count("q")
        assert len(sender.accepted) <= held <= sender.sent
        receiver = Receiver(broker.url, "q")
        until(lambda: receiver.count >= held, "everything to be received", moves=lambda: receiver.count)
        assert sender.accepted <= set(receiver.got)
        assert set(receiver.got.values()) == {1}
        until(lambda: m.count("q") == 0, "the queue to be empty")
        receiver.stop()


def test_killed_while_producing_and_consuming(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m:
        m.queue("q")
    sender = Sender(broker.url, "q", size=500)
    first = Receiver(broker.url, "q")
    until(lambda: first.count > 500, "messages to flow")
    broker.kill()
    assert sender.over.wait(DEADLINE)
    assert first.over.wait(DEADLINE)
    broker.start()
    with broker.manage() as m:
        held = m.count("q")
    second = Receiver(broker.url, "q")
    until(lambda: second.count >= held, "the rest", moves=lambda: second.count)
    second.stop()
    assert sender.accepted <= set(first.got) | set(second.got)
    broker.stop()


def test_what_is_settled_second_does_not_come_again(tmp_path: Path) -> None:
    """To a receiver of rcv-settle-mode second the broker's settlement says that the outcome is stored."""
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m:
        m.queue("q")
    for i in range(3):
        c = BlockingConnection(broker.url, timeout=DEADLINE)  # not closed: it would wait for the dead broker
        c.create_sender("q").send(Message(body=i, durable=True))
        receiver = c.create_receiver("q", credit=1)
        c.wait(lambda: bool(receiver.fetcher.incoming))
        message, delivery = receiver.fetcher.incoming[0]
        assert message.body == i
        delivery.update(Delivery.ACCEPTED)
        c.wait(lambda: delivery.settled)
        broker.kill()
        broker.start()
    with broker.manage() as m:
        assert m.count("q") == 0
    broker.stop()


def test_a_restart_brings_everything_back(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m:
        m.queue("q", user="storage-controller", max_consumers=7)
        m.queue("paused")
        m("pause", resource="queue.paused")
        m("createAddress", "t", "MULTICAST")
        m("createAddress", "two", "ANYCAST,MULTICAST")
        m.settings("q", DLA="dead", redeliveryDelay=0)
        m.settings("#", maxDeliveryAttempts=5)
        m.queue("gone")
        m("destroyQueue", "gone", True, True)
    due = int(time.time() * 1000) + 3_600_000
    with broker.connect("client") as c:
        attach(c, "t", 0, name="sub", options=Terminus("topic", durable=True)).detach()
        sender = c.create_sender("q")
        sender.send(Message(body="a", durable=True, priority=2, ttl=3600, properties={"_AMQ_DUPL_ID": "d"}))
        sender.send(Message(body="b", durable=True, priority=8))
        sender.send(Message(body="later", durable=True, annotations={symbol("x-opt-delivery-time"): due}))
        sender.send(Message(body="volatile"))
        c.create_sender("t", name="t").send(Message(body="news", durable=True))
        receiver = attach(c, "q", 1)
        assert take(receiver).body == "b"
        modify(receiver, failed=True)
        receiver.close()
    broker.restart()
    with broker.manage() as m:
        rows = m.rows()
        assert (rows["q"]["user"], rows["q"]["maxConsumers"]) == ("storage-controller", "7")
        assert (rows["q"]["messageCount"], rows["q"]["scheduledCount"]) == ("3", "1")
        assert rows["paused"]["paused"] == "true"
        assert "gone" not in rows
        addresses = m.rows("listAddresses")
        assert set(addresses) >= {"q", "paused", "t", "two"}
        assert addresses["two"]["routingTypes"] == '["ANYCAST", "MULTICAST"]'
        settings = json.loads(m("getAddressSettingsAsJSON", "q"))
        assert (settings["DLA"], settings["maxDeliveryAttempts"]) == ("dead", 5)
    with broker.connect("client") as c:
        c.create_sender("q").send(Message(body="again", durable=True, properties={"_AMQ_DUPL_ID": "d"}))
        receiver = attach(c, "q", 5)
        b, a = take(receiver), take(receiver)
        assert (b.body, b.priority, b.delivery_count) == ("b", 8, 1)
        assert (a.body, a.priority, a.delivery_count) == ("a", 2, 0)
        assert 3000 < a.ttl < 3600
        assert bodies(attach(c, "t", 1, name="sub", options=Terminus("topic", durable=True)), 1) == ["news"]
    with broker.manage() as m:
        assert m("removeMessages", None, resource="queue.q") == 3, "the duplicate was not taken"
    broker.stop()


def test_a_restart_in_the_middle_of_a_backlog_keeps_order(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m:
        m.queue("q")
    sender = Sender(broker.url, "q", limit=2000)
    until(lambda: len(sender.accepted) == 2000, "everything to be accepted")
    sender.stop()
    for start in (0, 500, 1000, 1500):
        with broker.connect() as c:
            receiver = attach(c, "q", 500)
            assert [body[0] for body in bodies(receiver, 500)] == list(range(start, start + 500))
        broker.restart()
    with broker.manage() as m:
        assert m.count("q") == 0
    broker.stop()


def test_in_memory_everything_ends_with_the_process(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, data_dir=None).start()
    with broker.manage() as m, broker.connect() as c:
        m.queue("q")
        c.create_sender("q").send(Message(body="x", durable=True))
        assert m.count("q") == 1
    broker.restart()
    with broker.manage() as m:
        assert m("getQueueNames") == [m.reply_to]
    broker.stop()


def test_one_data_directory_one_broker(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    config = json.loads((tmp_path / "broker.json").read_text())
    second = tmp_path / "second.json"
    second.write_text(json.dumps(config | {"listen": "127.0.0.1:0", "health": "127.0.0.1:0"}))
    ended = run(service("broker"), "--config", second, seconds=DEADLINE)
    assert ended.returncode == 1
    assert len(ended.stderr.strip().splitlines()) == 1
    assert str(tmp_path / "data") in ended.stderr
    third = tmp_path / "third.json"
    third.write_text(json.dumps(config | {"health": "127.0.0.1:0", "data_dir": None}))
    ended = run(service("broker"), "--config", third, seconds=DEADLINE)
    assert ended.returncode == 1
    assert f"cannot listen on {broker.url}" in ended.stderr
    broker.stop()


@pytest.mark.parametrize("settings", [{"settings": {"colour": 1}}, {"global_max_size": "big"}, {"lisen": "x"}])
def test_wrong_settings_are_named(tmp_path: Path, settings: dict[str, object]) -> None:
    config = tmp_path / "broker.json"
    base = {"name": "b0", "health": "127.0.0.1:0", "listen": "127.0.0.1:0", "data_dir": None}
    config.write_text(json.dumps(base | settings))
    ended = run(service("broker"), "--config", config, seconds=DEADLINE)
    assert ended.returncode == 2
    assert str(config) in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_acknowledgements_are_written_without_other_traffic(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m, broker.connect() as c:
        m.queue("q")
        sender = c.create_sender("q")
        for n in range(10):
            sender.send(Message(body=n, durable=True))
        receiver = attach(c, "q", 10)
        assert bodies(receiver, 10) == list(range(10))
        flush(receiver)
    with broker.manage() as m:
        m.queue("marker")  # its definition is committed after the acknowledgements
    broker.kill()
    broker.start()
    with broker.manage() as m:
        assert m.count("q") == 0
    broker.stop()


def test_annotations_of_modified_survive_a_kill(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m:
        m.queue("q")
    connection = BlockingConnection(broker.url, timeout=DEADLINE)
    sender = connection.create_sender("q")
    for body in ("a", "b"):
        sender.send(Message(body=body, durable=True))
    receiver = attach(connection, "q", 1)
    take(receiver)
    modify(receiver, failed=True, seen="once")
    with broker.manage() as m:
        m.queue("other")  # answered when what was done before is on disk
    broker.kill()
    broker.start()
    with broker.connect() as c:
        receiver = attach(c, "q", 2)
        found = [take(receiver) for _ in range(2)]
        assert [(m.body, m.annotations, m.delivery_count) for m in found] == [
            ("a", {symbol("seen"): "once"}, 1),
            ("b", None, 0),
        ]
    broker.stop()


def test_the_reason_of_a_dead_letter_survives_a_kill(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m:
        m.queue("q")
        m.queue("dead")
        m.settings("q", DLA="dead")
    connection = BlockingConnection(broker.url, timeout=DEADLINE, container=named("billing"))
    connection.create_sender("q").send(Message(body="a", durable=True))
    receiver = attach(connection, "q", 1)
    take(receiver)
    reject(receiver, "app:bad", "no such customer")
    with broker.manage() as m:
        m.queue("other")  # answered when what was done before is on disk
    broker.kill()
    broker.start()
    with broker.connect() as c:
        message = take(attach(c, "dead", 1))
        death = message.annotations[symbol("x-opt-death")]
        assert (death["reason"], death["condition"], death["description"]) == (
            "rejected",
            "app:bad",
            "no such customer",
        )
        assert (death["consumer"], death["source"], death["count"]) == ("billing", "q", 1)
        assert death["first"] == death["last"] > 0
    with broker.manage() as m:
        assert m.count("q") == 0
    broker.stop()
