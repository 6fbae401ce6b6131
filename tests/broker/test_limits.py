"""Full addresses, full brokers, and queues that outgrow memory."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection, SendException

from services.broker.app import BrokerSettings
from services.broker.core.connections import Connections
from services.broker.core.limits.broker_limits import BrokerLimits
from services.broker.core.limits.usage import UNCOMMITTED
from services.broker.core.publishing.verdict import ACCEPT, RELEASE, WAIT
from services.broker.management import queue_control
from services.broker.management.calls import CallContext
from tests.broker.harness import BrokerProcess, Management, attach, bodies, flush, take, until
from tests.broker.load import Receiver, Sender
from tests.broker.sansio import Core

KIB = "x" * 1000


def test_each_limit_of_a_broker_is_a_setting_of_its_process() -> None:
    assert set(BrokerLimits.__struct_fields__) <= set(BrokerSettings.__struct_fields__)


def test_block_stops_credit_until_there_is_room(broker: BrokerProcess, m: Management) -> None:
    m.settings("block", maxSizeBytes=100_000, addressFullMessagePolicy="BLOCK")
    m.queue("block")
    sender = Sender(broker.url, "block", limit=1000, size=1000)
    held = until(stopped(sender, m, "block"), "the full address")
    assert held == len(sender.accepted)
    assert 95 <= held <= 300, "what was granted before it was full may still come"
    with broker.connect() as late:
        blocked = late.create_sender("block", name="late")
        flush(blocked)
        assert blocked.link.credit == 0
        receiver = Receiver(broker.url, "block")
        until(lambda: receiver.count == 1000, "the rest after there was room", moves=lambda: receiver.count)
        until(lambda: len(sender.accepted) == 1000, "the answers, which may come after the messages")
        blocked.send(Message(body=[1000]))
    until(lambda: receiver.count == 1001, "the message of the other sender")
    receiver.stop()
    sender.stop()


@pytest.mark.parametrize(
    ("policy", "state", "more"),
    [
        ("FAIL", Delivery.REJECTED, 0),
        ("DROP", Delivery.ACCEPTED, 0),
        ("PAGE", Delivery.ACCEPTED, 1),
        ("BLOCK", Delivery.ACCEPTED, 1),
    ],
)
def test_what_waits_is_judged_by_new_settings_at_once(
    broker: BrokerProcess, m: Management, policy: str, state: Any, more: int
) -> None:
    """BLOCK: by a limit that leaves less free than the tenth for which senders wait when messages leave."""
    name = f"judged-{policy}"
    m.settings(name, maxSizeBytes=2000, addressFullMessagePolicy="BLOCK")
    m.queue(name)
    with broker.connect() as first, broker.connect() as second:
        attached = first.create_sender(name)
        for n in range(100):
            if not attached.link.credit:
                break
            attached.send(Message(body="x" * 1000 + str(n), durable=True))
            flush(attached)
        assert not attached.link.credit, "the address is full"
        waits = second.create_sender(name)
        flush(waits)
        assert not waits.link.credit
        held = int(m.rows("listAddresses")[name]["addressSize"])
        most = held * 20 // 19 if policy == "BLOCK" else 2000
        m.settings(name, maxSizeBytes=most, addressFullMessagePolicy=policy)
        second.wait(lambda: waits.link.credit > 0, msg="credit")
        before = m.count(name)
        try:
            assert waits.send(Message(body="x", durable=True)).remote_state == state
        except SendException as error:
            assert error.state == state
        assert m.count(name) == before + more


def test_block_rejects_nothing_of_large_messages(c: BlockingConnection, m: Management) -> None:
    """Little credit at first, while the size of messages is unknown."""
    m.settings("block-large", maxSizeBytes=1 << 20, addressFullMessagePolicy="BLOCK")
    m.queue("block-large")
    sender = c.create_sender("block-large")
    sent = 0
    while sender.link.credit and sent < 100:
        sender.send(Message(body="x" * 100_000, durable=True))  # raises where it is not accepted
        sent += 1
        flush(sender)
    assert m.count("block-large") == sent
    assert 10 <= sent <= 21
    bodies(attach(c, "block-large", sent), sent)
    c.wait(lambda: sender.link.credit > 0, msg="credit again")


@pytest.mark.parametrize("policy", ["FAIL", "DROP", "BLOCK"])
def test_capacity_is_that_of_the_whole_broker(tmp_path: Path, policy: str) -> None:
    """Whatever addresses its messages belong to, and however little of it is in memory."""
    broker = BrokerProcess(
        tmp_path, global_max_size=20_000, page_dir=str(tmp_path / "pages"), capacity=100_000, capacity_policy=policy
    ).start()
    with broker.manage() as m, broker.connect() as c:
        for name in ("a", "b"):
            m.queue(name)
        senders = [c.create_sender(name) for name in ("a", "b")]
        sent = 0
        while sent < 300 and all(s.link.credit for s in senders):
            try:
                senders[sent % 2].send(Message(body=KIB, durable=True))
            except SendException as error:
                assert error.state == Delivery.REJECTED and policy == "FAIL"
                break
            flush(senders[sent % 2])
            sent += 1
        held = m.count("a") + m.count("b")
        granted = 100 if policy == "BLOCK" else 0  # what each sender was granted before the other one took the room
        assert 90 <= held <= 102 + granted
        assert sent == (300 if policy == "DROP" else held)
        for name in ("a", "b"):
            bodies(attach(c, name, m.count(name)), m.count(name))
        c.wait(lambda: all(s.link.credit for s in senders), msg="credit again")
        senders[0].send(Message(body=KIB, durable=True))
        until(lambda: m.count("a") == 1, "the message after there was room")
    broker.stop()


def stopped(sender: Sender, m: Management, queue: str) -> Callable[[], int]:
    """A condition: the sender has more to send and no credit, and that is how it stays. How much the queue holds.

    Everything that was sent is answered, and nothing has changed while the sender's own loop went round twice and the
    broker answered: the credit that comes with the last answer would have been used.
    """
    before: tuple[int, int] | None = None
    since = 0

    def look() -> int:
        nonlocal before, since
        rounds = sender.rounds
        held = m.count(queue)
        now = sender.sent, held
        if now != before or len(sender.accepted) != sender.sent or sender.sent >= sender.limit:
            before, since = now, rounds
            return 0
        return held if rounds >= since + 2 else 0

    return look


def test_management_works_while_everything_is_full(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, global_max_size=20_000, settings={"addressFullMessagePolicy": "BLOCK"}).start()
    with broker.manage() as m:
        m.queue("q")
        sender = Sender(broker.url, "q", limit=5000, size=1000)
        until(lambda: m.count("q") >= 20, "a full broker")
        m.queue("another")
        assert set(m.rows()) >= {"q", "another"}
        until(lambda: m("removeMessages", None, resource="queue.q") and len(sender.accepted) > 100, "room again")
        sender.stop()
    broker.stop()


def test_a_deleted_data_directory_is_told_and_what_was_held_can_be_consumed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m, broker.connect() as c:
        m.queue("q")
        sender = c.create_sender("q")
        sender.send(Message(body="held", durable=True))
        (tmp_path / "data").rename(tmp_path / "gone")  # first: the broker makes files there, such as SPARE
        shutil.rmtree(tmp_path / "gone")
        until(lambda: "was deleted or replaced" in broker.health_says().get("detail", ""), "the broker to notice")
        assert not broker.ready()
        with pytest.raises(SendException) as caught:
            sender.send(Message(body="refused", durable=True))
        assert caught.value.state == Delivery.REJECTED
        refused = sender.link.send(Message(body="refused", durable=True))
        c.wait(lambda: refused.settled)
        assert "data directory" in refused.remote.condition.description, "not that there is no space"
        assert m.rows("listAddresses")["q"]["full"] == "STORE"
        assert bodies(attach(c, "q", 1), 1) == ["held"]
    broker.restart()
    assert broker.ready()
    broker.stop()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("durable", "volatile")), "in memory"]
)
def test_memory_stays_bounded_when_a_queue_outgrows_it(tmp_path: Path, kind: str) -> None:
    count, size = 4500 if kind == "durable" else 2500, 24_000  # of what is durable, the journal holds some
    settings: dict[str, object] = {"global_max_size": 8 << 20, "page_dir": str(tmp_path / "pages")}
    if kind == "in memory":
        settings["data_dir"] = None
    broker = BrokerProcess(tmp_path, **settings).start()
    assert broker.process is not None
    before = psutil.Process(broker.process.pid).memory_info().rss
    with broker.manage() as m:  # a new one each time: Proton's blocking client is silent unless it is asked
        m.queue("q")
    sender = Sender(broker.url, "q", limit=count, size=size, durable=kind != "volatile")
    until(lambda: len(sender.accepted) == count, "everything to be accepted", moves=lambda: len(sender.accepted))
    sender.stop()
    with broker.manage() as m:
        assert m.count("q") == count
        grown = psutil.Process(broker.process.pid).memory_info().rss - before
        assert grown < count * size // 2, "payloads do not stay in memory"
        assert m("getAddressMemoryUsage") <= 16 << 20
    receiver = Receiver(broker.url, "q", credit=500)
    until(lambda: receiver.count == count, "everything to be received", moves=lambda: receiver.count)
    with broker.manage() as m:
        until(lambda: m.count("q") == 0, "the last answers of the receiver")
        receiver.stop()
        assert set(receiver.got.values()) == {1}
        assert m("getAddressMemoryUsage") < 1 << 20
    broker.stop()


@pytest.mark.timeout(900)
def test_a_subscriber_that_never_reads_does_not_fill_memory(tmp_path: Path) -> None:
    count, size = 2000, 40_000
    broker = BrokerProcess(
        tmp_path, global_max_size=4 << 20, page_dir=str(tmp_path / "pages"), settings={"pageLimitBytes": 20 << 20,
        "pageFullMessagePolicy": "DROP"}
    ).start()  # fmt: skip
    assert broker.process is not None
    with broker.manage() as m, broker.connect() as c:
        m("createAddress", "t", "MULTICAST")
        idle = attach(c, "t", 0)
        sender = Sender(broker.url, "t", limit=count, size=size, durable=False)
        until(lambda: len(sender.accepted) == count, "everything to be accepted", moves=lambda: len(sender.accepted))
        sender.stop()
        assert m("getAddressMemoryUsage") <= 8 << 20
        assert int(m.rows("listAddresses")["t"]["addressSize"]) <= 21 << 20
        idle.link.flow(1)
        assert take(idle).body[0] == 0
    broker.stop()


def test_page_without_a_place_to_page_to_blocks(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, data_dir=None, global_max_size=100_000).start()
    with broker.manage() as m:
        m.queue("q")
        sender = Sender(broker.url, "q", limit=100_000, size=1000)
        assert until(stopped(sender, m, "q"), "the sender to be blocked") >= 90
        receiver = Receiver(broker.url, "q")
        until(lambda: receiver.count > 3000, "the sender to go on", moves=lambda: receiver.count)
        sender.stop()
        receiver.stop()
    broker.stop()


# -- a disk that does not answer ---------------------------------------------------------------------------------------
class Producer:
    """A link that sends: `credit` as the broker wants it."""

    credit = True

    def block(self) -> None:
        self.credit = False

    def unblock(self) -> None:
        self.credit = True

    def closed(self, condition: str, description: str) -> None:
        raise AssertionError(description)


@pytest.mark.parametrize("policy", ["PAGE", "BLOCK", "FAIL"])
def test_what_waits_for_the_disk_is_bounded(tmp_path: Path, policy: str) -> None:
    core = Core(tmp_path)
    core.broker.catalogue.put_settings("#", {"addressFullMessagePolicy": policy, "maxSizeBytes": 100 << 20})
    q, _ = core.queue(), core.queue("memory", durable=False)
    producer = Producer()
    q.address.producers[producer] = None
    ledger = core.broker.ledger
    verdicts = []
    while RELEASE not in verdicts:
        verdicts.append(core.send("x" * (1 << 20), durable=True))
        assert ledger.coming <= 2 * UNCOMMITTED, "messages that no commit has stored"
        assert producer.credit or ledger.coming > UNCOMMITTED
    assert verdicts == [WAIT] * (len(verdicts) - 1) + [RELEASE]
    assert not producer.credit
    assert core.send("for memory", to="memory") is ACCEPT, "other messages pass"
    jobs = len(core.accepted)
    core.commit()
    assert len(core.accepted) - jobs == len(verdicts) - 1
    assert producer.credit, "the disk has caught up"
    assert (ledger.coming, ledger.disk_limits) == (0, False)
    assert core.send("y", durable=True) is WAIT
    core.commit()
    assert q.count == len(verdicts)


def test_a_move_waits_for_the_disk(tmp_path: Path) -> None:
    core = Core(tmp_path)
    q, other = core.queue(), core.queue("other")
    for _ in range(100):
        core.send("x" * (1 << 20), durable=True)
        core.commit()
    answers: list[object] = []
    work = queue_control.move_messages(CallContext(core.broker, Connections()), q, None, "other")
    core.broker.jobs.ask(work, lambda result, error: answers.append(error or result), "console")
    for _ in range(50):
        core.broker.jobs.run(lambda: True)
    assert not answers
    assert core.broker.ledger.coming < UNCOMMITTED + (2 << 20)
    while not answers:
        core.commit()
        core.broker.jobs.run(lambda: True)
    core.commit()
    assert (answers, q.count, other.count) == ([100], 0, 100)


HANGING = """
import os, runpy, sys, time
from services.broker.storage.journal import file_operations as files
from services.broker.storage.journal import journal
journal.INLINE_BYTES = -1  # in the thread, as on a disk that has become slow
sync = files.RealFile.sync
def hang(file):
    while os.path.exists(os.environ["HANG"]):
        time.sleep(0.02)
    sync(file)
files.RealFile.sync = hang
runpy.run_module("services.broker", run_name="__main__")
"""


@pytest.mark.slow
def test_a_disk_that_hangs_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hang = tmp_path / "hang"
    monkeypatch.setenv("HANG", str(hang))
    broker = BrokerProcess(tmp_path).start(["-c", HANGING])
    with broker.manage() as m:
        m.queue("q")
        m.queue("memory", durable=False)
        hang.touch()
        sender = Sender(broker.url, "q", limit=900, size=200_000)
        until(lambda: sender.refused or sender.sent == 900, "more than may wait", moves=lambda: sender.sent)
        with broker.connect() as c:
            c.create_sender("memory").send(Message(body="x"))
            assert bodies(attach(c, "memory", 1), 1) == ["x"]
        found = re.search(r"^artemis_address_memory_usage\S* (\S+)$", broker.metrics(), re.MULTILINE)
        assert found and float(found[1]) < 2 * UNCOMMITTED + 1_000_000
        hang.unlink()
        until(lambda: len(sender.accepted) + sender.refused == 900, "all answers", moves=lambda: sender.sent)
        until(lambda: m.count("q") == len(sender.accepted), "what was accepted")
        sender.stop()
    broker.stop()
