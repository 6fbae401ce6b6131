"""A brokered address space: one broker of a pool has all of its addresses, for clients of all protocols."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from proton import Message, ProtonException
from proton.reactor import Copy, Selector
from proton.utils import BlockingConnection, LinkDetached

from enmasse.testing import Suite, wait_for
from tests.artemis import ENVIRONMENT
from tests.broker.harness import Terminus, attach, nothing, take
from tests.http_gateway.requests_to_suite import basic, request
from tests.kit.spaces import running_with_spaces
from tests.kit.transactions import Transacted
from tests.kit.waiting import DEADLINE
from tests.system.amqp_users import proton
from tests.system.mqtt_of_spaces import PASSWORD, Device
from tests.system.users import allow, entry

QUEUES = ("in", "out", *(f"q{n}" for n in range(6)))
FLAVORS = {
    "boxes": {"type": "queue", "templateName": "queue-persisted", "templateParameters": {"BROKERS": 3}},
    "elsewhere": {"type": "topic", "templateName": "topic-persisted"},
}
SPACE = {"one": {"type": "brokered", "flavor": "boxes"}}


@pytest.fixture(scope="module", params=["embedded", pytest.param("artemis", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "ENMASSE_BROKER": request.param}.items():
            patch.setenv(name, value)
        yield request.param


@pytest.fixture(scope="module")
def suite(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    users = {
        "alice": entry(PASSWORD, allow("#", "$SYS/#", "$subctrl", "$lwt")),
        "bob": entry(PASSWORD, allow("out", operations=["recv"])),
    }
    files = {
        "spaces.json": SPACE,
        "spaces/one/addresses.json": {
            **{name: {"type": "queue"} for name in QUEUES}, "news": {"type": "topic"}, "cast": {"type": "multicast"},
        },
        "spaces/one/users.json": users,
        "users.json": users,
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("brokered")
    with running_with_spaces(folder, files, flavors=FLAVORS, options=("--with", "http")) as found:
        for file in ("users.json", "spaces/one/users.json"):
            (found.config / file).chmod(0o600)
        found.up()
        wait_for("the addresses", lambda: len(ready(found)) == len(QUEUES) + 1)
        yield found
        assert found.down() == 0


def ready(suite: Suite) -> dict[str, Any]:
    return {a["name"]: a for a in suite.status()["addresses"] if a["name"].startswith("!!one/") and a["ready"]}


@pytest.fixture
def c(suite: Suite) -> Iterator[BlockingConnection]:
    connection = proton(suite, "alice@one", PASSWORD)
    yield connection
    connection.close()


def test_all_addresses_are_at_one_broker_of_the_pool(suite: Suite) -> None:
    brokers = {name for a in ready(suite).values() for name in a["components"] if name.startswith("boxes-")}
    assert len(brokers) == 1
    errors = [each for each in suite.status()["errors"] if each["file"] == "spaces/one/addresses.json"]
    assert [(e["entry"], e["field"]) for e in errors] == [("cast", "type")]
    assert "must be queue or topic" in errors[0]["reason"]


def test_a_transaction_takes_several_addresses(suite: Suite, c: BlockingConnection) -> None:
    other = proton(suite, "alice@one", PASSWORD)
    feed = other.create_sender("in")
    for n in range(6):
        feed.send(Message(body=n, durable=True))
    t = Transacted(c)
    receiver, out, news = attach(c, "in", 6), c.create_sender("out"), c.create_sender("news")
    reader = attach(other, "news", 9, options=Terminus("topic"))
    temporary = other.create_receiver(None, dynamic=True, credit=9, options=Terminus("temporary-queue"))
    replies = c.create_sender(temporary.link.remote_source.address)
    for n in range(6):
        t.begin()
        body = take(receiver).body
        for sender in (out, news, replies):
            assert t.send(sender, Message(body=body, durable=True)) == "accepted"
        t.settle(receiver)
        if not n:
            nothing(reader)
            reader.link.flow(9)
        (t.commit if n % 2 else t.roll_back)()
    for each in (attach(other, "out", 9), reader, temporary):
        assert [take(each).body for _ in range(3)] == [1, 3, 5]
        nothing(each)
        while each.fetcher.unsettled:
            each.accept()
    replies.close()
    other.close()
    receiver.link.flow(3)
    assert sorted(take(receiver).body for _ in range(3)) == [0, 2, 4]  # rolled back: they come again
    while receiver.fetcher.unsettled:
        receiver.accept()


def test_selectors_browsers_and_groups(suite: Suite, c: BlockingConnection, engine: str) -> None:
    sender = c.create_sender("q0")
    for n in range(8):
        sender.send(Message(body=n, properties={"odd": bool(n % 2)}, group_id=f"g{n % 4}", durable=True))
    seen = c.create_receiver("q0", credit=20, options=[Copy(), Selector("odd = TRUE")], name="seen")
    assert [take(seen).body for _ in range(4)] == [1, 3, 5, 7]
    nothing(seen)
    seen.close()
    first = c.create_receiver("q0", credit=20, name="first")
    assert [take(first).body for _ in range(8)] == list(range(8))
    if engine == "artemis":  # the embedded broker has no groups
        second = c.create_receiver("q0", credit=20, name="second")
        for n in range(8, 16):
            sender.send(Message(body=n, group_id=f"g{n % 4}", durable=True))
        assert [take(first).body for _ in range(8)] == list(range(8, 16))
        nothing(second)
        second.close()
    while first.fetcher.unsettled:
        first.accept()
    first.close()


def test_other_protocols_use_the_same_addresses(suite: Suite, c: BlockingConnection) -> None:
    head = basic("alice@one", PASSWORD)
    assert request(suite, "POST", "/v1/q1/messages", b"by HTTP", head).status == 201
    with Device(suite, "one", "device") as device:
        device.publish("q1", "by MQTT")
        receiver = attach(c, "q1", 5)
        messages = [take(receiver) for _ in range(2)]
        assert [bytes(each.body) for each in messages] == [b"by HTTP", b"by MQTT"]
        receiver.accept()
        receiver.accept()
        receiver.close()
        device.subscribe("news/#")
        device.subscribe("q2")
        c.create_sender("news/today").send(Message(body=b"by AMQP", durable=True))
        assert device.receive() == ("news/today", "by AMQP")
        assert request(suite, "POST", "/v1/q2/messages", b"by HTTP", head).status == 201
        assert device.receive() == ("q2", "by HTTP")
    c.create_sender("q3").send(Message(body=b"by AMQP", durable=True))
    answer = request(suite, "POST", "/v1/q3/messages/next?wait=30", b"", head)
    assert (answer.status, answer.body) == (200, b"by AMQP")
    assert request(suite, "DELETE", answer.headers["location"], b"", head).status == 204
    relay = c.create_sender(None)
    relay.send(Message(address="q4", body="anonymous", durable=True))
    assert take(attach(c, "q4", 1)).body == "anonymous"


def test_permissions_and_names_are_those_of_the_space(suite: Suite) -> None:
    bob = proton(suite, "bob@one", PASSWORD)
    attach(bob, "out", 1)
    for use, name in ((bob.create_sender, "in"), (bob.create_receiver, "in"), (bob.create_sender, "out")):
        with pytest.raises(LinkDetached, match="unauthorized-access"):
            use(name)
    bob.close()
    alice = proton(suite, "alice@one", PASSWORD)
    for name in ("nowhere", "!!one/in", "in/below"):
        with pytest.raises(LinkDetached):
            alice.create_sender(name)
    alice.close()


def test_the_type_of_a_space_does_not_change(suite: Suite) -> None:
    file = suite.config / "spaces.json"
    file.write_text(json.dumps({"one": {"flavor": "boxes"}}))  # as `space set one type=` leaves it
    wait_for("the refusal", lambda: any(e["file"] == "spaces.json" for e in suite.status()["errors"]))
    (error,) = [e for e in suite.status()["errors"] if e["file"] == "spaces.json"]
    assert (error["entry"], error["field"]) == ("one", "type")
    assert "it is 'brokered', and that cannot change" in error["reason"]
    file.write_text(json.dumps(SPACE))
    wait_for("no error", lambda: not any(e["file"] == "spaces.json" for e in suite.status()["errors"]))
    assert len(ready(suite)) == len(QUEUES) + 1


BATCH = 5
"""Messages of a transaction."""


def move(suite: Suite, over: threading.Event) -> None:
    """Move messages from the queue in to out, and copy each to q5, in transactions, over and over."""
    while not over.is_set():
        with contextlib.suppress(ProtonException):
            c = proton(suite, "alice@one", PASSWORD)
            work, receiver = Transacted(c), attach(c, "in", 5 * BATCH)
            senders = c.create_sender("out"), c.create_sender("q5")
            while not over.is_set():
                work.begin()
                for _ in range(BATCH):
                    body = take(receiver).body
                    for sender in senders:
                        work.send_later(sender, Message(body=body, durable=True))
                    work.settle(receiver)
                receiver.link.flow(BATCH)
                work.commit()
            c.close()


def feed(suite: Suite, first: int, count: int) -> None:
    c = proton(suite, "alice@one", PASSWORD)
    sender = c.create_sender("in")
    for n in range(first, first + count):
        sender.send(Message(body=n, durable=True))
    c.close()


def moved(suite: Suite, count: int) -> bool:
    (row,) = (a for a in suite.status()["addresses"] if a["name"] == "!!one/out")
    return int(row["messages"] or 0) >= count


@pytest.mark.slow  # tests/broker/test_transactions_killed.py, and tests of routed transactions
def test_no_transaction_is_half_done_when_processes_are_killed(suite: Suite) -> None:
    total = 400
    feed(suite, 0, total)
    over = threading.Event()
    mover = threading.Thread(target=move, args=(suite, over), daemon=True)
    mover.start()
    for count, kind in ((40, "broker"), (140, "router"), (240, "broker")):
        wait_for(f"{count} moved", partial(moved, suite, count))
        suite.kill(suite.component(kind, "!!one/in" if kind == "broker" else ""))
    wait_for("the rest", partial(moved, suite, total))
    suite.wait_ready()
    over.set()
    feed(suite, total, BATCH)  # the mover waits for them
    mover.join(DEADLINE)
    c = proton(suite, "alice@one", PASSWORD)
    for name in ("out", "q5"):
        receiver = attach(c, name, 2 * total)
        found = Counter(take(receiver).body for _ in range(total + BATCH))
        nothing(receiver)
        assert found == Counter(range(total + BATCH)), name
        while receiver.fetcher.unsettled:
            receiver.accept()
    c.close()
