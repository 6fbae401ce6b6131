"""A broker whose files were damaged: what it says of it, and what is left."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from proton import Message

from services.broker.storage.journal.records import DEFINE, DEFINE_S
from services.broker.storage.journal.segment import FIRST, HEAD_SIZE
from services.broker.storage.store import Store

from .harness import BrokerProcess, attach, bodies, until
from .test_store_damage import flip, records


def test_lost_messages_are_told_until_somebody_has_seen_to_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m, broker.connect() as c:
        m.queue("q")
        m.queue("other")
        m("createAddress", "t", "MULTICAST")
        sender, other = c.create_sender("q"), c.create_sender("other")
        for n in range(10):
            sender.send(Message(body=f"{n} mark", durable=True))
            other.send(Message(body=n, durable=True))
    broker.stop()
    (journal,) = data.glob("*.journal")
    for n in (3, 7):
        flip(journal, journal.read_bytes().index(b"%d mark" % n))
    for _ in range(2):  # a restart does not make it undone
        broker.start()
        with broker.manage() as m:
            assert m.rows()["q"]["messagesLost"] == "2" and m.rows()["other"]["messagesLost"] == "0"
            assert (m.count("q"), m.count("other")) == (8, 10)
        health = broker.health_says()
        report = data / "damaged" / "report.jsonl"
        assert health["ready"] and "2 of queue q" in health["detail"] and str(report) in health["detail"]
        assert 'artemis_messages_lost{address="q",broker="b0",queue="q"} 2' in broker.metrics()
        assert 'artemis_damaged_places{broker="b0"} 2' in broker.metrics()
        broker.stop()
    reported = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(t["queue"], t["messages"]) for t in reported if "queue" in t] == [("q", 2)]
    assert report.stat().st_mode & 0o777 == 0o600 and (data / "damaged" / journal.name).exists()
    broker.start()
    report.unlink()
    until(lambda: broker.health_says()["detail"] == "", "that it was seen to")
    with broker.manage() as m, broker.connect() as c:
        assert m.rows()["q"]["messagesLost"] == "0"
        assert bodies(attach(c, "q", 8), 8) == [f"{n} mark" for n in range(10) if n not in (3, 7)]
    broker.stop()


def test_messages_of_a_queue_that_is_not_known_can_be_had(tmp_path: Path) -> None:
    """Both definitions are damaged: the messages wait in a queue of that id, and can be moved from there."""
    data = tmp_path / "data"
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m, broker.connect() as c:
        m.queue("q")
        sender = c.create_sender("q")
        for n in range(5):
            sender.send(Message(body=n, durable=True))
        id = int(m.rows()["q"]["id"])
    broker.stop()
    (journal,) = data.glob("*.journal")
    for summary in data.glob("*.summary"):
        summary.unlink()
    for kind, offset, _ in records(journal):
        if kind == DEFINE and DEFINE_S.unpack_from(journal.read_bytes(), offset + HEAD_SIZE) == (id,):
            flip(journal, offset + HEAD_SIZE + 10)
    flip(data / "CATALOGUE", FIRST + 20)
    for _ in range(2):
        broker.start()
        with broker.manage() as m:
            assert "q" not in m.rows() and m.count(f"unknown-queue-{id}") == 5
        detail = broker.health_says()["detail"]
        assert f"5 in unknown-queue-{id}" in detail and "moveMessages" in detail
        broker.stop()
    broker.start()
    with broker.manage() as m, broker.connect() as c:
        m.queue("q")
        assert m("moveMessages", None, "q", resource=f"queue.unknown-queue-{id}") == 5
        assert bodies(attach(c, "q", 5), 5) == list(range(5))
    broker.restart()
    with broker.manage() as m:
        assert f"unknown-queue-{id}" not in m.rows() and m.count("q") == 0
    broker.stop()


def test_segments_that_were_exchanged_are_damaged_places_also_the_newest(tmp_path: Path) -> None:
    """Messages of closed segments are counted by their summaries, those of the newest are not known."""
    data = tmp_path / "d"
    store = Store.open(data, segment_size=20_000)
    queue = store.new_id()
    store.define(queue, b'{"name": "q"}')
    for n in range(1000):
        store.add(b"%d" % n * 20, [queue])
        if n % 50 == 0:
            store.flush()
            store.tick()
    store.flush()
    store.tick()
    copy = shutil.copytree(data, tmp_path / "copy")  # as a kill leaves it
    store.close()
    *_, one, newest = sorted(copy.glob("*.journal"))
    content = one.read_bytes(), newest.read_bytes()
    one.write_bytes(content[1])
    newest.write_bytes(content[0])
    for _ in range(2):
        again = Store.open(copy, segment_size=20_000)
        places = (copy / "damaged" / "report.jsonl").read_text()
        assert one.name in places and f"{newest.name}: offset 0: the file is not this segment" in places
        assert again.losses.queues
        again.close()
