"""Files are damaged: those of the configuration service while an edit is wrong (nobody knows any more what was valid,
and nothing of it is touched), and those of a broker (what that has cost is told)."""

from __future__ import annotations

from proton import Message
from proton.utils import BlockingConnection

from enmasse.testing import Suite, wait_for
from tests.kit.waiting import DEADLINE
from tests.load import receive, send, subscribe
from tests.system.conftest import QUEUE, TOPIC
from tests.system.exchange import exchange
from tests.system.seeing import carrier, component, find, kill, status, wait_address, wait_message, wait_process

WANTED = {"kept": {"type": "queue", "flavor": QUEUE}, "kept-news": {"type": "topic", "flavor": TOPIC}}


def test_nothing_is_deleted_on_a_partial_view(suite: Suite) -> None:
    suite.edit("addresses.json", {**WANTED, "kept-direct": {"type": "anycast"}})
    suite.wait_ready()
    subscribe(suite.url, "kept-news", "away")  # holds no message: the first thing that would go with its topic
    send(suite.url, "kept", 10)
    wait_address(suite, "kept", messages=10)
    kept = suite.data / "configserv" / "configuration.json.damaged"
    suite.edit("addresses.json", {name: {"type": "nonsense"} for name in (*WANTED, "kept-direct")})
    wait_for("three errors", lambda: len(status(suite)["errors"]) == 3)
    try:
        (suite.data / "configserv" / "configuration.json").write_text('{"schema": 1, "addresses": {"kep')
        for name in ("configserv", "storage_controller", "ragent"):
            wait_process(suite, name, kill(suite, name))
        wait_for("four errors", lambda: len(status(suite)["errors"]) == 4)
        assert [e for e in status(suite)["errors"] if str(kept) in e["reason"]]
        wait_message(suite, "kept", "stays unchanged until the entry is corrected")
        wait_address(suite, "kept", phase="Failed", messages=10)
        wait_address(suite, "kept-news", phase="Failed")
        send(suite.url, "kept-news", 2)
        exchange(suite.url, ["orders", "news", "direct", "all", "kept-direct"])
        assert receive(suite.url, "kept", 10) == list(range(10))
        send(suite.url, "kept", 3)
    finally:
        suite.edit("addresses.json", {**WANTED, "kept-direct": {"type": "anycast"}})
        kept.unlink(missing_ok=True)
    suite.wait_ready()
    wait_for("no error", lambda: not status(suite)["errors"])
    assert receive(suite.url, "kept", 3) == [0, 1, 2]
    assert receive(suite.url, "kept-news", 2, container_id="away", subscription="durable") == [0, 1]
    suite.edit("addresses.json", {}, remove=[*WANTED, "kept-direct"])
    wait_for("all to be gone", lambda: not [n for n in (*WANTED, "kept-direct") if find(suite, n)])


def test_messages_lost_by_damage_are_reported_with_their_address(suite: Suite) -> None:
    suite.edit("addresses.json", {"hurt": {"type": "queue", "flavor": QUEUE}})
    suite.wait_ready()
    connection = BlockingConnection(suite.url, timeout=DEADLINE)
    sender = connection.create_sender("hurt")
    marks = [f"a mark that no other message has {n}" for n in range(5)]
    for mark in marks:
        sender.send(Message(body=mark, durable=True))
    connection.close()  # it would be silent for longer than the router's idle timeout
    broker = carrier(suite, "hurt")["name"]
    journals = [path for path in suite.data.rglob("*.journal") if marks[2].encode() in path.read_bytes()]
    (journal,) = journals
    with journal.open("r+b") as file:
        place = file.read().index(marks[2].encode())
        file.seek(place)
        file.write(b"A")
    wait_process(suite, broker, kill(suite, broker))
    told = wait_message(suite, "hurt", f"broker {broker}: 1 message lost by damage to its files")
    assert told["messages"] == 4
    wait_for("the component to say so", lambda: "1 of queue hurt" in component(suite, broker)["detail"])
    report = next(journal.parent.rglob("report.jsonl"))
    assert str(report) in component(suite, broker)["detail"]
    connection = BlockingConnection(suite.url, timeout=DEADLINE)
    receiver = connection.create_receiver("hurt", credit=10)
    bodies = []
    for _ in range(4):
        bodies.append(receiver.receive(timeout=DEADLINE).body)
        receiver.accept()
    connection.close()
    assert bodies == [mark for mark in marks if mark != marks[2]]
    report.unlink()
    wait_for("that it was seen to", lambda: "damage" not in (find(suite, "hurt") or {})["message"])
    wait_for("the component to say nothing", lambda: component(suite, broker)["detail"] == "")
    suite.edit("addresses.json", {}, remove=["hurt"])
    wait_for("it to be gone", lambda: not find(suite, "hurt"))
