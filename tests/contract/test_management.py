"""What our services ask of a broker's management, in the words in which they ask it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection

from enmasse.control import connect
from enmasse.engines.artemis.broker import BROKER as ARTEMIS
from enmasse.engines.artemis.client_rows import ClientListings
from enmasse.model.address_types import StoredType
from enmasse.model.addresses import Address, Ttl
from enmasse.model.names import AddressName
from enmasse.process.settings import host_port
from services.ragent.manual_brokers import ManualBrokers
from services.storage_controller import policies
from services.storage_controller.brokers.broker_contents import BrokerContents, Holding, contents
from services.storage_controller.conversation.broker_conversation import NONE
from services.storage_controller.management import EXISTS, GONE, BrokerManagement, all_done
from tests.artemis import Artemis
from tests.broker.harness import DEADLINE, Management, ManagementFailure, Terminus, attach, bodies, take, until
from tests.contract.conftest import Expected
from tests.contract.engines import Broker


def test_what_the_router_agent_reads_of_a_broker_managed_by_hand(broker: Broker) -> None:
    async def scenario() -> None:
        host, _, port = broker.url.rpartition(":")
        changes = asyncio.Event()
        by_hand = ManualBrokers("ragent", lambda _: changes.set(), lambda _: None)
        by_hand.follow({"b": (host, int(port))})
        q, t = AddressName("hand-q"), AddressName("hand-t")

        async def says(name: AddressName, kind: StoredType, text: str) -> None:
            async with asyncio.timeout(DEADLINE):
                while not (problem := by_hand.problem("b", name, kind)).startswith(text) or bool(problem) != bool(text):
                    changes.clear()
                    await changes.wait()

        await says(q, "queue", "broker b has no queue 'hand-q'")
        await says(t, "topic", "broker b has no topic 'hand-t'")
        with broker.manage() as m:
            m.queue(q)
            m("createAddress", t, "MULTICAST")
        await says(q, "queue", "")
        await says(t, "topic", "")
        assert not by_hand.note("b", "topic")
        by_hand.close()

    asyncio.run(scenario())


def test_what_the_storage_controller_does(broker: Broker) -> None:
    """With its own client: makes, marks, reads back, lists, counts, deletes."""
    q, t = AddressName("sc-q"), AddressName("sc-t")
    settings = {
        **policies.address_settings(q, Address(type="queue", flavor="f", message_ttl=Ttl(maximum=9000)), broker.engine),
        **policies.address_settings(t, Address(type="topic", flavor="f"), broker.engine),
    }

    async def scenario() -> None:
        host, _, port = broker.url.rpartition(":")
        connection = await connect(host, int(port), container="storage-controller")
        management = BrokerManagement()
        await management.open(connection)

        async def look() -> BrokerContents:
            return contents(*(await management.listings()).rows())

        for _ in range(2):  # the second time all is there already
            work = [management.add_settings(match, values) for match, values in settings.items()]
            work += [management.create(q, "queue"), management.create(t, "topic")]
            assert not await all_done(((q, each) for each in work), EXISTS)
        for name, kind in ((q, "queue"), (t, "topic")):
            assert await management.mismatch(name, kind) == ""
            wanted = {match: values for match, values in settings.items() if match.partition("/")[0] == name}
            read = await management.settings(name)
            assert policies.holds(wanted, read, await management.settings(NONE))
            assert read[policies.MARK_KEY] == policies.MARK
        found = await look()
        assert found.held[q] == Holding("queue", True)
        assert found.held[t] == Holding("topic", None)

        sender = connection.sender(q)
        await sender.opened()
        assert q in await management.producers()
        assert t not in await management.producers()
        sender.close()

        assert not await all_done([(q, management.destroy_queue(q)), (t, management.delete_address(t))])
        assert not await all_done([(q, management.destroy_queue(q)), (t, management.delete_address(t))], GONE)
        for match in settings:
            await management.remove_settings(match)
        assert policies.MARK_KEY not in await management.settings(t) or (
            (await management.settings(t))[policies.MARK_KEY] != policies.MARK
        )
        found = await look()
        assert not {q, t} & set(found.held)
        connection.close()
        await connection.wait_closed()

    asyncio.run(scenario())


def test_what_waits_is_counted_where_it_waits(broker: Broker, m: Management, q: str, t: str) -> None:
    """As the storage controller sums it up: a topic's subscriptions, those of levels below it too."""
    with broker.connect("counted") as c:
        for name, address in (("one", t), ("two", f"{t}/a/b")):
            attach(c, address, 0, name=name, options=Terminus("topic", durable=True)).detach()
        receiver = attach(c, q, 0)
        for n, address in enumerate((q, t, f"{t}/a/b", f"{t}/a/b")):
            c.create_sender(address, name=f"sender-{n}").send(Message(body="x", durable=True))

        async def look() -> BrokerContents:
            host, _, port = broker.url.rpartition(":")
            connection = await connect(host, int(port), container="storage-controller")
            management = BrokerManagement()
            await management.open(connection)
            found = contents(*(await management.listings()).rows())
            connection.close()
            await connection.wait_closed()
            return found

        held = asyncio.run(look()).held
        assert held[AddressName(q)][2:5] == (1, 1, 0)
        assert held[AddressName(t)].messages >= 3
        assert held[AddressName(t)].subscriptions == 2
        assert AddressName(f"{t}/a/b") not in held
        receiver.close()
        for name in ("counted.one", "counted.two"):
            m("destroyQueue", name, True, True)


def test_replies_come_in_the_order_of_requests(c: BlockingConnection) -> None:
    receiver = attach(c, None, 100, dynamic=True)  # type: ignore[arg-type]  # a dynamic source has no address
    sender = c.create_sender("activemq.management")
    address = receiver.link.remote_source.address
    for n in range(100):
        operation = "getName" if n % 3 else "no such"
        properties = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": operation}
        sender.link.send(Message(reply_to=address, correlation_id=n, properties=properties, body="[]"))
    for n in range(100):
        reply = receiver.receive(DEADLINE)
        assert reply.correlation_id == n
        assert reply.properties["_AMQ_OperationSucceeded"] is bool(n % 3)
        if not n % 3:
            assert "AMQ229069" in reply.body


@pytest.mark.parametrize(
    ("operation", "parameters", "code"),
    [
        ("createQueue", [json.dumps({"name": "{q}", "address": "{q}", "routing-type": "ANYCAST"})], "AMQ229019"),
        ("createQueue", ["{q}", "ANYCAST", "{q}", None, True, -1, False, True], "AMQ229019"),
        ("createQueue", ["none", "MULTICAST", "s", None, True, -1, False, False], "AMQ229203"),
        ("destroyQueue", ["missing", True, True], "AMQ229017"),
        ("createAddress", ["{q}", "MULTICAST"], "AMQ229204"),
        ("deleteAddress", ["{q}"], "AMQ229205"),
        ("deleteAddress", ["missing", True], "AMQ229203"),
        ("destroyDivert", ["missing"], "AMQ229012"),
    ],
)
def test_refusals_have_codes(m: Management, q: str, operation: str, parameters: list[Any], code: str) -> None:
    given = [each.replace("{q}", q) if isinstance(each, str) else each for each in parameters]
    with pytest.raises(ManagementFailure, match=code):
        m(operation, *given)


def test_what_is_not_there_has_no_attributes(m: Management) -> None:
    for resource in ("queue.missing", "address.missing"):
        with pytest.raises(ManagementFailure):
            m("getMessageCount", resource=resource)


def test_rows_of_queues_and_addresses(m: Management, c: BlockingConnection) -> None:
    m.queue("rows", user="somebody", max_consumers=3)
    row = m.rows()["rows"]
    assert all(isinstance(value, str) for value in row.values())
    wanted = {
        "address": "rows",
        "routingType": "ANYCAST",
        "durable": "true",
        "temporary": "false",
        "autoCreated": "false",
        "internalQueue": "false",
        "maxConsumers": "3",
        "user": "somebody",
        "paused": "false",
        "messageCount": "0",
        "consumerCount": "0",
    }
    assert {key: row[key] for key in wanted} == wanted
    address = m.rows("listAddresses")["rows"]
    assert (address["routingTypes"], address["queueCount"]) == ('["ANYCAST"]', "1")
    assert m("getQueueNames", resource="address.rows") == ["rows"]
    reply_queue = m.receiver.link.remote_source.address
    assert m.rows()[reply_queue]["temporary"] == "true"
    m("destroyQueue", "rows", True, True)
    assert "rows" not in m("getQueueNames")
    assert "rows" not in m("getAddressNames")


def test_lists_are_filtered_sorted_and_paged(m: Management) -> None:
    for n in range(5):
        m.queue(f"page-{n}")
    options = {"field": "name", "operation": "CONTAINS", "value": "page-", "sortColumn": "name", "sortOrder": "desc"}
    first = json.loads(m("listQueues", json.dumps(options), 1, 2))
    assert first["count"] == 5
    assert [row["name"] for row in first["data"]] == ["page-4", "page-3"]
    last = json.loads(m("listQueues", json.dumps(options), 3, 2))
    assert [row["name"] for row in last["data"]] == ["page-0"]
    for n in range(5):
        m("destroyQueue", f"page-{n}", True, True)


def test_contents_of_a_queue(m: Management, c: BlockingConnection, q: str) -> None:
    sender = c.create_sender(q)
    for n in range(6):
        sender.send(Message(body=n, properties={"n": n}, durable=True))
    queue = f"queue.{q}"
    assert m.attribute(queue, "messageCount") == 6
    assert m.attribute(queue, "durable") is True
    assert m("countMessages", "n > 2", resource=queue) == 3
    assert m("removeMessages", "n = 4", resource=queue) == 1
    m("pause", resource=queue)
    receiver = attach(c, q, 10)
    assert m.rows()[q]["paused"] == "true"
    assert m.attribute(queue, "deliveringCount") == 0
    m("resume", resource=queue)
    assert bodies(receiver, 3) == [0, 1, 2]
    receiver.close()
    until(lambda: m.count(q) == 2, "the acknowledgements")
    assert m("removeMessages", None, resource=queue) == 2
    assert m.count(q) == 0


def test_settings_of_the_more_specific_match_hold(m: Management) -> None:
    m.settings("set/#", maxDeliveryAttempts=7, deadLetterAddress="dead", redeliveryDelay=5)
    m.settings("set/below", maxDeliveryAttempts=9)

    def read(name: str) -> tuple[Any, ...]:
        found = json.loads(m("getAddressSettingsAsJSON", name))
        keys = ("maxDeliveryAttempts", "redeliveryDelay")
        return (*(found.get(key) for key in keys), found.get("deadLetterAddress", found.get("DLA")))

    assert read("set/below") == (9, 5, "dead")
    m.settings("set/#", redeliveryDelay=6)
    assert read("set/below") == (9, 6, None), "what is set for a match replaces what was set for it before"
    m("removeAddressSettings", "set/below")
    assert read("set/below")[:2] == (-1, 6)
    m("removeAddressSettings", "set/#")
    m("removeAddressSettings", "never set")


def test_settings_that_cannot_be(m: Management, expected: Expected) -> None:
    def refused(**settings: object) -> bool:
        try:
            m.settings("cannot", **settings)
        except ManagementFailure:
            return True
        return False

    assert refused(maxSizeBytes="many")
    assert refused(addressFullMessagePolicy="WAIT")
    assert refused(nobodyKnowsThis=1) is expected(embedded=True, artemis=False)
    assert refused(maxSizeBytes=1000, pageSizeBytes=10_000) is expected(embedded=False, artemis=True)
    m("removeAddressSettings", "cannot")


def test_another_name_of_the_dead_letter_address(m: Management, expected: Expected) -> None:
    m.settings("alias", DLA="dead")
    found = json.loads(m("getAddressSettingsAsJSON", "alias"))
    assert found.get("DLA") == expected(embedded="dead", artemis=None)
    m("removeAddressSettings", "alias")


def test_what_a_queue_tells_of_itself(m: Management, q: str, expected: Expected) -> None:
    """What the embedded broker adds to Artemis' fields."""
    more = {"messagesLost", "stalled", "messagesReplaced"} <= set(m.rows()[q])
    assert (more, "full" in m.rows("listAddresses")[q]) == expected(embedded=(True, True), artemis=(False, False))


def test_a_consumer_is_ended_with_its_queue(m: Management, c: BlockingConnection) -> None:
    m.queue("ended")
    receiver = attach(c, "ended", 1)
    c.create_sender("ended").send(Message(body="x"))
    take(receiver)
    m("destroyQueue", "ended", True, True)
    with pytest.raises(Exception, match="resource-deleted"):
        receiver.receive(DEADLINE)


def test_a_client_whose_connection_an_administrator_closes_is_told(
    broker: Broker, m: Management, q: str, expected: Expected
) -> None:
    def connections() -> set[str]:
        return {row["connectionID"] for row in json.loads(m("listConnectionsAsJSON"))}

    before = connections()
    with broker.connect() as c:
        attach(c, q, 1)
        (mine,) = connections() - before
        assert m("closeConnectionWithID", mine) is True
        with pytest.raises(ConnectionException) as told:
            c.wait(lambda: False, timeout=DEADLINE)
    reason = "Condition('amqp:connection:forced', 'closed by an administrator')"
    assert (reason in str(told.value)) is expected(embedded=True, artemis=False)
    until(lambda: mine not in connections(), "the end of the connection")
    assert m("closeConnectionWithID", mine) is False


def test_connections_and_links_as_the_console_lists_them(broker: Broker, q: str, expected: Expected) -> None:
    """By pages of `listConnections`, `listConsumers` and `listProducers`; the embedded broker has `$live`."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        connection = await connect(*host_port(broker.url), container="console")
        clients = ClientListings(connection, "b", inside=False)
        with broker.connect() as c:
            sender = c.create_sender(q)
            await loop.run_in_executor(None, exchange, c, sender)
            found = await clients.look()
            mine = {id: row for id, row in found["connections"].items() if row["container"] == c.container.container_id}
            assert len(mine) == expected(embedded=0, artemis=1)
            if mine:
                ((id, row),) = mine.items()
                assert (row["protocol"], row["user"], row["in"], row["out"]) == ("amqp", None, 3, 3)
                assert row["bytesIn"] > 0 and row["bytesOut"] > 0 and isinstance(row["opened"], float)
                links = {row["dir"]: row for row in found["links"].values() if row["connection"] == id}
                assert {each["address"] for each in links.values()} == {q} and links["out"]["queue"] == q
                assert (links["in"]["count"], links["out"]["count"], links["out"]["unsettled"]) == (3, 3, 3)
                await loop.run_in_executor(None, sender.close)
                later = (await clients.look())["connections"][id]
                assert (later["in"], later["peer"]) == (3, row["peer"])
        clients.close()
        connection.close()

    def exchange(c: BlockingConnection, sender: Any) -> None:
        for number in range(3):
            sender.send(Message(body=str(number)))
        receiver = attach(c, q, 3)
        assert [take(receiver).body for _ in range(3)] == ["0", "1", "2"]

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("broker", [ARTEMIS.name], indirect=True)
def test_the_log_of_artemis_has_one_json_object_a_line(broker: Broker, m: Management) -> None:
    assert isinstance(broker.server, Artemis)
    with pytest.raises(ManagementFailure):
        m("destroyQueue", "nosuch")
    lines = [line for line in broker.server.log.read_text().splitlines() if line.startswith("{")]
    assert lines
    assert all({"event", "level", "timestamp", "service"} <= json.loads(line).keys() for line in lines)
