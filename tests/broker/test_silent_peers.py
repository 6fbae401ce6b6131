"""Peers of the broker that fall silent: what a process of the suite has not acknowledged is soon given to another
consumer. The clock is a number."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.sasl.layer import ExternalClient, SaslClient
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.roles import TABLE, Listener, Role
from tests.broker.sansio import Core, broker_connection, taken

COUNT = 5
STEP_MS = 100
SOON_MS, LONG_MS, LATE_MS = 12_000, 50_000, 5_000


class Peer:
    """A connection to a broker, without heartbeats unless it is ticked: of a process with this role, or of anybody."""

    def __init__(self, core: Core, role: Role | None = None, **opened: Any) -> None:
        admission = None
        if role is not None:
            subject = ((("commonName", f"{role}/{role}-0"),),)
            admission = PeerCheck(Listener.BROKER, None, "127.0.0.1:1", {"subject": subject})
            opened["sasl"] = SaslClient([ExternalClient()])
        sasl = None if admission is None else admission.sasl()
        _, self.broker = broker_connection(
            core.broker, lambda go_on, _: go_on(), admission=admission, is_client=False, sasl=sasl
        )
        self.own = Connection(Handler(), container_id="peer", is_client=True, idle_timeout_ms=0, **opened)
        self.own.open()
        self.pump()

    def pump(self) -> None:
        for _ in range(8):
            self.broker.receive(self.own.take_output())
            self.own.receive(self.broker.take_output())

    def is_gone_within(self, milliseconds: int) -> bool:
        """Return whether the broker gives the silent peer up in this time."""
        return any(self.broker.tick(now) is None for now in range(0, milliseconds, STEP_MS))


ROUTERS = {
    "authenticated": partial(Peer, role=Role.ROUTER),
    "stated": partial(Peer, properties={Symbol("product"): "qpid-dispatch-router"}),
}
TOOLS = {"authenticated": partial(Peer, role=Role.OPERATOR), "anonymous": partial(Peer)}
PROCESSES = [role for role in TABLE[Listener.BROKER] if role is not Role.OPERATOR]


@pytest.mark.parametrize("router", ROUTERS)
def test_what_a_silent_router_has_is_soon_given_to_another_consumer(router: str) -> None:
    """A session's queue has one consumer at most."""
    core = Core()
    queue = core.queue("$sub/b/mqtt.c@s", max_consumers=1)
    for number in range(COUNT):
        core.send(number, queue.name)
    peer = ROUTERS[router](core)
    link = peer.own.begin().attach_receiver("r", Source(address=queue.name), Target())
    link.grant(COUNT)
    peer.pump()
    assert link.deliveries == queue.count == COUNT and len(queue.consumers) == 1
    assert peer.is_gone_within(SOON_MS)
    assert not queue.consumers
    assert taken(core.consumer(queue, COUNT)) == [*range(COUNT)]


@pytest.mark.parametrize("role", PROCESSES)
def test_a_silent_process_of_the_suite_is_soon_given_up(role: Role) -> None:
    assert Peer(Core(), role).is_gone_within(SOON_MS)


@pytest.mark.parametrize("role", PROCESSES)
def test_a_process_that_is_late_because_it_is_busy_keeps_its_connection(role: Role) -> None:
    peer = Peer(Core(), role)
    for now in range(0, LONG_MS, STEP_MS):
        if now % (2 * LATE_MS) >= LATE_MS:
            peer.own.tick(now)
        peer.pump()
        peer.broker.tick(now)
    assert peer.broker.state == "open"


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_without_heartbeats_keeps_its_connection_for_long(tool: str) -> None:
    assert not TOOLS[tool](Core()).is_gone_within(LONG_MS)
