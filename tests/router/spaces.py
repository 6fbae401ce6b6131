"""A router and a broker in memory, with clients of several address spaces: equal names everywhere."""

from __future__ import annotations

from itertools import count
from typing import Any

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Rejected, Source, Target
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.messages.message import Message
from enmasse.amqp.termini import SPACE
from enmasse.identity.login import SPACES
from enmasse.identity.principal import Principal
from enmasse.model.names import DEFAULT_SPACE, LocalName, full_name
from services.router.routing.configuration import AddressConfig, AutoLinkConfig, LinkRouteConfig
from services.router.routing.connection import RouterConnection
from services.router.routing.handler import RouterHandler
from services.router.routing.router import Router
from services.router.routing.space_connections import SpaceConnections
from tests.broker.sansio import Core, broker_connection
from tests.router.test_settlement import Wire
from tests.router.world import Clock

NAMES = ("queue", "news", "cast", "multi")
"""Addresses of each space: a queue, a topic, anycast, multicast."""


class Client(Handler):
    """A client: what its links have been told, and what has come."""

    def __init__(self, world: World, space: str, container: str) -> None:
        self.world = world
        self.space = space
        self.got: list[Any] = []
        self.annotations: list[dict[Any, Any]] = []
        self.rejects: Any = None
        """Outcome of what comes; None: it is accepted."""
        self.replies: list[str | None] = []
        self.errors: dict[Link, AmqpError | None] = {}
        self.states: dict[int, Any] = {}
        self.record = RouterConnection(world.router, name=None, role="normal", direction="in", host="1:1", capacity=250)
        self.record.management = False
        far = Connection(RouterHandler(world.router), container_id="r", is_client=False)
        far.context, self.record.amqp = self.record, far
        self.record.enter(Principal("alice", space=space))
        self.connection = Connection(self, container_id=container, is_client=True)
        self.wire = Wire(self.connection, far)
        world.wires.append(self.wire)
        self.connection.open()
        world.run()
        self.session = self.connection.begin()

    def leave(self) -> None:
        self.connection.close()
        self.world.run()

    def receiver(self, address: str | None, name: str | None = None, **source: Any) -> Receiver:
        terminus = None if address is None and not source else Source(address=address, **source)
        link = self.session.attach_receiver(name, terminus, Target())
        link.grant(20)
        self.world.run()
        return link

    def sender(self, address: str | None, name: str | None = None, properties: Any = None, **target: Any) -> Sender:
        link = self.session.attach_sender(name, Source(), Target(address=address, **target), properties=properties)
        self.world.run()
        return link

    def send(self, link: Sender, body: Any, **fields: Any) -> Any:
        """Send a message, and return its outcome."""
        number = next(self.world.numbers)
        link.send(Message(body, **fields).encode(), number)
        self.world.run()
        return self.states.get(number)

    def refused(self, link: Link) -> AmqpError | None:
        """Return why the router has refused, or ended, a link; None: it has not."""
        return self.errors.get(link)

    def take(self) -> list[Any]:
        taken, self.got = self.got, []
        return taken

    # what the engine reports
    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        message = Message.decode(payload)
        self.got.append(message.body)
        self.replies.append(message.reply_to)
        self.annotations.append(dict(message.annotations))
        if not settled:
            link.session.settle(delivery_id, self.rejects or ACCEPTED)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        self.states.update(dict.fromkeys(tokens, state))

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        self.errors[link] = error


class Dialled:
    """A connection of the router to the broker."""

    def __init__(self, world: World, space: str) -> None:
        self.record = world.connect(space)
        self.stopped = False
        world.dialled[space] = self

    @property
    def links(self) -> int:
        return len(self.record.links)

    def stop(self) -> None:
        self.stopped = True
        self.record.amqp.close()


class World:
    """A router with a broker. `spaces` have the addresses NAMES each; `knows_spaces`: the broker does; `apart`: the
    router has further connections to it by space."""

    def __init__(self, *spaces: str, knows_spaces: bool = True, apart: bool = False) -> None:
        self.wires: list[Wire] = []
        self.clock = Clock()
        self.router = Router("r", self.clock, default="unavailable")
        self.core = Core()
        self.numbers = count()
        self._identities = count(1)
        self.offered = ("ANONYMOUS-RELAY", *((SPACES,) if knows_spaces else ()))
        self.dialled: dict[str, Dialled] = {}
        """The connections to the broker, by the space that they were opened for."""
        self.spaces = SpaceConnections(lambda space: Dialled(self, space), self.clock) if apart else None
        Dialled(self, DEFAULT_SPACE)
        for space in spaces:
            self._configure(space)
        self.run()

    def tenant_at_broker(self, space: str) -> str:
        """Return with whose connections the broker counts the one that was opened for a space."""
        far = self.dialled[space].record.amqp
        return next(wire.near.tenant for wire in self.wires if wire.far is far)

    def connect(self, space: str) -> RouterConnection:
        """Return the router's end of a connection to the broker, as a connector makes it for a space."""
        handler, near = broker_connection(
            self.core.broker, lambda go_on, _: self.clock.call_soon(go_on),
            is_client=True, offered_capabilities=self.offered,
        )  # fmt: skip
        handler.client.router = True
        handler._is_router = lambda c, opened: True  # type: ignore[method-assign]  # the test's router states no product
        kind = "route-container"
        record = RouterConnection(self.router, name=None, role=kind, direction="in", host="1:1", capacity=250)
        far = Connection(RouterHandler(self.router), container_id="r", is_client=False)
        if space != DEFAULT_SPACE:
            far.open_fields.properties = {SPACE: space}
        record.spaces, record.carried = self.spaces, space
        far.context, record.amqp = record, far
        near.open()
        self.wires.append(Wire(near, far))
        return record

    def _configure(self, space: str) -> None:
        queue, news, cast, multi, dead = (full_name(space, LocalName(name)) for name in (*NAMES, "dead"))
        router = self.router
        self.core.queue(queue)
        self.core.queue(dead)
        self.core.broker.catalogue.put_settings(queue, {"DLA": dead, "maxDeliveryAttempts": 1})
        router.add_address_config(
            AddressConfig(next(self._identities), dead, pattern=dead, ingress_phase=0, egress_phase=1)
        )
        router.auto_links.add(AutoLinkConfig(next(self._identities), f"{dead}-in", dead, "in", container_id="b"))
        self.core.broker.catalogue.create_address(news, frozenset({"MULTICAST"}))
        router.add_address_config(
            AddressConfig(next(self._identities), queue, pattern=queue, ingress_phase=0, egress_phase=1)
        )
        for direction in ("in", "out"):
            router.auto_links.add(
                AutoLinkConfig(next(self._identities), f"{queue}-{direction}", queue, direction, container_id="b")
            )
            route = f"{news}-{direction}"
            router.link_routes.add(
                LinkRouteConfig(next(self._identities), route, direction, prefix=news, container_id="b")
            )
        router.add_address_config(AddressConfig(next(self._identities), cast, pattern=cast))
        router.add_address_config(AddressConfig(next(self._identities), multi, pattern=multi, treatment="multicast"))

    def client(self, space: str = DEFAULT_SPACE, container: str = "c") -> Client:
        return Client(self, space, container)

    def run(self) -> None:
        for _ in range(1000):
            busy = [wire.pump() for wire in self.wires] + [bool(self.clock.soon)]
            self.clock.run()
            self.core.broker.run_pending(lambda: False)
            self.core.commit()
            if not any(busy):
                return
        raise AssertionError("they never fall silent")


def reason(state: Any) -> str:
    """Return condition and description of a rejection."""
    assert isinstance(state, Rejected) and state.error is not None, state
    return f"{state.error.condition}: {state.error.description}"
