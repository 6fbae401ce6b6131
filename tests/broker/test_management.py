"""Management over AMQP as Artemis has it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from proton import Message, symbol
from proton.utils import BlockingConnection, LinkDetached

from enmasse.control import Artemis, connect
from services.broker.core.limits.settings import FIELDS
from tests.broker.harness import DEADLINE, BrokerProcess, Management, ManagementFailure, attach, bodies, until


def test_replies_come_in_the_order_of_requests_with_their_ids(c: BlockingConnection) -> None:
    receiver = attach(c, None, 300, dynamic=True)  # type: ignore[arg-type]  # a dynamic source has no address
    sender = c.create_sender("activemq.management")
    address = receiver.link.remote_source.address
    for n in range(200):
        sender.link.send(
            Message(
                reply_to=address,
                id=f"id-{n}",
                correlation_id=n if n % 2 else None,
                properties={"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "getName" if n % 3 else "no such"},
                body="[]",
            )
        )
    for n in range(200):
        reply = receiver.receive(DEADLINE)
        assert reply.correlation_id == (n if n % 2 else f"id-{n}")
        assert reply.properties["_AMQ_OperationSucceeded"] is bool(n % 3)
        assert json.loads(reply.body) == (["b0"] if n % 3 else ["AMQ229069: no operation no such/0"])


def test_the_named_reply_queue_of_enmasse(c: BlockingConnection) -> None:
    """E.5: a first request without reply-to makes the reply queue, which goes with its consumer."""
    sender = c.create_sender("activemq.management")
    name = "activemq.management.tmpreply.1"
    create = json.dumps([name, "ANYCAST", name, None, False, 1, True, True])
    sender.send(Message(properties={"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "createQueue"}, body=create))
    receiver = attach(c, name, 10)
    sender.send(
        Message(
            reply_to=name,
            properties={"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "getQueueNames", "JMSReplyTo": name},
            body="[]",
        )
    )
    assert name in json.loads(bodies(receiver, 1)[0])[0]


def test_create_queue_with_eight_parameters_and_its_refusals(m: Management) -> None:
    m("createQueue", "q8", "ANYCAST", "q8", None, True, -1, False, True)
    row = m.rows()["q8"]
    assert all(isinstance(value, str) for value in row.values())
    assert (row["address"], row["routingType"], row["durable"], row["maxConsumers"]) == ("q8", "ANYCAST", "true", "-1")
    refusals: list[tuple[str, list[object], str]] = [
        (
            "createQueue",
            ["q8", "ANYCAST", "q8", None, True, -1, False, True],
            "AMQ229019: Queue q8 already exists on address q8",
        ),
        (
            "createQueue",
            ["none", "MULTICAST", "s", None, True, -1, False, False],
            "AMQ229203: Address Does Not Exist: none",
        ),
        (
            "createQueue",
            ["q8", "ANYCAST", "q9", None, "yes", -1, False, True],
            "AMQ229069: no operation createQueue/8",
        ),
        ("destroyQueue", ["missing"], "AMQ229017: Queue missing does not exist"),
        ("createAddress", ["q8", "MULTICAST"], "AMQ229204: Address already exists: q8"),
        ("deleteAddress", ["q8"], "AMQ229205: Address q8 has bindings"),
        ("deleteAddress", ["missing"], "AMQ229203: Address Does Not Exist: missing"),
    ]
    for operation, parameters, text in refusals:
        with pytest.raises(ManagementFailure) as caught:
            m(operation, *parameters)
        assert str(caught.value) == text
    m("destroyQueue", "q8", True, True)
    assert "q8" not in m("getQueueNames")
    assert "q8" not in m("getAddressNames")


def test_create_queue_as_json_marks_its_maker(m: Management) -> None:
    m.queue("marked", user="storage-controller", max_consumers=3)
    row = m.rows()["marked"]
    assert (row["user"], row["maxConsumers"]) == ("storage-controller", "3")
    given = json.dumps({"name": "marked"})
    m("createQueue", given, True)
    with pytest.raises(ManagementFailure, match="AMQ229019"):
        m("createQueue", given)
    m("updateQueue", json.dumps({"name": "marked", "max-consumers": 5}))
    assert m.rows()["marked"]["maxConsumers"] == "5"
    for wrong, text in {
        "no json": "not JSON",
        "[]": "not a JSON object",
        '{"name": 3}': "name",
        '{"nam": "x"}': "'nam' is not known",
        '{"name": "x", "durable": 3}': "durable",
        '{"name": "x", "last-value": true}': "not supported",
        '{"address": "x"}': "the name is missing",
        '{"name": "x", "max-consumers": "²"}': "is not a int",
        '{"name": "a\\u0000b"}': "AMQ229218",
    }.items():
        with pytest.raises(ManagementFailure, match=text):
            m("createQueue", wrong)
    m("destroyQueue", "marked", True, True)


def test_settings_go_in_by_place_and_come_back_by_name(m: Management) -> None:
    inherited = json.loads(m("getAddressSettingsAsJSON", "#"))
    values = [inherited.get(field.name) for field in FIELDS]
    values[0], values[4], values[5], values[13] = "dead", 7, 123456, "FAIL"
    assert len(["match", *values]) == 58
    m("addAddressSettings", "set/#", *values)
    found = json.loads(m("getAddressSettingsAsJSON", "set/below"))
    assert set(inherited) | {"DLA"} == set(found)
    assert (found["DLA"], found["maxDeliveryAttempts"], found["maxSizeBytes"]) == ("dead", 7, 123456)
    assert found["addressFullMessagePolicy"] == "FAIL"
    m("addAddressSettings", "set/below", json.dumps({"maxSizeBytes": 5}))
    narrower = json.loads(m("getAddressSettingsAsJSON", "set/below"))
    assert (narrower["maxSizeBytes"], narrower["DLA"]) == (5, "dead")
    m("removeAddressSettings", "set/#")
    assert "DLA" not in json.loads(m("getAddressSettingsAsJSON", "set/below"))
    m("removeAddressSettings", "set/below")
    for wrong in ({"unknown": 1}, {"maxSizeBytes": "many"}, {"addressFullMessagePolicy": "WAIT"}):
        with pytest.raises(ManagementFailure, match=next(iter(wrong))):
            m.settings("x", **wrong)


def test_an_address_is_listed_with_what_it_has(m: Management) -> None:
    m.queue("listed")
    address = m.rows("listAddresses")["listed"]
    assert (address["routingTypes"], address["queueCount"]) == ('["ANYCAST"]', "1")
    m("destroyQueue", "listed", True, True)


def test_attributes_and_operations_of_a_queue(m: Management, c: BlockingConnection) -> None:
    m.queue("ops")
    m.queue("other")
    sender = c.create_sender("ops")
    for n in range(6):
        sender.send(Message(body=n, properties={"n": n}, durable=True))
    assert m.attribute("queue.ops", "messageCount") == 6
    assert m.attribute("queue.ops", "durable") is True
    assert m("countMessages", "n > 2", resource="queue.ops") == 3
    assert m("moveMessages", "n = 5", "other", resource="queue.ops") == 1
    assert m.count("other") == 1
    assert m("removeMessages", "n = 4", resource="queue.ops") == 1
    assert [row["priority"] for row in json.loads(m("listMessagesAsJSON", None, resource="queue.ops"))] == [4] * 4
    m("pause", resource="queue.ops")
    receiver = attach(c, "ops", 10)
    assert m.rows()["ops"]["paused"] == "true"
    assert m.attribute("queue.ops", "deliveringCount") == 0
    m("resume", resource="queue.ops")
    assert bodies(receiver, 4) == [0, 1, 2, 3]
    assert m("removeAllMessages", resource="queue.other") == 1
    assert m("getQueueNames", resource="address.ops") == ["ops"]
    with pytest.raises(ManagementFailure, match="AMQ229067"):
        m("getMessageCount", resource="queue.missing")
    with pytest.raises(ManagementFailure, match="AMQ229068"):
        m.attribute("queue.ops", "colour")
    for name in ("ops", "other"):
        m("destroyQueue", name, True, True)


def test_who_is_connected_and_how_to_end_it(broker: BrokerProcess, m: Management) -> None:
    m.queue("watched")
    with broker.connect("victim") as c:
        attach(c, "watched", 1)
        c.create_sender("watched")
        listed = json.loads(m("listConnectionsAsJSON"))
        (mine,) = [row for row in listed if row["clientID"] == "victim"]
        (session,) = json.loads(m("listSessionsAsJSON", mine["connectionID"]))
        assert (session["consumerCount"], session["producerCount"]) == (1, 1)
        consumers = [k for k in json.loads(m("listAllConsumersAsJSON")) if k["queueName"] == "watched"]
        assert [k["connectionID"] for k in consumers] == [mine["connectionID"]]
        producers = json.loads(m("listProducersInfoAsJSON"))
        assert "watched" in [p["destination"] for p in producers]
        assert m("closeConnectionWithID", mine["connectionID"]) is True
        assert m("closeConnectionWithID", "missing") is False
        with pytest.raises(Exception, match="connection:forced"):
            c.wait(lambda: False, timeout=DEADLINE)
    until(lambda: m.rows()["watched"]["consumerCount"] == "0", "the consumer to go")
    m("destroyQueue", "watched", True, True)


def test_requests_that_make_no_sense_are_answered(m: Management) -> None:
    for properties, body in (
        ({}, "[]"),
        ({"_AMQ_ResourceName": "broker"}, "[]"),
        ({"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "getName"}, "{"),
        ({"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "getName"}, "[" * 100_000),
        ({"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "getName"}, {"a": 1}),
        ({"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "getName"}, '["too", "many"]'),
        ({"_AMQ_ResourceName": 3, "_AMQ_OperationName": "getName"}, "[]"),
    ):
        with pytest.raises(ManagementFailure):
            m.ask(properties, body)
    assert m("getName") == "b0"


def test_management_is_no_place_to_receive_from(c: BlockingConnection) -> None:
    with pytest.raises(LinkDetached, match="not-found"):
        c.create_receiver("activemq.management")


def test_metrics_are_served(broker: BrokerProcess, m: Management) -> None:
    m.queue("measured")
    assert 'artemis_message_count{address="measured",broker="b0",queue="measured"} 0.0' in broker.metrics()
    m("destroyQueue", "measured", True, True)


def test_a_container_id_may_be_kept_for_one_connection(broker: BrokerProcess) -> None:
    only = {"desired_capabilities": [symbol("sole-connection-for-container")]}
    with broker.connect("sole", **only):
        with pytest.raises(Exception, match="invalid-field"), broker.connect("sole", **only) as second:
            second.create_sender("activemq.management")
        with broker.connect("sole") as other:  # who does not ask for it may be the second
            other.create_sender("activemq.management")
        with broker.connect("another", **only) as third:
            third.create_sender("activemq.management")
    with broker.connect("sole", **only) as again:
        again.create_sender("activemq.management")


def test_a_router_gets_no_address_made_for_it(tmp_path: Path) -> None:
    """Auto-creation is for direct clients; a router's link is refused, and tried again later."""
    making = {"autoCreateQueues": True, "autoCreateAddresses": True, "defaultAddressRoutingType": "ANYCAST"}
    broker = BrokerProcess(tmp_path, data_dir=None, settings=making).start()
    with broker.connect("r", properties={symbol("product"): "qpid-dispatch-router"}) as router:
        for create in (router.create_sender, router.create_receiver):
            with pytest.raises(LinkDetached, match="not-found"):
                create("q")
        with broker.manage() as m:
            m.queue("q")
            sender = router.create_sender("q", name="out")
            assert sender.link.remote_target.address == "q"
            receiver = router.create_receiver("q", name="in")
            assert receiver.link.remote_source.address == "q"
    broker.stop()


def test_two_looks_at_a_broker_where_nothing_happens_have_the_same_digest(broker: BrokerProcess, m: Management) -> None:
    """Although the queue that gets the replies counts them."""
    everything = (json.dumps({"field": "", "operation": "", "value": ""}), 1, 2**31 - 1)
    m.queue("digested")

    async def look() -> list[tuple[int, ...]]:
        host, _, port = broker.url.rpartition(":")
        connection = await connect(host, int(port), container="controller")
        node = await Artemis(connection).opened()
        found = []
        for _ in range(3):
            replies = [await node.ask("broker", listing, *everything) for listing in ("listQueues", "listAddresses")]
            found.append(tuple(map(node.digest, replies)))
        await node.invoke("broker", "destroyQueue", "digested", True, True)
        found.append((node.digest(await node.ask("broker", "listQueues", *everything)),))
        connection.close()
        await connection.wait_closed()
        return found

    first, second, third, without = asyncio.run(look())
    assert first == second == third
    assert without[0] != first[0]


def test_parameters_that_make_no_sense_fail_and_nothing_else(m: Management) -> None:
    for operation, *parameters in (
        ("listQueues", "", 1e308, 2**70),
        ("listQueues", "", 2**70, 1e308),
        ("createQueue", None, None, "a", "#", True, -1, True, None),
    ):
        with pytest.raises(ManagementFailure):
            m(operation, *parameters)
    assert m("getName") == "b0"
