"""What qdstat and qdmanage ask for: the columns by name, the types, the schema."""

from __future__ import annotations

from typing import Any

from proton import Message

from tests.router.harness import PREFIX, Management, RouterProcess, post, wait_for

LINK_COLUMNS = [
    "linkType", "linkDir", "connectionId", "identity", "peer", "owningAddr", "capacity", "undeliveredCount",
    "unsettledCount", "deliveryCount", "presettledCount", "droppedPresettledCount", "acceptedCount", "rejectedCount",
    "releasedCount", "modifiedCount", "deliveriesDelayed1Sec", "deliveriesDelayed10Sec", "deliveriesStuck",
    "creditAvailable", "zeroCreditSeconds", "adminStatus", "operStatus", "linkName", "priority", "settleRate",
]  # fmt: skip
ADDRESS_COLUMNS = [
    "distribution", "inProcess", "subscriberCount", "remoteCount", "containerCount", "deliveriesIngress",
    "deliveriesEgress", "deliveriesRedirectedToFallback", "deliveriesTransit", "deliveriesToContainer",
    "deliveriesFromContainer", "name", "priority",
]  # fmt: skip
ROUTER_COLUMNS = [
    "uptimeSeconds", "memoryUsage", "linkRouteCount", "autoLinkCount", "linkCount", "nodeCount", "addrCount",
    "connectionCount", "presettledDeliveries", "droppedPresettledDeliveries", "acceptedDeliveries",
    "rejectedDeliveries", "releasedDeliveries", "modifiedDeliveries", "deliveriesDelayed1Sec",
    "deliveriesDelayed10Sec", "deliveriesStuck", "deliveriesRedirectedToFallback", "linksBlocked",
    "deliveriesIngress", "deliveriesEgress", "deliveriesTransit", "deliveriesIngressRouteContainer",
    "deliveriesEgressRouteContainer", "workerThreads",
]  # fmt: skip
NUMBERS = {"capacity", "zeroCreditSeconds", "priority", "settleRate", "creditAvailable"}


def test_links(router: RouterProcess, management: Management, address: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=5, name="tool" + address)
    sender = connection.create_sender(address, name="tools" + address)
    for i in range(3):
        post(sender, Message(body=i))
        receiver.receive()
    receiver.accept()
    rows = {row["linkName"]: row for row in management.query(PREFIX + "router.link", *LINK_COLUMNS)}
    for row in rows.values():
        assert list(row) == LINK_COLUMNS
        numbers = {key: row[key] for key in LINK_COLUMNS if key.endswith("Count") or "Sec" in key or key in NUMBERS}
        assert all(isinstance(value, int) for value in numbers.values()), numbers
        assert row["linkType"] == "endpoint" and row["priority"] == 4 and row["adminStatus"] == "enabled"
    assert rows["tool" + address]["linkDir"] == "out" and rows["tools" + address]["linkDir"] == "in"
    assert rows["tools" + address]["deliveryCount"] == 3
    connection.close()


def test_addresses_and_the_router_itself(management: Management) -> None:
    rows = management.query(PREFIX + "router.address", *ADDRESS_COLUMNS)
    assert rows and all(isinstance(row[key], int) for row in rows for key in ADDRESS_COLUMNS if key.startswith("deliv"))
    row = management.query(PREFIX + "router")[0]
    assert all(isinstance(row[key], int) for key in ROUTER_COLUMNS), row
    assert 10_000_000 < row["memoryUsage"] < 1_000_000_000


def test_the_rate_of_settlements_is_that_since_the_last_question(
    router: RouterProcess, management: Management, address: str
) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=1, name="rated" + address)
    sender = connection.create_sender(address)
    name = "rated" + address
    assert management.one(PREFIX + "router.link", name)["settleRate"] == 0
    many = 1

    def rate() -> int:
        """Settlements a second, rounded down: ever more of them between two questions, however long one takes."""
        nonlocal many
        for _ in range(many):
            post(sender, Message(body="x"))
            receiver.receive()
            receiver.accept()
        many *= 2
        return int(management.one(PREFIX + "router.link", name)["settleRate"])

    assert wait_for(rate, "a rate") > 0
    connection.close()


def test_the_schema_has_what_tools_look_up(management: Management) -> None:
    status, _, schema = management.call("GET-SCHEMA", type="org.amqp.management", name="self")
    assert status == 200
    policy = schema["entityTypes"]["policy"]["attributes"]
    assert policy["maxConnections"]["default"] == 65535 and policy["linksDenied"]["type"] == "integer"
    types: dict[str, Any] = management.call("GET-TYPES")[2]
    operations: dict[str, Any] = management.call("GET-OPERATIONS")[2]
    assert PREFIX + "listener" in types and set(types) == set(operations)
    assert set(management.call("GET-ATTRIBUTES", entityType="log")[2]) == {PREFIX + "log"}


def test_the_level_of_the_log_can_be_changed(router: RouterProcess, management: Management) -> None:
    assert management.query("log", "name", "enable") == [{"name": "log/DEFAULT", "enable": "warning+"}]

    def ask(enable: str) -> tuple[int, str, Any]:
        return management.call("UPDATE", {"enable": enable}, type="log", name="log/DEFAULT")

    status, text, _ = ask("loud+")
    assert status == 400 and "'loud' is none of trace, debug" in text
    assert ask("info+, error")[0] == 200
    said = "router.management-request.unreadable"
    connection = router.connect()
    sender = connection.create_sender("$management")
    delivery = sender.link.delivery("garbage")
    sender.link.stream(b"\x00\x53\x73\xff")
    sender.link.advance()
    connection.wait(lambda: delivery.settled)
    wait_for(lambda: said in router.errors(), "the line in the log")
    assert ask("warning+")[2]["enable"] == "warning+"
    connection.close()
