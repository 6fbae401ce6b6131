from __future__ import annotations

import uuid
from typing import Any

import pytest
from proton import ConnectionException, Message, ulong
from proton.reactor import DynamicNodeProperties
from proton.utils import BlockingConnection, ConnectionClosed

from tests.router.harness import (
    ADDRESS,
    AUTO_LINK,
    CONNECTION,
    CONNECTOR,
    DEADLINE,
    LINK_ROUTE,
    LISTENER,
    PREFIX,
    Management,
    RouterProcess,
    free_port,
    post,
    wait_for,
)


def test_open_says_what_an_agent_looks_for(router: RouterProcess) -> None:
    connection = router.connect()
    remote = connection.conn
    assert remote.remote_container == "r1"
    assert remote.remote_properties["product"] == "qpid-dispatch-router"
    assert remote.remote_properties["version"] == "1.19.0"
    assert "ANONYMOUS-RELAY" in remote.remote_offered_capabilities
    connection.close()


def test_create_is_seen_at_once_with_types(management: Management) -> None:
    created = management.create(ADDRESS, "ragent-q1", pattern="q1", distribution="balanced", waypoint=True)
    row = management.one(ADDRESS, "ragent-q1")
    assert row == created
    assert row["pattern"] == "q1" and row["prefix"] is None
    assert row["waypoint"] is True
    assert (row["ingressPhase"], row["egressPhase"], row["priority"], row["fallback"]) == (0, 1, -1, False)
    assert isinstance(row["identity"], str) and row["identity"].isdigit()
    assert management.call("READ", type=ADDRESS, name="ragent-q1")[2] == row
    assert management.call("READ", type=ADDRESS, identity=row["identity"])[2] == row
    management.delete(ADDRESS, "ragent-q1")
    assert management.call("READ", type=ADDRESS, name="ragent-q1")[:2] == (404, "Not Found")
    management.create(ADDRESS, "ragent-q1", prefix="q1")
    row = management.one(ADDRESS, "ragent-q1")
    assert row["prefix"] == "q1" and row["pattern"] is None and row["waypoint"] is False
    management.delete(ADDRESS, "ragent-q1")


@pytest.mark.parametrize("number", ["²", "٣", "9" * 5000, "--7", ""])
def test_texts_that_are_no_numbers_are_answered(management: Management, number: str) -> None:
    for kind, status in ((CONNECTION, 404), (PREFIX + "router.link", 404), (ADDRESS, 404), (AUTO_LINK, 404)):
        assert management.call("READ", type=kind, identity=number)[0] == status, kind
    body = {"pattern": "q9", "priority": number}
    status, text, _ = management.call("CREATE", body, type=ADDRESS, name="n")
    assert (status, "is not an integer" in text) == (400, True), text
    assert management.call("QUERY", {"attributeNames": []}, entityType=ADDRESS, count=number)[0] == 200


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        (ADDRESS, {}, "Either a 'prefix' or 'pattern' attribute must be provided"),
        (ADDRESS, {"prefix": "a", "pattern": "b"}, "Cannot specify both a 'prefix' and a 'pattern' attribute"),
        (ADDRESS, {"prefix": ""}, "Prefix must be a non-empty string type"),
        (ADDRESS, {"prefix": "/"}, "Prefix invalid - no tokens"),
        (ADDRESS, {"prefix": "z", "egressPhase": 10}, "Phase values must be between 0 and 9"),
        (
            ADDRESS,
            {"prefix": "z", "priority": 10},
            "Priority value, if present, must be between 0 and QDR_MAX_PRIORITY",
        ),
        (ADDRESS, {"pattern": "any"}, "Already exists"),
        (AUTO_LINK, {"direction": "in"}, "address and direction fields are mandatory"),
        (AUTO_LINK, {"address": "q", "direction": "in", "phase": 10}, "autoLink phase must be between 0 and 9"),
        (
            AUTO_LINK,
            {"address": "q", "direction": "in", "containerId": "c", "connection": "d"},
            "Both connection and containerId cannot be specified. Specify only one",
        ),
        (LINK_ROUTE, {"direction": "in"}, "Either a 'prefix' or 'pattern' attribute must be provided"),
        (
            LINK_ROUTE,
            {"pattern": 666, "direction": "in"},
            "Invalid value for attribute 'pattern': 666 is not a string",
        ),
        (
            LINK_ROUTE,
            {"pattern": "t", "direction": "in", "distribution": "dilly"},
            "Invalid value for attribute 'distribution': 'dilly' is not one of linkBalanced",
        ),
        (LINK_ROUTE, {"prefix": "t"}, "No 'direction' attribute provided - it is mandatory"),
    ],
)
def test_refusals_of_core_entities(management: Management, kind: str, body: dict[str, Any], text: str) -> None:
    before = len(management.query(kind))
    status, description, returned = management.call("CREATE", body, type=kind, name="refused")
    assert (status, description, returned) == (400, text, None)
    assert len(management.query(kind)) == before


def test_a_duplicate_name_is_refused(management: Management) -> None:
    management.create(AUTO_LINK, "twice", address="q", direction="in", containerId="c")
    status, text, _ = management.call("CREATE", {"address": "q2", "direction": "out"}, type=AUTO_LINK, name="twice")
    assert (status, text) == (400, "Name conflicts with an existing entity")
    management.delete(AUTO_LINK, "twice")
    assert management.call("DELETE", type=AUTO_LINK, name="twice")[0] == 404


def test_a_body_that_is_no_map_is_refused(management: Management) -> None:
    assert management.call("CREATE", "text", type=ADDRESS, name="x")[:2] == (400, "Body of request must be a map")


def test_columns_and_aliases(management: Management) -> None:
    management.create(AUTO_LINK, "columns", address="q", direction="out", containerId="b-out", externalAddress="x::y")
    row = management.one(AUTO_LINK, "columns")
    assert list(row) == [
        "name", "identity", "type", "address", "addr", "direction", "dir", "phase", "connection", "containerId",
        "externalAddress", "externalAddr", "linkRef", "operStatus", "lastError", "fallback",
    ]  # fmt: skip
    assert (row["addr"], row["dir"], row["externalAddr"], row["phase"]) == ("q", "out", "x::y", 0)
    assert (row["operStatus"], row["lastError"], row["linkRef"]) == ("inactive", None, None)
    management.delete(AUTO_LINK, "columns")
    management.create(LINK_ROUTE, "columns", prefix="t", direction="in", containerId="b-in")
    row = management.one(LINK_ROUTE, "columns")
    assert list(row) == [
        "name", "identity", "type", "prefix", "distribution", "connection", "containerId", "direction", "dir",
        "operStatus", "pattern", "addExternalPrefix", "delExternalPrefix",
    ]  # fmt: skip
    assert (row["prefix"], row["dir"], row["operStatus"]) == ("t", "in", "inactive")
    management.delete(LINK_ROUTE, "columns")


def test_query_chooses_columns_and_pages(management: Management) -> None:
    for i in range(5):
        management.create(ADDRESS, f"page{i}", pattern=f"page{i}")
    status, _, body = management.call(
        "QUERY", {"attributeNames": ["name", "nonsense"]}, entityType=ADDRESS, offset=2, count=3
    )
    assert status == 200
    assert body["attributeNames"] == ["name", "nonsense"]
    assert len(body["results"]) == 3
    assert all(row[1] is None for row in body["results"])
    for i in range(5):
        management.delete(ADDRESS, f"page{i}")


@pytest.mark.parametrize(
    ("operation", "properties", "status"),
    [
        ("QUERY", {"entityType": "no.such"}, 400),
        ("QUERY", {"entityType": PREFIX + "nosuch"}, 400),
        ("CREATE", {"type": "nosuch", "name": "x"}, 400),
        ("CREATE", {"name": "x"}, 400),
        ("READ", {"type": ADDRESS}, 400),
        ("READ", {"type": LISTENER, "name": "nobody"}, 404),
        ("READ", {"name": "nobody"}, 404),
        ("DELETE", {"type": ADDRESS, "name": "nobody"}, 404),
        ("DELETE", {"type": ADDRESS, "identity": "999999"}, 404),
        ("UPDATE", {"type": ADDRESS, "name": "any"}, 501),
        ("CREATE", {"type": PREFIX + "connection", "name": "x"}, 403),
        ("DELETE", {"type": PREFIX + "router", "name": "r1"}, 403),
        ("READ", {"type": PREFIX + "connection", "name": "x"}, 400),
        ("DANCE", {}, 501),
        ("QUERY", {"entityType": "listener", "type": "org.amqp.management"}, 200),
        ("READ", {"type": "listener", "name": "clients"}, 200),
        ("READ", {"name": "clients"}, 200),
        ("READ", {"name": "self"}, 200),
        ("READ", {"type": "router", "identity": "1"}, 200),
        ("READ", {"type": PREFIX + "router.address", "name": "M0$management"}, 200),
        ("GET-TYPES", {}, 200),
        ("GET-ATTRIBUTES", {"entityType": "listener"}, 200),
        ("GET-OPERATIONS", {}, 200),
        ("GET-SCHEMA", {}, 200),
        ("GET-LOG", {}, 501),
        ("get-mgmt-nodes", {}, 200),
    ],
)
def test_everything_gets_an_answer(
    management: Management, operation: str, properties: dict[str, str], status: int
) -> None:
    assert management.call(operation, {"attributeNames": []}, **properties)[0] == status


def test_every_type_can_be_queried(management: Management) -> None:
    _, _, types = management.call("GET-TYPES")
    assert set(types) >= {ADDRESS, AUTO_LINK, LINK_ROUTE, LISTENER, CONNECTOR, PREFIX + "router.node"}
    _, _, attributes = management.call("GET-ATTRIBUTES")
    for kind in types:
        status, _, body = management.call("QUERY", {"attributeNames": []}, entityType=kind)
        assert status == 200
        assert body["attributeNames"] == attributes[kind]
        assert all(len(row) == len(attributes[kind]) for row in body["results"])


def test_unknown_columns_of_static_entities_are_refused(management: Management) -> None:
    status, text, body = management.call("QUERY", {"attributeNames": ["x"]}, entityType="listener")
    assert (status, body) == (404, {})
    assert text == f"Unknown attributes ['x'] for type {LISTENER}."


def test_a_request_without_operation_is_answered(router: RouterProcess) -> None:
    client = router.management()
    reply = client.client.call(Message(properties={"type": ADDRESS}, body={}))
    assert reply.properties["statusCode"] == 400
    client.close()


@pytest.mark.parametrize("correlation", ["text", ulong(7), uuid.uuid4(), b"bytes"])
def test_correlation_ids_come_back_with_their_type(router: RouterProcess, correlation: Any) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(None, dynamic=True, options=DynamicNodeProperties({}))
    sender = connection.create_sender(None)
    sender.send(
        Message(
            address="$management",
            reply_to=receiver.link.remote_source.address,
            correlation_id=correlation,
            properties={"operation": "GET-MGMT-NODES"},
            body={},
        )
    )
    reply = receiver.receive()
    assert reply.correlation_id == correlation
    assert isinstance(reply.correlation_id, str) == isinstance(correlation, str)
    connection.close()


def test_management_nodes_are_this_one_and_its_address_works(router: RouterProcess, management: Management) -> None:
    _, _, nodes = management.call("GET-MGMT-NODES")
    assert nodes == ["amqp:/_topo/0/r1/$management"]
    client = Management(router.url, nodes[0])
    assert client.call("GET-MGMT-NODES")[2] == nodes
    client.close()
    assert [row["nextHop"] for row in management.query(PREFIX + "router.node")] == ["(self)"]


def test_a_listener_made_at_run_time_works_and_goes(management: Management) -> None:
    port = free_port()
    created = management.create(LISTENER, "late", host="127.0.0.1", port=port, authenticatePeer="no")
    assert created["port"] == str(port)
    assert created["authenticatePeer"] is False
    assert created["identity"] == f"listener/127.0.0.1:{port}:late"
    other = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE)
    status, text, _ = management.call("CREATE", {"host": "127.0.0.1", "port": port}, type=LISTENER, name="later")
    assert status == 500 and "ddress already in use" in text
    assert management.call("CREATE", {"host": "127.0.0.1", "port": 1}, type=LISTENER, name="late")[0] == 400
    management.delete(LISTENER, "late")
    receiver = other.create_receiver("any")
    assert receiver.link.remote_source.address == "any"
    other.close()
    with pytest.raises(Exception, match=r"refused|disconnected|Connection"):
        BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE)
    assert "late" not in [row["name"] for row in management.query(LISTENER)]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"nonsense": 1}, "Unknown attribute 'nonsense' for 'org.apache.qpid.dispatch.listener'"),
        ({"role": "king"}, "Invalid value for attribute 'role'"),
        ({"identity": "x"}, "Cannot set attribute 'identity' in CREATE"),
        ({"name": "other"}, "Conflicting values for 'name'"),
        ({"http": "perhaps"}, "Invalid value for attribute 'http'"),
    ],
)
def test_refusals_of_listeners(management: Management, body: dict[str, Any], text: str) -> None:
    status, description, returned = management.call("CREATE", body, type=LISTENER, name="bad")
    assert status == 400 and description.startswith(text), description
    assert returned == {}


def test_a_connection_is_dropped_by_its_admin_status(router: RouterProcess, management: Management) -> None:
    victim = router.connect()
    container = victim.container.container_id
    kind = PREFIX + "connection"
    row = next(row for row in management.query(kind) if row["container"] == container)
    assert row["role"] == "normal" and row["dir"] == "in" and row["opened"] is True and row["sasl"] == "ANONYMOUS"
    identity = row["identity"]
    assert management.call("UPDATE", {}, type=kind, identity=identity)[0] == 400
    assert management.call("UPDATE", {"adminStatus": "sleepy"}, type=kind, identity=identity)[0] == 400
    assert management.call("UPDATE", {"adminStatus": "enabled"}, type=kind, identity=identity)[0] == 200
    assert management.call("UPDATE", {"adminStatus": "deleted"}, type=kind, identity="999999")[0] == 400
    status, _, shown = management.call("UPDATE", {"adminStatus": "deleted"}, type=kind, identity=identity)
    assert status == 200 and shown["adminStatus"] == "deleted"
    with pytest.raises(ConnectionException):
        victim.wait(lambda: False)
    wait_for(lambda: all(row["identity"] != identity for row in management.query(kind)))


def test_a_client_whose_connection_an_administrator_closes_is_told(
    router: RouterProcess, management: Management
) -> None:
    victim = router.connect()
    container, kind = victim.container.container_id, PREFIX + "connection"
    identity = next(row["identity"] for row in management.query(kind) if row["container"] == container)
    assert management.call("UPDATE", {"adminStatus": "deleted"}, type=kind, identity=identity)[0] == 200
    with pytest.raises(ConnectionClosed, match=r"amqp:connection:forced.*closed by an administrator"):
        victim.wait(lambda: False)


def test_link_and_address_rows_count_deliveries(router: RouterProcess, management: Management) -> None:
    connection = router.connect()
    receiver = connection.create_receiver("test/counted", name="counted-receiver", credit=10)
    sender = connection.create_sender("test/counted", name="counted-sender")
    for _ in range(3):
        delivery = post(sender, Message(body="x"))
        receiver.receive()
        receiver.accept()
        connection.wait(lambda: delivery.settled)

    def settled() -> bool:
        return bool(management.one(PREFIX + "router.link", "counted-receiver")["acceptedCount"] == 3)

    wait_for(settled)
    out = management.one(PREFIX + "router.link", "counted-receiver")
    into = management.one(PREFIX + "router.link", "counted-sender")
    for row, direction in ((out, "out"), (into, "in")):
        assert row["owningAddr"] == "M0test/counted"
        assert row["linkDir"] == direction and row["linkType"] == "endpoint"
        assert (row["deliveryCount"], row["acceptedCount"], row["unsettledCount"]) == (3, 3, 0)
    address = management.one(PREFIX + "router.address", "M0test/counted")
    assert (address["deliveriesIngress"], address["deliveriesEgress"]) == (3, 3)
    assert (address["subscriberCount"], address["distribution"], address["inProcess"]) == (1, "balanced", 0)
    before = management.query(PREFIX + "router")[0]
    connection.close()

    def gone() -> bool:
        return all(row["key"] != "M0test/counted" for row in management.query(PREFIX + "router.address"))

    wait_for(gone)
    assert management.query(PREFIX + "router")[0]["deliveriesIngress"] >= before["deliveriesIngress"]


def test_inter_router_connectors_are_kept_and_reported(router: RouterProcess, management: Management) -> None:
    row = _connector(management, router.port)
    wanted = ("inter-router", "127.0.0.1", str(router.port), False)
    assert (row["role"], row["host"], row["port"], row["verifyHostname"]) == wanted
    management.clear("t-", CONNECTOR)


def test_a_connector_is_not_shown_as_connected_before_it_is(management: Management) -> None:
    assert _connector(management, free_port())["connectionStatus"] in ("CONNECTING", "FAILED")
    management.clear("t-", CONNECTOR)


def test_a_connector_is_deleted_while_its_peer_is_not_there(management: Management) -> None:
    for role in ("inter-router", "route-container"):
        _connector(management, free_port(), role)
        management.clear("t-", CONNECTOR)
    assert management.query(CONNECTOR) == []


def _connector(management: Management, port: int, role: str = "inter-router") -> dict[str, Any]:
    management.create(CONNECTOR, "t-other", role=role, host="127.0.0.1", port=str(port), verifyHostName="no")
    return management.one(CONNECTOR, "t-other")


@pytest.mark.parametrize("role", ["inter-router", "edge"])
def test_a_standalone_router_refuses_what_only_a_mesh_could_use(role: str) -> None:
    process = RouterProcess([], mode="standalone")
    management = process.management()
    try:
        for kind in (CONNECTOR, LISTENER):
            body = {"role": role, "host": "127.0.0.1", "port": "1"}
            status, text, _ = management.call("CREATE", body, type=kind, name="mesh")
            assert status == 400
            assert f"role {role} needs a router of mode interior; this one is standalone" in text
            assert all(row["name"] != "mesh" for row in management.query(kind))
    finally:
        management.close()
        process.stop()


def test_a_query_of_everything_has_the_router_itself(router: RouterProcess, management: Management) -> None:
    status, _, body = management.call("QUERY", {"attributeNames": []})
    rows = [dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]]
    routers = [row for row in rows if row["type"] == PREFIX + "router"]
    assert status == 200
    assert [row["id"] for row in routers] == [router.id] and routers[0]["mode"] == "interior"
    assert {row["type"] for row in rows} >= {LISTENER, PREFIX + "log", PREFIX + "router.node"}


def test_when_the_last_delivery_was_is_not_known_before_there_was_one(
    router: RouterProcess, management: Management, address: str
) -> None:
    busy, idle = router.connect(), router.connect()
    receiver = busy.create_receiver(address, credit=1)
    post(busy.create_sender(address), Message(body="x"))
    receiver.receive()
    idle.create_receiver(address, credit=1)

    def seconds(connection: BlockingConnection) -> Any:
        rows = management.query("connection", "container", "lastDlvSeconds", "uptimeSeconds")
        return next(r for r in rows if r["container"] == connection.container.container_id)

    wait_for(lambda: seconds(busy)["lastDlvSeconds"] is not None, "the router has looked")
    wait_for(lambda: seconds(idle)["uptimeSeconds"] > 2, "it has looked at the other one too")
    assert seconds(idle)["lastDlvSeconds"] is None
    busy.close()
    idle.close()


def test_presettled_deliveries_that_are_dropped_are_counted_as_presettled(
    router: RouterProcess, management: Management, address: str
) -> None:
    connection, slow = router.connect(), router.connect()
    receiver = slow.create_receiver(address, name="dropping", credit=0)
    sender = connection.create_sender(address)
    for i in range(300):  # 250 wait for the receiver at most
        post(sender, Message(body=i), settled=True)

    def counted() -> bool:
        return bool(management.one("router.link", "dropping")["droppedPresettledCount"] == 50)

    wait_for(counted)
    row = management.one("router.link", "dropping")
    assert (row["presettledCount"], row["undeliveredCount"]) == (50, 250)
    receiver.flow(250)
    assert receiver.receive().body == 50
    wait_for(lambda: management.one("router.link", "dropping")["presettledCount"] == 300)
    connection.close()
    slow.close()


def test_a_query_of_many_rows_comes_whole(management: Management) -> None:
    for i in range(700):  # many frames
        management.create(ADDRESS, f"many{i}", pattern=f"many/{i}")
    rows = [row for row in management.query(ADDRESS) if row["name"].startswith("many")]
    assert len(rows) == 700
    assert [row["pattern"] for row in rows] == [f"many/{i}" for i in range(700)]
    for i in range(700):
        management.delete(ADDRESS, f"many{i}")


@pytest.mark.parametrize(
    "body", [{"attributeNames": ["name"] * 251}, {"attributeNames": "name"}, ["attributeNames"], None, 7]
)
def test_odd_queries_are_answered(management: Management, body: Any) -> None:
    status, _, _ = management.call("QUERY", body, entityType=ADDRESS)
    assert status == (400 if isinstance(body, dict) else 200)


def test_what_is_no_request_does_no_harm(router: RouterProcess, management: Management) -> None:
    connection = router.connect()
    sender = connection.create_sender("$management")
    for garbage in (b"", b"\x00", b"\xff" * 100, b"\x00\x53\x74\xc1\xff\xff", b"\x00" * 5000):
        delivery = sender.link.delivery(sender.link.delivery_tag())
        sender.link.stream(garbage)
        sender.link.advance()
        connection.wait(lambda: delivery.settled)
    sender.send(Message(properties={"operation": "QUERY"}, reply_to="nowhere", body={}))
    sender.send(Message(properties={"operation": "QUERY"}, body={}))
    assert management.call("GET-MGMT-NODES")[0] == 200
    connection.close()
