"""Three routers, two MQTT gateways and a broker, each at a node of its own, while one router after the other is cut off
from all other nodes: nothing acknowledged is lost, and nothing comes twice where once is promised. The tests print the
longest gap of the clients that are at other routers (`pytest -s`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from proton.utils import BlockingConnection

from enmasse.aio.client import Client, connect
from enmasse.identity.processes.roles import Role
from enmasse.supervisor.plan.credential_issuer import CredentialIssuer
from enmasse.supervisor.plan.services import CREDENTIAL, PEERS
from tests.broker.harness import Management
from tests.configserv.running import FLAVORS
from tests.kit.network import Network, Node, network
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until, wait_for
from tests.network.starting import AMQP, HEALTH, begin, health, start
from tests.system.flows import ROUTERS, flow_while, once_while
from tests.system.roaming import Roamer

pytestmark = [pytest.mark.needs("ip"), pytest.mark.slow]

SERVICES, MESH, MQTT = 5674, 55672, 1883
CONFIGSERV, RAGENT = 5000, 5001
ADDRESSES = {
    "orders": {"type": "queue", "flavor": "q"},
    "news": {"type": "topic", "flavor": "t"},
    "direct": {"type": "anycast"},
    "all": {"type": "multicast"},
}
SLOW = 1_000_000
"""Bits a second of a slow link: less than what passes."""


class DeviceAtNode(Roamer):
    """An MQTT client whose sockets are those of a node."""

    def __init__(self, node: Node, name: str, port: int, *, host: str) -> None:
        super().__init__(name, port, host=host)
        self._node = node
        make = self.client._create_socket_connection

        def inside() -> Any:  # paho makes them in a thread of its own
            with node.inside():
                return make()

        self.client._create_socket_connection = inside

    def end(self) -> None:
        with self._node.inside():
            super().end()


class Nodes:
    """The nodes. `control`: that of all services without messages of clients."""

    def __init__(self, net: Network, folder: Path) -> None:
        self.net = net
        self.client, self.control, self.broker = (net.node(name) for name in ("client", "control", "broker"))
        self.routers = {name: net.node(name) for name in ROUTERS}
        self.gateways = [net.node(f"gateway-{number}") for number in range(2)]
        self._folder = folder

    def start(self) -> None:
        """Start everything, and wait until clients are served."""
        folder, broker, control = self._folder, self.broker, self.control
        config = folder / "config"
        config.mkdir()
        placed = {"broker": {"host": broker.address, "port": AMQP, "flavors": [*FLAVORS]}}
        for file, content in (("addresses", ADDRESSES), ("flavors", FLAVORS), ("brokers", placed)):
            (config / f"{file}.json").write_text(json.dumps(content))
        start(broker, "broker", folder, listen=f"{broker.address}:{AMQP}", data_dir=str(folder / "data"))
        self._make_addresses()
        configserv, ragent = (f"{control.address}:{port}" for port in (CONFIGSERV, RAGENT))
        waits = [
            begin(
                control, "configserv", folder, "configserv", listen=configserv, config_dir=str(config),
                data_dir=str(folder / "configserv"), reporters=["ragent"], binders=["subserv"],
                holders=["subserv", "mqtt_lwt"],
            ),
            begin(
                control, "ragent", folder, "ragent", HEALTH + 1, listen=ragent, configserv=configserv, mqtt=True,
                listeners=[{"name": "amqp", "host": "0.0.0.0", "port": AMQP}],
                static=["ragent", "services", "inter-router"],
            ),
        ]  # fmt: skip
        issuer = CredentialIssuer(folder / "run", lambda _: {})
        for name in self.routers:
            issuer.issue(name, Role.ROUTER)
        for name, node in self.routers.items():
            own: dict[str, Any] = {
                "credential": str(folder / "run" / f"{name}{CREDENTIAL}"),
                "peers": str(folder / "run" / PEERS),
            }
            waits.append(begin(node, "router", folder, entities=self._entities(name, node), client_ports=[AMQP], **own))
        routed: dict[str, Any] = {"configserv": configserv, "router": self._routers(0)}
        for number, name in enumerate(("subserv", "mqtt_lwt"), start=2):
            store = {"kind": "sqlite", "path": str(folder / f"{name}.db")}
            waits.append(begin(control, name, folder, name, HEALTH + number, store=store, **routed))
        for number, node in enumerate(self.gateways):
            listeners = [{"kind": "mqtt", "host": node.address, "port": MQTT, "shared": False}]
            routed["router"] = self._routers(number)
            waits.append(begin(node, "mqtt_gateway", folder, listeners=listeners, **routed))
        for wait in waits:
            wait()
        wait_for(self.are_whole, "all routers are neighbours")

    def _make_addresses(self) -> None:
        with self.client.inside():
            connection = BlockingConnection(f"{self.broker.address}:{AMQP}", timeout=DEADLINE, heartbeat=0)
        manage = Management(connection)
        manage.queue("orders")
        manage("createAddress", "news", "MULTICAST")
        connection.close()

    def _entities(self, name: str, node: Node) -> list[list[Any]]:
        agent = {"name": "ragent", "host": self.control.address, "port": str(RAGENT), "role": "normal"}
        services = {"name": "services", "port": str(SERVICES), "role": "route-container", "idleTimeoutSeconds": 8}
        mesh = {"name": "inter-router", "port": str(MESH), "role": "inter-router", "access": "inter-router"}
        proof = {"saslMechanisms": "SCRAM-SHA-256", "authenticatePeer": True}
        return [
            ["router", {"id": name, "mode": "interior", "defaultDistribution": "unavailable"}],
            ["connector", agent],
            ["listener", {"host": node.address, "management": False, **services}],
            ["listener", {"host": node.address, **mesh, **proof}],
        ]

    def _routers(self, first: int) -> list[str]:
        names = [*ROUTERS[first:], *ROUTERS[:first]]
        return [f"{self.routers[name].address}:{SERVICES}" for name in names]

    def are_whole(self) -> bool:
        """Return True if each router reaches the others."""
        found = {name: health(node).get("routes", {}) for name, node in self.routers.items()}
        return all(routes.keys() == set(ROUTERS) - {name} for name, routes in found.items())

    def others(self, victim: Node) -> list[Node]:
        """Return all other nodes."""
        return [node for node in self.net.nodes if node is not victim]

    @asynccontextmanager
    async def at(self, router: str) -> AsyncIterator[Client]:
        """Connect to a router."""
        with self.client.inside():
            client = await connect(f"amqp://{self.routers[router].address}:{AMQP}", timeout=DEADLINE).open(DEADLINE)
        try:
            yield client
        finally:
            await client.close()

    def device(self, name: str, gateway: int) -> DeviceAtNode:
        """Return an MQTT client of a gateway."""
        return DeviceAtNode(self.client, name, MQTT, host=self.gateways[gateway].address)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with network() as net:
        made = Nodes(net, tmp_path_factory.mktemp("nodes"))
        made.start()
        yield made


@contextmanager
def between(begin: Callable[[], object], end: Callable[[], object]) -> Iterator[None]:
    begin()
    try:
        yield
    finally:  # the nodes are those of all tests
        end()


def one_way(nodes: Nodes, victim: Node, *, to: bool) -> AbstractContextManager[None]:
    """Cut what all others send to the victim, or what it sends to them."""
    ends = [(node, victim) if to else (victim, node) for node in nodes.others(victim)]

    def each(change: Callable[[Node, Node], None]) -> None:
        for sender, receiver in ends:
            change(sender, receiver)

    return between(partial(each, nodes.net.cut), partial(each, nodes.net.mend))


HARMS: dict[str, Callable[[Nodes, Node], AbstractContextManager[None]]] = {
    "unplugged": lambda _, victim: between(victim.unplug, victim.plug),
    "deaf": lambda nodes, victim: one_way(nodes, victim, to=True),
    "mute": lambda nodes, victim: one_way(nodes, victim, to=False),
    "slow": lambda _, victim: between(partial(victim.slow, SLOW), victim.quick),
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("victim", ROUTERS)
@asyncio_test
async def test_a_cut_router_costs_no_message(nodes: Nodes, victim: str, harm: str) -> None:
    """Receivers are at the victim and at another router, the sender is at the third one."""
    sending, other = (name for name in ROUTERS if name != victim)
    await until(lambda: asyncio.to_thread(nodes.are_whole), "all routers are neighbours")
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(nodes.at(name)) for name in (sending, other, victim)]
        await flow_while(f"{harm} {victim}", clients, HARMS[harm](nodes, nodes.routers[victim]))


@pytest.mark.parametrize("harm", HARMS)
def test_mqtt_clients_have_everything_once(nodes: Nodes, harm: str) -> None:
    """While each router in turn is cut off, or slow."""

    def harms() -> Iterator[tuple[str, AbstractContextManager[None]]]:
        for victim, node in nodes.routers.items():
            wait_for(nodes.are_whole, "all routers are neighbours")
            yield f"{harm} {victim}", HARMS[harm](nodes, node)

    once_while(nodes.device(f"out-{harm}", 0), nodes.device(f"in-{harm}", 1), harms())
