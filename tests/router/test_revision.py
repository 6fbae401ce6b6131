"""The revision that a router states: as long as it is the same, an agent that asks again finds the same entities, in
the same states, and the same receivers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proton import Message
from proton.utils import BlockingConnection

from services.router.management.node import ManagementAgent
from services.router.management.runtime import core_tables
from services.router.management.schema import NODE
from services.router.mesh.control_messages import NEIGHBOUR, Envelope, Hello
from tests.router.harness import (
    ADDRESS,
    AUTO_LINK,
    CONNECTOR,
    LINK_ROUTE,
    LISTENER,
    PREFIX,
    Broker,
    Management,
    RouterProcess,
    free_port,
    post,
    wait_for,
)
from tests.router.world import World

COLUMNS: dict[str, tuple[str, ...]] = {
    ADDRESS: ("name", "pattern", "distribution"),
    AUTO_LINK: ("name", "operStatus", "lastError"),
    LINK_ROUTE: ("name", "operStatus"),
    CONNECTOR: ("name", "connectionStatus", "connectionMsg"),
    LISTENER: ("name", "port", "operStatus"),
    PREFIX + "router.address": ("key", "subscriberCount"),
}


def seen(management: Management) -> Any:
    return [management.query(kind, *names) for kind, names in COLUMNS.items()]


def revision(management: Management) -> str:
    status, _, body = management.call("GET-REVISION")
    assert status == 200
    return str(body)


class Watch:
    """What an agent sees that asks as long as the revision changes."""

    def __init__(self, management: Management) -> None:
        self._management = management
        self.revision = ""
        self.look()

    def look(self) -> None:
        self.revision = revision(self._management)
        self.seen = seen(self._management)

    def after(self, event: Callable[[], Any]) -> Any:
        """Wait until the event shows; by then, the revision is another one."""
        result = event()
        wait_for(lambda: seen(self._management) != self.seen, "it shows")
        assert revision(self._management) != self.revision
        self.look()
        return result


def test_revision_is_another_one_after_each_change_that_shows(router: RouterProcess, management: Management) -> None:
    watch = Watch(management)
    after = watch.after
    after(lambda: management.create(ADDRESS, "rev", pattern="rev/#", waypoint=True))
    client = router.connect()
    receiver = after(lambda: client.create_receiver("test/rev"))
    after(receiver.close)
    created = {"address": "rev/q", "direction": "in", "containerId": "rev-broker"}
    after(lambda: management.create(AUTO_LINK, "rev-in", **created))
    after(lambda: management.create(LINK_ROUTE, "rev-route", prefix="rev-t", direction="in", containerId="rev-broker"))
    broker = Broker("rev-broker")
    try:
        at = {"host": "127.0.0.1", "role": "route-container"}
        after(lambda: management.create(CONNECTOR, "rev-dial", port=str(broker.port), **at))
        wait_for(lambda: management.one(AUTO_LINK, "rev-in")["operStatus"] == "active", "the auto-link is active")
        watch.look()
        broker.refuse["rev/q"] = "amqp:not-found"
        after(lambda: broker.take_away("rev/q", sender=True, condition="amqp:not-found", description="gone"))
        after(broker.drop_connections)
        after(lambda: management.delete(CONNECTOR, "rev-dial"))
        after(lambda: management.create(CONNECTOR, "rev-none", port=str(free_port()), **at))
        after(lambda: management.delete(CONNECTOR, "rev-none"))
        after(lambda: management.create(LISTENER, "rev-port", host="127.0.0.1", port=str(free_port())))
        after(lambda: management.delete(LISTENER, "rev-port"))
    finally:
        broker.stop()
        client.close()
        for kind, name in ((AUTO_LINK, "rev-in"), (LINK_ROUTE, "rev-route"), (ADDRESS, "rev")):
            management.delete(kind, name)


def test_revision_stays_while_messages_pass(router: RouterProcess, management: Management, address: str) -> None:
    client: BlockingConnection = router.connect()
    receiver, sender = client.create_receiver(address, credit=10), client.create_sender(address)
    before = revision(management)
    for number in range(10):
        post(sender, Message(number))
        receiver.receive()
        receiver.accept()
    assert revision(management) == before == revision(management)
    client.close()


def test_revision_is_another_one_when_a_path_leads_to_a_neighbour() -> None:
    """A neighbour shows when paths were looked for after its HELLO, a moment later."""
    world = World()
    engine = world.router.network.engine
    agent = ManagementAgent(world.router, core_tables(world.router, {}))
    nodes = agent.tables[NODE.name]
    engine.link_opened(1, 1, 0.0)
    engine.take(1, Envelope(NEIGHBOUR, Hello("other", 7, (engine.own,)), ("other",)), 0.0)
    assert engine.neighbours.routers() == ["other"] and [row.id for row in nodes.rows()] == [engine.own]
    heard = agent._revision()
    engine.tick(0.25)
    assert [row.link for row in nodes.rows()] == [None, 1] and agent._revision() != heard
