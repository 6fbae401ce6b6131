"""maxMessageSize of policy, vhost and group: the narrowest that is given counts, however many frames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Delivery, Message
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection, BlockingSender, LinkDetached

from tests.router.harness import (
    DEADLINE,
    LINK_ROUTE,
    PREFIX,
    SILENCE,
    Broker,
    Management,
    RouterProcess,
    comes,
    free_port,
    idle,
    outcome_of,
    post,
    pump,
    wait_for,
)

ALL: dict[str, Any] = {
    "users": "*",
    "sources": "*",
    "targets": "*",
    "allowAnonymousSender": True,
    "allowDynamicSource": True,
}
GROUP, VHOST, POLICY = 1000, 2000, 3000
SIZES = {"by-group": GROUP, "by-vhost": VHOST, "by-policy": POLICY, "free": 0}


class Ports(RouterProcess):
    """A router with a listener for each vhost of SIZES."""

    ports: dict[str, int]

    def __init__(self) -> None:
        self.ports = {name: free_port() for name in SIZES}
        groups = {"by-group": {"maxMessageSize": GROUP}, "by-vhost": {}, "by-policy": {}, "free": {"maxMessageSize": 0}}
        vhosts = [
            [
                "vhost",
                {
                    "hostname": name,
                    "maxMessageSize": None if name == "by-policy" else VHOST,
                    "groups": {"all": {**ALL, **group}},
                },
            ]
            for name, group in groups.items()
        ]
        listeners = [
            [
                "listener",
                {
                    "name": name,
                    "host": "127.0.0.1",
                    "port": port,
                    "policyVhost": name,
                    "idleTimeoutSeconds": SILENCE,
                },
            ]
            for name, port in self.ports.items()
        ]
        policy = ["policy", {"enableVhostPolicy": True, "maxMessageSize": POLICY, "defaultVhost": "free"}]
        multicast = ["address", {"prefix": "all", "distribution": "multicast"}]
        super().__init__([policy, *vhosts, *listeners, multicast], default="balanced")

    def dial(self, vhost: str) -> BlockingConnection:
        return BlockingConnection(f"127.0.0.1:{self.ports[vhost]}", timeout=DEADLINE)


@pytest.fixture(scope="module")
def sized() -> Iterator[Ports]:
    process = Ports()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def inside(sized: Ports) -> Iterator[BlockingConnection]:
    """A client without limits, for the receivers."""
    connection = sized.dial("free")
    yield connection
    connection.close()


def of_size(size: int, address: str | None = None) -> Message:
    """A message of exactly so many bytes."""
    message = Message(address=address, body=b"x" * size)
    message.body = b"x" * (2 * size - len(message.encode()))
    assert len(message.encode()) == size
    return message


def closed(sender: BlockingSender) -> str:
    """The condition with which the router takes a sender away."""
    with pytest.raises(LinkDetached) as detached:
        sender.connection.wait(lambda: False, msg="the detach")
    return str(detached.value.condition)


@pytest.mark.parametrize("vhost", list(SIZES))
@pytest.mark.parametrize("frames", ["one", "many"])
def test_up_to_the_limit_and_not_beyond(sized: Ports, inside: BlockingConnection, vhost: str, frames: str) -> None:
    address = f"size/{vhost}/{frames}"
    connection = sized.dial(vhost)
    receiver = inside.create_receiver(address, credit=10)
    sender = connection.create_sender(address)
    limit = SIZES[vhost]
    assert sender.link.remote_max_message_size == limit
    post(sender, of_size(limit or 5000))
    assert len(receiver.receive().body) > 900
    receiver.accept()
    try:
        too_large = sender.link.send(of_size((limit or 5000) + 1 if frames == "one" else 200_000))
        if not limit:
            comes(receiver, "the message without a limit", connection)
            receiver.receive()
            receiver.accept()
            pump(inside)
            assert outcome_of(connection, too_large) == Delivery.ACCEPTED
            return
        assert closed(sender) == "amqp:link:message-size-exceeded"
        assert too_large.settled and too_large.remote_state == Delivery.REJECTED
        assert too_large.remote.condition.name == "amqp:link:message-size-exceeded"
        again = connection.create_sender(address, name="again")  # only the link is lost
        post(again, Message(body="small"))
        assert receiver.receive().body == "small"
        receiver.accept()
    finally:
        receiver.close()
        connection.close()


@pytest.mark.parametrize("kind", ["relay", "multicast", "settled", "management"])
@pytest.mark.parametrize("size", [1001, 100_000])
def test_by_whatever_link_it_comes(sized: Ports, inside: BlockingConnection, kind: str, size: int) -> None:
    address = {"multicast": "all/x", "management": "$management"}.get(kind, f"by/{kind}")
    connection = sized.dial("by-group")
    receivers = [
        inside.create_receiver("all/x" if kind == "multicast" else f"by/{kind}", credit=10, name=f"r{i}")
        for i in range(2)
    ]
    if kind == "relay":
        sender = connection.create_sender(None)
    else:
        sender = connection.create_sender(address, options=AtMostOnce() if kind == "settled" else None)
    connection.wait(lambda: sender.link.credit > 0)
    delivery = sender.link.send(of_size(size, address))
    if kind == "settled":
        delivery.settle()
    assert closed(sender) == "amqp:link:message-size-exceeded"
    if kind != "settled":
        assert delivery.remote_state == Delivery.REJECTED
    idle(inside)
    assert not any(receiver.fetcher.incoming for receiver in receivers)
    for receiver in receivers:
        receiver.close()
    connection.close()


def test_on_a_routed_link(sized: Ports, broker: Broker) -> None:
    management = Management(f"127.0.0.1:{sized.ports['free']}")
    management.create(PREFIX + "connector", "b", host="127.0.0.1", port=str(broker.port), role="route-container")
    management.create(LINK_ROUTE, "routed", prefix="routed", direction="in", containerId="b0")
    wait_for(lambda: management.one(LINK_ROUTE, "routed")["operStatus"] == "active")
    connection = sized.dial("by-group")
    sender = connection.create_sender("routed")
    assert sender.link.remote_max_message_size == GROUP
    assert outcome_of(connection, post(sender, of_size(GROUP))) == Delivery.ACCEPTED
    too_large = sender.link.send(of_size(GROUP + 1))  # `post` may already meet the detach
    assert closed(sender) == "amqp:link:message-size-exceeded"
    assert too_large.remote_state == Delivery.REJECTED
    assert len(broker.stored["routed"]) == 1
    connection.close()
    management.delete(LINK_ROUTE, "routed")
    management.delete(PREFIX + "connector", "b")
    management.close()


def test_what_was_refused_is_counted(sized: Ports) -> None:
    management = Management(f"127.0.0.1:{sized.ports['free']}")
    before = management.query(PREFIX + "policy")[0]["maxMessageSizeDenied"]
    connection = sized.dial("by-group")
    receiver = connection.create_receiver("counted", credit=1)
    sender = connection.create_sender("counted")
    sender.link.send(of_size(GROUP + 1))
    assert closed(sender) == "amqp:link:message-size-exceeded"
    assert management.query(PREFIX + "policy")[0]["maxMessageSizeDenied"] == before + 1
    receiver.close()
    connection.close()
    management.close()
