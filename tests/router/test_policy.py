from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from proton import ConnectionException, Delivery, Message
from proton.utils import BlockingConnection, LinkDetached

from services.router.management.bodies import group_config
from services.router.management.schema import ManagementError
from services.router.routing.policy import Denials, Rights
from tests.router.harness import DEADLINE, PREFIX, SILENCE, Management, RouterProcess, post, wait_for

GROUP: dict[str, Any] = {
    "users": "*",
    "remoteHosts": "127.0.0.0-127.0.0.255",
    "maxSenders": 2,
    "maxReceivers": 2,
    "allowDynamicSource": False,
    "allowAnonymousSender": True,
    "targets": "mine*, exact",
    "sources": "mine*",
    "maxConnectionsPerHost": 3,
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[RouterProcess]:
    """A router with a policy for those who come in by the listener for clients; another listener is free of it."""
    process = RouterProcess(
        [
            ["policy", {"enableVhostPolicy": True, "maxConnections": 8, "defaultVhost": "$default"}],
            ["vhost", {"hostname": "public", "groups": {"everybody": GROUP}}],
            ["vhost", {"hostname": "strict", "groups": {"everybody": GROUP}}],
            [
                "vhost",
                {
                    "hostname": "$default",
                    "groups": {
                        "all": {
                            "users": "*",
                            "remoteHosts": "*",
                            "sources": "*",
                            "targets": "*",
                            "allowDynamicSource": True,
                            "allowAnonymousSender": True,
                        }
                    },
                },
            ],
            ["listener", {"name": "inside", "host": "127.0.0.1", "port": "0", "idleTimeoutSeconds": SILENCE}],
        ],
        default="balanced",
        policyVhost="public",
    )
    try:
        yield process
    finally:
        process.stop()


def refusal(call: Any) -> str:
    with pytest.raises(LinkDetached) as refused:
        call()
    return str(refused.value.condition)


def test_addresses_that_are_not_allowed(guarded: RouterProcess) -> None:
    connection = guarded.connect()
    assert refusal(lambda: connection.create_sender("other")) == "amqp:unauthorized-access"
    assert refusal(lambda: connection.create_receiver("exact")) == "amqp:unauthorized-access"
    assert refusal(lambda: connection.create_receiver(None, dynamic=True)) == "amqp:unauthorized-access"
    assert connection.create_sender("exact").link.remote_target.address == "exact"
    assert connection.create_receiver("mine/1").link.remote_source.address == "mine/1"
    connection.close()


def test_so_many_links_and_no_more(guarded: RouterProcess) -> None:
    connection = guarded.connect()
    senders = [connection.create_sender("mine", name=f"s{i}") for i in range(2)]
    assert refusal(lambda: connection.create_sender("mine", name="s2")) == "amqp:resource-limit-exceeded"
    senders[0].close()
    connection.create_sender("mine", name="s3")
    connection.close()


def test_anonymous_messages_are_checked_one_by_one(guarded: RouterProcess) -> None:
    connection = guarded.connect()
    sender = connection.create_sender(None)
    receiver = connection.create_receiver("mine/x", credit=1)
    allowed = post(sender, Message(address="mine/x"))
    receiver.receive()
    receiver.accept()
    connection.wait(lambda: allowed.settled)
    assert allowed.remote_state == Delivery.ACCEPTED
    refused = post(sender, Message(address="$management", reply_to="mine/x"))
    connection.wait(lambda: refused.settled)
    assert refused.remote_state == Delivery.REJECTED
    assert refused.remote.condition.name == "amqp:unauthorized-access"
    connection.close()


def test_so_many_connections_of_a_host(guarded: RouterProcess) -> None:
    connections: list[BlockingConnection] = []

    def one_more() -> bool:
        """The connections of an earlier test may still be on their way out."""
        try:
            connections.append(guarded.connect())
        except ConnectionException as refused:
            assert "connection disallowed by local policy" in str(refused)
            return False
        return True

    for _ in range(3):
        wait_for(one_more, "as many as are allowed")
    with pytest.raises(ConnectionException, match=r"resource-limit-exceeded.*connection disallowed by local policy"):
        guarded.connect()
    connections.pop().close()
    wait_for(one_more, "another one in the place of one that left")
    for connection in connections:
        connection.close()


def test_the_counters_of_the_policy(guarded: RouterProcess) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{guarded.health_port}/healthz", timeout=DEADLINE) as response:
        inside = json.load(response)["endpoints"]["inside"]
    management = Management(inside)
    before = management.query(PREFIX + "policy")[0]
    assert before["maxConnections"] == 8 and before["enableVhostPolicy"] is True
    assert before["connectionsCurrent"] >= 1
    client = BlockingConnection(inside, timeout=DEADLINE, virtual_host="strict")
    refusal(lambda: client.create_sender("other"))
    client.close()
    many: list[BlockingConnection] = []
    with pytest.raises(ConnectionException, match="resource-limit-exceeded"):
        for _ in range(9):
            many.append(BlockingConnection(inside, timeout=DEADLINE))
    after = management.query(PREFIX + "policy")[0]
    assert after["linksDenied"] == before["linksDenied"] + 1
    assert after["connectionsDenied"] == before["connectionsDenied"] + 1
    for connection in many:
        connection.close()
    management.close()


@pytest.mark.parametrize(
    ("names", "patterns", "address", "allowed"),
    [
        ("*", None, "anything", True),
        ("", None, "a", False),
        ("a, b*", None, "bcd", True),
        ("a, b*", None, "ab", False),
        ("${user}/*", None, "bob/x", True),
        ("${user}/*", None, "eve/x", False),
        (None, "a/#", "a.b", True),
        (None, "${user}.*", "bob/x", True),
        (None, "a/*", "a/b/c", False),
    ],
)
def test_allowed_addresses(names: str | None, patterns: str | None, address: str, allowed: bool) -> None:
    rights = Rights(group_config("v", "g", {"targets": names, "targetPattern": patterns}), "bob", 0, Denials())
    assert rights.may_send(address) is allowed


def test_decoration_of_an_address_is_no_way_around() -> None:
    rights = Rights(group_config("v", "g", {"targets": "mine"}), "", 0, Denials())
    assert rights.may_send("amqp:/mine")
    assert not rights.may_send("amqp:/other")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"maxSender": 1}, "vhost 'v', group 'g': unknown attribute 'maxSender'"),
        ({"maxSenders": "many"}, "vhost 'v', group 'g': Invalid value for attribute 'maxSenders'"),
        ({"maxMessageSize": -1}, "maxMessageSize must not be negative, it is -1"),
        ({"maxSessions": 3}, "maxSessions is not supported by this router; use the listener's"),
        ({"allowUserIdProxy": "no"}, "allowUserIdProxy false is not supported by this router"),
        ({"sources": "a", "sourcePattern": "a/#"}, "give sources or sourcePattern, not both"),
    ],
)
def test_groups_that_are_not_supported_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ManagementError) as refused:
        group_config("v", "g", given)
    assert refused.value.status == 400 and text in str(refused.value)


def test_settings_of_a_group_as_tools_write_them() -> None:
    group = group_config("v", "g", {"sources": ["a", "b*"], "allowDynamicSource": "true", "maxSenders": "3"})
    rights = Rights(group, "", 0, Denials())
    assert rights.may_receive("a") and rights.may_receive("bc") and not rights.may_receive("c")
    assert group.dynamic_sources is True and group.max_senders == 3
