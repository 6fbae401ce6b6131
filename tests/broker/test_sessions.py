"""Queues of sessions as the subscription service uses them: made and ended by management, fed by diverts, read with
rcv-settle-mode second."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Link, Message
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SendException

from enmasse.aio import client
from enmasse.aio.client import ClientReceiver
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message as OurMessage
from enmasse.amqp.termini import MESSAGE_IDENTITY
from tests.broker.harness import (
    DEADLINE,
    BrokerProcess,
    Management,
    ManagementFailure,
    Terminus,
    attach,
    bodies,
    flush,
    nothing,
    selector,
    take,
    until,
)
from tests.kit.marks import first_soon
from tests.kit.waiting import until as passes
from tests.router.harness import RouterProcess


class Second(Terminus):
    """A receiver of rcv-settle-mode second: the broker settles after the outcome."""

    def apply(self, receiver: Any) -> None:
        super().apply(receiver)
        receiver.rcv_settle_mode = Link.RCV_SECOND


def session(m: Management, name: str, *patterns: str, **configuration: Any) -> str:
    m.queue(name, **{"max_consumers": 1, **configuration})
    for pattern in patterns:
        m("createDivert", f"{name}|{pattern}", "", pattern, name, False, None, None)
    return name


def second(c: BlockingConnection, address: str, credit: int = 10, **options: Any) -> BlockingReceiver:
    return attach(c, address, credit, options=Second(**options))


def outcome(receiver: BlockingReceiver, state: Any = Delivery.ACCEPTED) -> Delivery:
    """States the outcome of the oldest delivery without settling it."""
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.update(state)
    return delivery


def settled(receiver: BlockingReceiver, *deliveries: Delivery) -> None:
    """Waits until the broker has settled these."""
    receiver.connection.wait(lambda: all(d.settled for d in deliveries), timeout=DEADLINE)
    for delivery in deliveries:
        delivery.settle()


def identities(receiver: BlockingReceiver, count: int) -> dict[Any, bytes]:
    """Receives so many: delivery-tags by body."""
    found: dict[Any, bytes] = {}
    before = len(receiver.fetcher.unsettled)
    for n in range(count):
        body = take(receiver).body
        found[body] = receiver.fetcher.unsettled[before + n].tag.encode()
    return found


@pytest.fixture(scope="module", autouse=True)
def topics(broker: BrokerProcess) -> None:
    with broker.manage() as m:
        m("createAddress", "t", "MULTICAST")


# -- management --------------------------------------------------------------------------------------------------------
def test_a_session_is_made_used_and_ended(m: Management, c: BlockingConnection) -> None:
    name = session(m, "$sub/b0/mqtt.one", "t/one/#", "t/+/all")
    sender = c.create_sender("t/one/all")
    sender.send(Message("twice covered", address="t/one/all"))
    c.create_sender(name).send(Message("directly"))
    receiver = attach(c, name, 10)
    assert bodies(receiver, 2) == ["twice covered", "directly"]
    with pytest.raises(LinkDetached, match="Maximum Consumer Limit"):
        attach(c, name, 10, name="another")
    m("destroyQueue", name, True, True)
    assert name not in m.rows() and name not in m("getAddressNames")
    assert not [divert for divert in m("listDivertNames") if divert.startswith(name)]


def test_diverts_by_management(m: Management) -> None:
    name = session(m, "$sub/b0/mqtt.two", "t/a")
    m("createDivert", "8", None, "t/b", name, False, "n = 1", None, "ANYCAST")
    m("createDivert", "9", "r", "t/c", name, False, "", None, "{}", "STRIP")
    m("createDivert", json.dumps({"name": "json", "address": "t/#", "forwarding-address": name, "exclusive": "false"}))
    m("createDivert", "8", None, "t/other", name, False, None, None)  # as Artemis: there is one already
    assert set(m("getDivertNames")) == set(m("listDivertNames")) == {f"{name}|t/a", "8", "9", "json"}
    options = json.dumps({"field": "forwardingAddress", "operation": "EQUALS", "value": name})
    rows = json.loads(m("listDiverts", options, 1, 3))
    assert rows["count"] == 4 and [row["name"] for row in rows["data"]] == [f"{name}|t/a", "8", "9"]
    assert rows["data"][1] == {
        "name": "8", "address": "t/b", "forwardingAddress": name, "filter": "n = 1", "routingName": "8",
        "routingType": "ANYCAST", "exclusive": "false",
    }  # fmt: skip
    by_name = json.dumps({"field": "name", "operation": "EQUALS", "value": "json"})
    assert json.loads(m("listDiverts", by_name, 1, 100))["data"][0]["address"] == "t/#"
    assert json.loads(m("listDiverts", options.replace("two", "none"), 1, 100)) == {"data": [], "count": 0}
    for attribute, value in {
        "uniqueName": "8", "address": "t/b", "forwardingAddress": name, "filter": "n = 1", "exclusive": False,
        "routingType": "ANYCAST", "transformerClassName": None,
    }.items():  # fmt: skip
        assert m.attribute("divert.8", attribute) == value
    m("updateDivert", "8", None, "n = 2", None, None, "STRIP")
    m("updateDivert", json.dumps({"name": "9", "filter-string": "n = 3"}))
    assert (m("getFilter", resource="divert.8"), m("getFilter", resource="divert.9")) == ("n = 2", "n = 3")
    m("destroyDivert", "8")
    m("destroyQueue", name, True, True)
    assert m("getDivertNames") == []


@pytest.mark.parametrize(
    ("operation", "parameters", "text"),
    [
        ("createDivert", ["d", "", "t", "nowhere", False, None, None], "AMQ229203: Address Does Not Exist: nowhere"),
        ("createDivert", [None, "", "t", "t", False, None, None], "AMQ229015: Must specify a name"),
        ("createDivert", ["d", "", None, "t", False, None, None], "divert d: an address and a forwarding address"),
        ("createDivert", ["d", "", "t", "t", True, None, None], "exclusive diverts are not supported"),
        ("createDivert", ["d", "", "t", "t", False, None, "x.Y"], "transformers are not supported"),
        ("createDivert", ["d", "", "t", "t", False, "n =", None], "at position"),
        ("createDivert", ["d", "", "t", "t", False, None, None, "NONE"], "one of ANYCAST, MULTICAST, STRIP, PASS"),
        ("createDivert", ['{"name": "d", "no": 1}'], "'no' is not known"),
        ("createDivert", ['{"name": 1}'], "divert configuration name: 1 is not a str"),
        ("createDivert", ["["], "not JSON"),
        ("createDivert", ["[]"], "not a JSON object"),
        ("updateDivert", ['{"name": "d"}'], "AMQ229231: Divert Does Not Exist: d"),
        ("destroyDivert", ["d"], "AMQ229012: No binding for divert d"),
    ],
)
def test_refusals_of_diverts(m: Management, operation: str, parameters: list[Any], text: str) -> None:
    with pytest.raises(ManagementFailure, match=text):
        m(operation, *parameters)
    assert "d" not in m("getDivertNames")
    with pytest.raises(ManagementFailure, match="AMQ229067"):
        m.attribute("divert.d", "address")


def test_leftovers_of_a_broken_deletion_are_found(m: Management) -> None:
    session(m, "$sub/b0/mqtt.left", "t/x", user="marked")
    options = json.dumps({"field": "name", "operation": "CONTAINS", "value": "$sub/b0/"})
    (row,) = json.loads(m("listQueues", options, 1, 100))["data"]
    assert (row["name"], row["user"], row["maxConsumers"]) == ("$sub/b0/mqtt.left", "marked", "1")
    m("deleteAddress", "$sub/b0/mqtt.left", True)
    assert json.loads(m("listQueues", options, 1, 100))["count"] == 0 and m("getDivertNames") == []


# -- rcv-settle-mode second --------------------------------------------------------------------------------------------
def test_the_tag_names_the_message_and_the_broker_settles(m: Management, c: BlockingConnection) -> None:
    name = session(m, "$sub/b0/mqtt.second", "t/second")
    sender = c.create_sender("t/second")
    for n in range(4):
        sender.send(Message(n, durable=n != 3))
    receiver = second(c, name)
    assert receiver.link.remote_rcv_settle_mode == Link.RCV_SECOND
    first = identities(receiver, 4)
    assert len(set(first.values())) == 4 and all(len(tag) == 8 for tag in first.values())
    settled(receiver, outcome(receiver), outcome(receiver))
    assert m.count(name) == 2
    receiver.close()
    receiver = second(c, name)
    assert identities(receiver, 2) == {n: first[n] for n in (2, 3)}
    settled(receiver, outcome(receiver, Delivery.RELEASED))
    assert identities(receiver, 1) == {2: first[2]}
    settled(receiver, *[outcome(receiver) for _ in range(2)])
    nothing(receiver)
    m("destroyQueue", name, True, True)


def test_without_asking_for_it_nothing_changes(m: Management, c: BlockingConnection) -> None:
    name = session(m, "$sub/b0/mqtt.first")
    c.create_sender(name).send(Message("x"))
    receiver = attach(c, name, 1)
    take(receiver)
    assert receiver.link.remote_rcv_settle_mode == Link.RCV_FIRST and len(receiver.fetcher.unsettled[0].tag) == 4
    m("destroyQueue", name, True, True)


def test_identities_are_the_same_after_a_crash_and_never_given_again(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m:
        session(m, "$sub/b0/s")
    seen: set[bytes] = set()
    for turn in range(3):
        with broker.connect() as c:
            sender = c.create_sender("$sub/b0/s")
            for n in range(3):
                sender.send(Message(f"{turn} {n}", durable=True))
            sender.send(Message("passing"))
            receiver = second(c, "$sub/b0/s")
            before = identities(receiver, 4)
            assert not seen & set(before.values())
            settled(receiver, outcome(receiver))
            flush(receiver)
        broker.kill()
        broker.start()
        with broker.connect() as c:
            receiver = second(c, "$sub/b0/s")
            after = identities(receiver, 2)
            assert after == {body: before[body] for body in (f"{turn} 1", f"{turn} 2")}
            settled(receiver, *[outcome(receiver) for _ in range(2)])
            nothing(receiver)
        seen |= set(before.values())
        broker.kill()  # nothing is stored now but the definitions
        broker.start()
    broker.stop()


def test_a_broker_in_memory_gives_no_identity_again(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, data_dir=None)
    found: list[bytes] = []
    for _ in range(2):
        broker.start()
        with broker.manage() as m, broker.connect() as c:
            session(m, "$sub/b0/s")
            c.create_sender("$sub/b0/s").send(Message("x"))
            found += identities(second(c, "$sub/b0/s"), 1).values()
        broker.stop()
    assert len(set(found)) == 2


@pytest.mark.parametrize("moment", first_soon(range(4), 2))
def test_a_settled_message_never_comes_back(tmp_path: Path, moment: int) -> None:
    """SIGKILL right after the outcome was stated, after the first settlement came, after some, after all."""
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m:
        session(m, "$sub/b0/s")
    c = BlockingConnection(broker.url, timeout=DEADLINE)  # not closed: it would wait for the dead broker
    sender = c.create_sender("$sub/b0/s")
    for n in range(40):
        sender.send(Message(n, durable=True))
    receiver = second(c, "$sub/b0/s", 40)
    before = identities(receiver, 40)
    deliveries: list[Delivery] = []
    for n in range(40):
        deliveries.append(outcome(receiver))
        if n % 10 == 9:
            c.container.process()  # they leave in four parts
    wanted = (0, 1, 20, 40)[moment]
    c.wait(lambda: sum(d.settled for d in deliveries) >= wanted, timeout=DEADLINE)
    broker.kill()
    gone = {n for n in range(40) if deliveries[n].settled}
    broker.start()
    with broker.connect() as c, broker.manage() as m:
        left = m.count("$sub/b0/s")
        again = identities(second(c, "$sub/b0/s", 40), left)
        assert not gone & again.keys(), "settled, and here again"
        assert again == {body: before[body] for body in again}
        if moment == 3:
            assert not again
    broker.stop()


# -- behind a router ---------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def router(broker: BrokerProcess) -> Iterator[RouterProcess]:
    """As the router agent configures it: sessions and topics are links of the broker."""
    entities: list[list[Any]] = [
        ["connector", {"name": "b0", "host": "127.0.0.1", "port": broker.port, "role": "route-container"}],
        ["linkRoute", {"name": "sub", "prefix": "$sub/b0", "direction": "out", "connection": "b0"}],
        ["linkRoute", {"name": "t-in", "prefix": "t", "direction": "in", "connection": "b0"}],
        ["address", {"name": "work", "prefix": "work", "waypoint": True}],
        ["autoLink", {"name": "work-in", "address": "work", "direction": "in", "connection": "b0"}],
        ["autoLink", {"name": "work-out", "address": "work", "direction": "out", "connection": "b0"}],
    ]
    with broker.manage() as m:
        m.queue("work")
        process = RouterProcess(entities)
        until(lambda: m.rows()["work"]["consumerCount"] == "1", "the auto-link")
    yield process
    process.stop()


def test_tags_modes_and_settlements_pass_a_router(router: RouterProcess, m: Management) -> None:
    c = router.connect()
    name = session(m, "$sub/b0/mqtt.routed", "t/routed")
    sender = c.create_sender("t/routed")
    large = "x" * 300_000  # several frames
    for body in (0, 1, 2, large, 4):
        sender.send(Message(body, durable=True, address="t/routed"))
    receiver = second(c, name)
    first = identities(receiver, 5)
    assert receiver.link.remote_rcv_settle_mode == Link.RCV_SECOND and all(len(t) == 8 for t in first.values())
    settled(receiver, *[outcome(receiver) for _ in range(3)])
    assert m.count(name) == 2
    receiver.close()
    other = router.connect()
    receiver = second(other, name)
    assert identities(receiver, 2) == {body: first[body] for body in (large, 4)}
    settled(receiver, outcome(receiver, Delivery.RELEASED), outcome(receiver))
    assert identities(receiver, 1) == {large: first[large]}
    settled(receiver, outcome(receiver))
    nothing(receiver)
    m("destroyQueue", name, True, True)


def test_a_queue_s_consumer_with_a_selector_has_identities_too(router: RouterProcess, m: Management) -> None:
    c = router.connect()
    sender = c.create_sender("work")
    for n in range(3):
        sender.send(Message(n, durable=True))
    receiver = second(c, "work", filters=selector("TRUE"))
    first = identities(receiver, 3)
    settled(receiver, outcome(receiver))
    receiver.close()
    receiver = second(c, "work", filters=selector("TRUE"))
    assert identities(receiver, 2) == {n: first[n] for n in (1, 2)}
    settled(receiver, *[outcome(receiver) for _ in range(2)])
    assert m.count("work") == 0


async def accepted(receiver: ClientReceiver, count: int) -> dict[Any, bytes]:
    """Receives so many and states `accepted`; returns their tags when the sender has settled them."""
    waiting: set[int] = set()
    ranges: list[Sequence[int]] = []
    receiver.on_settled = ranges.append
    found = {}
    for _ in range(count):
        delivery = await receiver.receive(DEADLINE)
        found[delivery.message.body] = delivery.tag
        waiting.add(delivery.id)
        await delivery.accept()
    await passes(lambda: waiting <= {id for ids in ranges for id in ids}, "the settlements")
    assert len(ranges) < count, "settled in ranges"
    return found


@pytest.mark.parametrize("through", ["broker", "router"])
def test_our_own_client_is_told_what_is_settled(
    broker: BrokerProcess, router: RouterProcess, m: Management, through: str
) -> None:
    name = session(m, f"$sub/b0/mqtt.aio-{through}")
    port = broker.port if through == "broker" else router.port

    async def scenario() -> None:
        async with client.connect("127.0.0.1", broker.port) as direct:
            sender = await direct.sender(name)
            for n in range(100):
                await sender.send(OurMessage(n, durable=True), timeout=DEADLINE)
        async with client.connect("127.0.0.1", port) as c:
            receiver = await c.receiver(name, credit=200, rcv_settle_mode=1)
            first = await accepted(receiver, 100)
            assert len(set(first.values())) == 100 and {len(tag) for tag in first.values()} == {8}
            assert receiver.link.unsettled == 0

    asyncio.run(scenario())
    assert m.count(name) == 0
    m("destroyQueue", name, True, True)


@pytest.mark.parametrize("through", ["broker", "router"])
def test_who_desires_it_is_told_the_identity_in_first_mode_too(
    broker: BrokerProcess, router: RouterProcess, m: Management, through: str
) -> None:
    """The same as in second mode, over links and redelivery. Nothing is offered to who does not get it."""
    name = session(m, f"$sub/b0/mqtt.named-{through}")
    port = broker.port if through == "broker" else router.port
    desired = (Symbol(MESSAGE_IDENTITY),)

    async def tags(c: client.Client, **fields: Any) -> tuple[dict[Any, bytes], bool]:
        receiver = await c.receiver(name, credit=3, **fields)
        got = [await receiver.receive(DEADLINE) for _ in range(3)]
        answer = receiver.link.remote_attach
        assert answer is not None
        for delivery in got:
            await delivery.release()
        await receiver.close()
        return {each.message.body: each.tag for each in got}, MESSAGE_IDENTITY in (answer.offered_capabilities or ())

    async def scenario() -> None:
        async with client.connect("127.0.0.1", broker.port) as direct:
            sender = await direct.sender(name)
            for n in range(3):
                await sender.send(OurMessage(n, durable=True), timeout=DEADLINE)
        async with client.connect("127.0.0.1", port) as c:
            plain, offered = await tags(c)
            assert not offered and not {len(tag) for tag in plain.values()} & {8}
            first, offered = await tags(c, desired_capabilities=desired)
            assert offered and len(set(first.values())) == 3 and {len(tag) for tag in first.values()} == {8}
            assert await tags(c, desired_capabilities=desired) == (first, True)
            assert (await tags(c, rcv_settle_mode=1))[0] == first
            assert not (await tags(c, desired_capabilities=desired, browse=True))[1]

    asyncio.run(scenario())
    assert m.count(name) == 3
    m("destroyQueue", name, True, True)


# -- the anonymous relay, as gateways use it ---------------------------------------------------------------------------
def test_one_link_for_all_topics(m: Management, c: BlockingConnection) -> None:
    names = [session(m, f"$sub/b0/mqtt.relay{n}", f"t/relay/{n}") for n in range(3)]
    sender = c.create_sender(None)
    expected: list[list[int]] = [[], [], []]
    refused = []
    for n, which in enumerate([0, 0, 0, 1, 0, 9, 9, 1, 2, 2, 2, 0, 9, 0, 1, 1]):
        message = Message(n, address=f"t/relay/{which}" if which < 9 else "no such address", durable=bool(n % 2))
        try:
            sender.send(message)
            expected[which].append(n)
        except SendException:
            refused.append(n)
    assert refused == [5, 6, 12]
    deliveries = [sender.link.send(Message(n, address=f"t/relay/{n // 20 % 3}")) for n in range(100, 220)]
    c.wait(lambda: all(d.settled for d in deliveries), timeout=DEADLINE)
    for n in range(100, 220):
        expected[n // 20 % 3].append(n)
    for name, wanted in zip(names, expected, strict=True):
        receiver = attach(c, name, 200)
        assert bodies(receiver, len(wanted)) == wanted
        receiver.close()
        m("destroyQueue", name, True, True)


def test_a_queue_is_reached_by_the_name_of_its_own_address_only(m: Management, c: BlockingConnection) -> None:
    """Else whoever may send to a topic could put a message into the queue of an MQTT client, past the router."""
    name = session(m, "$sub/b0/mqtt.victim", "t/victim")
    addresses = m("getAddressNames")
    sender = c.create_sender(None)
    for wrong in (f"t/other::{name}", f"t::{name}", f"::{name}", f"{name}::t", "t/other::none"):
        with pytest.raises(SendException):
            sender.send(Message("faked", address=wrong))
    sender.send(Message("by its own address", address=f"{name}::{name}"))
    sender.send(Message("by its topic", address="t/victim"))
    assert bodies(attach(c, name, 9), 2) == ["by its own address", "by its topic"]
    assert m("getAddressNames") == addresses
    m("destroyQueue", name, True, True)


# -- duplicates --------------------------------------------------------------------------------------------------------
def marked(body: Any, id: str, to: str) -> Message:
    return Message(body, address=to, durable=True, properties={"_AMQ_DUPL_ID": id})


def test_a_duplicate_is_accepted_and_not_delivered(tmp_path: Path) -> None:
    """Below a topic, by a link to the address and by the anonymous relay, in a run, and after SIGKILL."""
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m:
        m("createAddress", "t", "MULTICAST")
        session(m, "$sub/b0/s", "t/#")
    c = BlockingConnection(broker.url, timeout=DEADLINE)  # not closed: it would wait for the dead broker
    direct, relay = c.create_sender("t/a/b"), c.create_sender(None)
    direct.send(marked(1, "one", "t/a/b"))
    relay.send(marked("again", "one", "t/a/b"))
    relay.send(marked(2, "two", "t/a/c"))
    relay.send(marked("elsewhere", "two", "t/other"))  # the cache is that of the topic
    run = [direct.link.send(marked(n, f"id-{n // 2}", "t/a/b")) for n in range(10, 30)]
    run.append(relay.link.send(marked(99, "last", "t/a/b")))
    c.wait(lambda: run[-1].settled, timeout=DEADLINE)
    assert all(d.remote_state == Delivery.ACCEPTED for d in run)
    broker.kill()  # what was answered is remembered
    broker.start()
    with broker.connect() as c:
        relay = c.create_sender(None)
        for id in ("one", "two", "id-5", "id-14", "last"):
            relay.send(marked("after the crash", id, "t/a/b"))
        relay.send(marked("new", "new", "t/a/b"))
        found = bodies(attach(c, "$sub/b0/s", 50), 14)
        assert found == [1, 2, *range(10, 30, 2), 99, "new"]
    with broker.manage() as m:
        assert m.count("$sub/b0/s") == 0
    broker.stop()


def test_the_cache_of_duplicate_ids_has_a_size(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m, broker.connect() as c:
        m("createAddress", "t", "MULTICAST")
        session(m, "$sub/b0/s", "t/#")
        m.settings("t", idCacheSize=3)
        relay = c.create_sender(None)
        for id in ("a", "b", "c", "d", "b", "a"):
            relay.send(marked(id, id, "t/x"))
        assert bodies(attach(c, "$sub/b0/s", 10), 5) == ["a", "b", "c", "d", "a"]
    broker.stop()


def test_what_management_has_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    made: set[str] = set()
    asked: set[str] = set()  # to be ended
    ended: set[str] = set()
    for turn in range(3):
        requests = [("create", f"$sub/b0/{turn}-{n}") for n in range(60)] + [("end", name) for name in sorted(made)]
        asked |= made
        answered = asyncio.run(until_killed(broker, requests, 20 + 30 * turn))
        broker.start()
        made |= {name for what, name in answered if what == "create"}
        ended |= {name for what, name in answered if what == "end"}
        with broker.manage() as m:
            queues, diverts = set(m("getQueueNames")), set(m("getDivertNames"))
        assert made - asked <= queues and not ended & queues
        assert {f"{name}|t" for name in made - asked} <= diverts
        assert {divert.removesuffix("|t") for divert in diverts} <= queues
    broker.stop()


async def until_killed(broker: BrokerProcess, requests: list[tuple[str, str]], least: int) -> list[tuple[str, str]]:
    """Asks for all of it at once, and kills the broker when it has answered so many; what it has answered."""
    answered: list[tuple[str, str]] = []
    async with client.connect("127.0.0.1", broker.port) as c:
        sender = await c.sender("activemq.management")
        receiver = await c.receiver(None, dynamic=True, credit=1000)
        for what, name in requests:
            configuration = json.dumps({"name": name, "address": name, "routing-type": "ANYCAST"})
            calls: list[tuple[str, list[Any]]] = [("destroyQueue", [name, True, True])]
            if what == "create":
                divert = [f"{name}|t", "", "t", name, False, "", None]
                calls = [("createQueue", [configuration]), ("createDivert", divert)]
            for operation, parameters in calls:
                await sender.send(
                    OurMessage(
                        json.dumps(parameters),
                        reply_to=receiver.address,
                        correlation_id=f"{what} {name} {operation}",
                        application_properties={"_AMQ_ResourceName": "broker", "_AMQ_OperationName": operation},
                    ),
                    timeout=DEADLINE,
                )
        while True:
            try:
                delivery = await receiver.receive(DEADLINE)
            except AmqpError:
                return answered
            message = delivery.message
            what, name, operation = str(message.correlation_id).split()
            succeeded = (message.application_properties or {})["_AMQ_OperationSucceeded"]
            assert succeeded or operation == "destroyQueue", message.body  # an earlier one, that was not answered
            if operation != "createQueue":
                answered.append((what, name))
                if len(answered) == least:
                    broker.kill()
