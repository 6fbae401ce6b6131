"""Followers of the live state of routers, brokers and gateways, over one connection to each router and broker."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from enmasse.amqp.termini import SPACE
from enmasse.control import ControlConnection, ControlError, connect, keep_connected_to
from enmasse.control.live_followers import follow
from enmasse.engines.artemis.live import poll_broker
from enmasse.engines.messages.products import ARTEMIS, EMBEDDED, product_at
from enmasse.identity.processes.credentials import AnyCredential
from enmasse.identity.processes.roles import GATEWAYS
from enmasse.live_state import NODE, Merged, Row
from enmasse.model.feeds import BrokerEndpoint
from enmasse.model.names import DEFAULT_SPACE, MANAGEMENT
from enmasse.process import runner
from enmasse.process.places import Places
from enmasse.process.settings import host_port
from services.console.errors import RequestError
from services.console.following.address_history import (
    DAY,
    FINE,
    UNKNOWN,
    AddressHistory,
    Point,
    ProcessPoint,
    summed,
)
from services.console.following.configuration import Configuration
from services.console.following.dispatch import poll_router
from services.console.following.followed_process import DIALLING, Node
from services.console.following.process_events import Events
from services.console.following.traffic import Traffic, is_inside

LOOK = 1.0
AGAIN = 5.0
"""Seconds until a node that was refused is asked again: an older process, or a gateway that has not started."""
MAX_MESSAGE = 16 << 20
FIRST = 3.0
"""Seconds from the beginning in which requests wait for the first state of every process."""
LINGER = float(DAY)
"""Seconds that following continues after the last request, stream and job: as long as the history of addresses."""


class Live:
    """Live state. `router`: where a router's listener for operators is; None: without. `others`: id of a router of its
    network → host:port of that listener: those that offer live state are followed there, others through the first."""

    def __init__(
        self,
        configuration: Configuration,
        router: Places | None,
        others: Mapping[str, str],
        name: str,
        credential: AnyCredential | None,
    ) -> None:
        self.traffic = Traffic(configuration.owner_of, time.time)
        self.router = _router()
        self.brokers: dict[str, Node] = {}
        self.gateways: dict[str, Node] = {}
        self.mesh: dict[str, Node] = {}
        """The other routers of the router's mesh. Gateways are followed over the connections to their routers."""
        self.events = Events()
        self.history = AddressHistory()
        self.totals = AddressHistory()
        """Likewise the sums of address spaces."""
        self.processes = AddressHistory()
        """Likewise brokers and routers, by `past_name`: a Point there is a ProcessPoint."""
        self.used = 0.0
        """When something was followed for a request last."""
        self._configuration = configuration
        self._router = router
        self._at = {name: Places(host_port(at)) for name, at in others.items()}
        self._name = name
        self._credential = credential
        self._endpoints: dict[str, BrokerEndpoint] = {}
        self._looking: asyncio.Task[None] | None = None
        self._began = 0.0
        self._users = 0
        self._ending: asyncio.TimerHandle | None = None
        self._sampled: float | None = None
        for rows in (self.traffic.connections, self.traffic.links, self.events.rows, configuration.addresses):
            rows.first = self.first_state
        configuration.stats = self.traffic.stats
        configuration.on_brokers.append(self._follow_brokers)

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Follow as long as the block, and LINGER after the last one's end: it costs routers and brokers work."""
        self._users += 1
        self.used = time.time()
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._looking is None:
            self._start()
        try:
            yield
        finally:
            self._users -= 1
            self.used = time.time()
            if not self._users:
                self._ending = asyncio.get_running_loop().call_later(LINGER, self._stop)

    @property
    def follows(self) -> bool:
        """Return whether anything is followed."""
        return self._looking is not None

    def follow_on(self, used: float) -> None:
        """Follow until LINGER after `used`, when the console was used last before it was started again."""
        left = used + LINGER - time.time()
        if left > 0 and self._looking is None:
            self.used = used
            self._start()
            self._ending = asyncio.get_running_loop().call_later(left, self._stop)

    async def first_state(self) -> None:
        """Wait until every process has told its first state, at most FIRST after following has begun."""
        left = self._began + FIRST - time.monotonic()
        if left <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                if self._router is not None:
                    await self.router.told.wait()
                for node in (*self.brokers.values(), *self.gateways.values(), *self.mesh.values()):
                    await node.told.wait()

    async def close(self) -> None:
        """Stop."""
        if self._ending is not None:
            self._ending.cancel()
        await asyncio.gather(*self._stop(), return_exceptions=True)

    def _start(self) -> None:
        self._began = time.monotonic()
        self._looking = runner.spawn(self._look(), "rates")
        if self._router is not None:
            self.router.task = runner.spawn(self._keep(self.router, self._router, self._credential), "live router")
        self._follow_brokers()

    def _stop(self) -> list[asyncio.Task[Any]]:
        """Stop following; return the tasks that end."""
        nodes = [self.router, *self.brokers.values(), *self.gateways.values(), *self.mesh.values()]
        tasks = [task for task in (self._looking, *(node.task for node in nodes)) if task is not None]
        for task in tasks:
            task.cancel()
        for node in nodes:
            node.ended = True
            self.traffic.gone(node.component)
        self._looking, self._ending, self._sampled, self.router = None, None, None, _router()
        self.brokers, self._endpoints, self.gateways, self.mesh = {}, {}, {}, {}
        self.traffic.rest()
        self._configuration.addresses.changed(None, other_keys=False)
        return tasks

    @property
    def routers(self) -> list[Node]:
        """Return the routers that have told their state."""
        return [node for node in (self.router, *self.mesh.values()) if node.component]

    def node(self, broker: str) -> Node:
        """Return a broker. Raises RequestError if it is not known."""
        found = self.brokers.get(broker)
        if found is None:
            raise RequestError("console.service.unavailable", f"the broker {broker} is not reached; try again")
        return found

    async def dialled(self, broker: str) -> ControlConnection:
        """Return a connection to a broker for one piece of work. Raises RequestError."""
        endpoint = self._endpoints.get(broker)
        try:
            if endpoint is None:
                raise ControlError("amqp:not-found")
            return await connect(
                endpoint.host, endpoint.port, container=self._name, credential=self._credential_at(endpoint),
                timeout=DIALLING,
            )  # fmt: skip
        except ControlError:
            text = f"the broker {broker} is not reached; try again"
            raise RequestError("console.service.unavailable", text) from None

    async def _keep(self, node: Node, places: Places, credential: AnyCredential | None) -> None:
        async def session(connection: ControlConnection) -> None:
            node.connection = connection
            try:
                if node is self.router:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._follow(node, connection, NODE))
                        group.create_task(self._follow_gateways(node, connection))
                        group.create_task(self._follow_others(connection))
                elif node.name in self.mesh:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._follow(node, connection, NODE))
                        group.create_task(self._follow_gateways(node, connection))
                else:
                    await self._follow_broker(node, connection)
            finally:
                node.connection = None
                if not node.ended:
                    self.traffic.gone(node.component)

        await keep_connected_to(
            places,
            session,
            container=self._name,
            credential=credential,
            max_message_size=MAX_MESSAGE,
            max_links=512,
        )

    async def _follow(self, node: Node, connection: ControlConnection, address: str) -> None:
        while True:
            ended = asyncio.Event()
            node.merged, node.asked = Merged(), False
            node.complete.clear()
            receiver = follow(connection, node.merged, lambda body: self._take(node, body), node=address)
            receiver.on_closed = lambda _, ended=ended: ended.set()
            await ended.wait()
            if node is self.router and not node.merged.component:
                await self._poll_first(connection)
            node.told.set()  # it has none to tell
            await asyncio.sleep(AGAIN)

    async def _follow_broker(self, node: Node, connection: ControlConnection) -> None:
        node.product = product_at(connection)
        if node.product is EMBEDDED:
            await self._follow(node, connection, NODE)
        endpoint = self._endpoints.get(node.name)
        inside = endpoint is not None and not endpoint.by_hand
        while node.product is ARTEMIS:
            await self._poll(node, lambda take: poll_broker(connection, node.name, take, inside=inside))
            node.told.set()
            await asyncio.sleep(AGAIN)
        node.told.set()
        await connection.wait_closed()  # others are not asked: some make a queue of every name

    async def _poll(self, node: Node, poll: Callable[[Callable[[Row], None]], Awaitable[None]]) -> None:
        """Have a router or broker asked that does not offer live state."""
        merged = node.merged = Merged()
        node.asked = True
        node.complete.clear()

        def take(body: Row) -> None:
            merged.apply(body)
            self._take(node, body)

        with contextlib.suppress(ControlError):
            await poll(take)

    async def _poll_first(self, connection: ControlConnection) -> None:
        """Have the router at the other end of the connection asked."""
        node, own = self.router, connection.remote_properties.get("qd.conn-id")
        name, identity = connection.remote_container or node.name, str(int(own)) if isinstance(own, int) else None
        await self._poll(node, lambda take: poll_router(connection, name, node.management, identity, take))

    async def _follow_other(self, node: Node, connection: ControlConnection) -> None:
        """Have another router of the mesh asked. It may be restarted, or be out of reach for a while."""
        while True:
            node.connection = connection
            try:
                await self._poll(node, lambda take: poll_router(connection, node.name, node.management, None, take))
            finally:
                node.connection = None
                if not node.ended:
                    self.traffic.gone(node.component)
            node.told.set()
            await asyncio.sleep(AGAIN)

    async def _follow_gateways(self, router: Node, connection: ControlConnection) -> None:
        """Follow the gateways at a router, as they come and go. One that has gone to another router is followed
        there."""
        here: dict[str, tuple[Node, asyncio.Task[None]]] = {}
        await router.complete.wait()
        try:
            while True:
                wanted = _gateways(router)
                for name in here.keys() - wanted:
                    node, task = here.pop(name)
                    task.cancel()
                    self._leave(self.gateways, node)
                for name in wanted - here.keys():
                    node = self.gateways[name] = Node(name, name)
                    here[name] = node, asyncio.create_task(self._follow(node, connection, f"{NODE}/{name}"))
                if router is not self.router:
                    router.told.set()
                await asyncio.sleep(AGAIN)
                await router.complete.wait()
        finally:
            for node, task in here.values():
                task.cancel()
                self._leave(self.gateways, node)

    async def _follow_others(self, connection: ControlConnection) -> None:
        """Follow the other routers of the mesh, as they come and go: at their own listeners if they offer live
        state."""
        router = self.router
        tasks: dict[str, asyncio.Task[None]] = {}
        followed: dict[str, Node] = {}
        await router.complete.wait()
        try:
            while True:
                wanted = set(router.merged.kinds.get("routers", ()))
                for name in tasks.keys() - wanted:
                    tasks.pop(name).cancel()
                    self._leave(self.mesh, followed[name])
                for name in wanted - tasks.keys():
                    at = None if router.asked else self._at.get(name)
                    if at is None:
                        node = Node(name, f"the router {name}", f"_topo/0/{name}/{MANAGEMENT}")
                        work = self._follow_other(node, connection)
                    else:
                        node = Node(name, f"the router {name}")
                        work = self._keep(node, at, self._credential)
                    self.mesh[name] = followed[name] = node
                    tasks[name] = asyncio.create_task(work)
                router.told.set()
                await asyncio.sleep(AGAIN)
                await router.complete.wait()
        finally:
            for name, task in tasks.items():
                task.cancel()
                self._leave(self.mesh, followed[name])

    def _leave(self, nodes: dict[str, Node], node: Node) -> None:
        """Follow a process no longer, unless it is followed elsewhere."""
        if nodes.get(node.name) is node and not node.ended:
            del nodes[node.name]
            self.traffic.gone(node.component)

    def _follow_brokers(self) -> None:
        """Follow the brokers that there are now."""
        if self._looking is None:
            return
        now = self._configuration.brokers
        for name in self._endpoints.keys() | now.keys():
            endpoint = now.get(name)
            if endpoint == self._endpoints.get(name):
                continue
            old = self.brokers.pop(name, None)
            if old is not None and old.task is not None:
                old.task.cancel()
            if endpoint is not None:
                node = self.brokers[name] = Node(name, f"the broker {name}")
                credential = self._credential_at(endpoint)
                place = Places((endpoint.host, endpoint.port))
                node.task = runner.spawn(self._keep(node, place, credential), f"live {name}")
        self._endpoints = dict(now)

    def _credential_at(self, endpoint: BrokerEndpoint) -> AnyCredential | None:
        return self._credential if endpoint.scram or not endpoint.by_hand else None

    def _take(self, node: Node, body: Row) -> None:
        node.component = body["component"]
        if body["full"]:  # also while it is followed, after it has missed too much: the other rows come next
            node.complete.clear()
        self.traffic.take(node.component, body["kind"], body, full=body["full"], complete=body["complete"])
        self.events.take(body)
        node.take_about(body)
        if node.merged.complete:
            node.complete.set()
            if node is not self.router:
                node.told.set()

    async def _look(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(LOOK)
            changed = self.traffic.look(time.monotonic())
            if changed:
                self._configuration.addresses.changed(changed, other_keys=False)
            before, number = number, int(time.time() // FINE)
            if number != before:
                await self._sample(number)

    async def _sample(self, number: int) -> None:
        """Keep the numbers of all addresses and address spaces; nothing while the router is away, or has just come."""
        before, self._sampled = self._sampled, time.monotonic()
        points = self.traffic.points(1.0 if before is None else self._sampled - before)
        reached = self._router is None or (self.router.connection is not None and self.router.is_known)
        if not (reached and await self._configuration.complete(0)):
            self._sampled = None
        if before is None or self._sampled is None:
            for _ in points:  # rates begin now
                pass
            return
        configuration, sums = self._configuration, dict[str, Point]()
        spaces = configuration.spaces
        with_gaps = _with_gaps(points, self._unknown())
        for _ in self.history.sample(number, summed(with_gaps, sums), configuration.has):
            await asyncio.sleep(0)
        for _ in self.totals.sample(number, sums.items(), lambda space: space == DEFAULT_SPACE or space in spaces):
            await asyncio.sleep(0)
        processes = dict(self._processes())
        for _ in self.processes.sample(number, processes.items(), processes.__contains__):
            await asyncio.sleep(0)

    def _processes(self) -> Iterator[tuple[str, Point]]:
        """Yield the points of brokers and routers."""
        nodes = [("broker", name, node) for name, node in self.brokers.items()]
        nodes += [("router", node.component, node) for node in self.routers]
        for kind, component, node in nodes:
            name = past_name(kind, component)
            if (connections := node.connections) is None:
                yield name, UNKNOWN
                continue
            if kind == "router":
                connections -= sum(is_inside(kind, row) for row in node.merged.kinds.get("connections", {}).values())
            rates, _ = self.traffic.of_component(node.component)
            found = ProcessPoint(
                in_=rates.in_,
                out=rates.out,
                messages=_number(node.messages),
                memory=_number(node.about.get("memory")),
                connections=float(connections),
                busy=_number(node.busy),
            )
            yield name, Point._make(found)

    def _unknown(self) -> set[str]:
        """Return the addresses of brokers that are not reached, or whose state is incomplete."""
        away = [name for name, node in self.brokers.items() if node.connection is None or not node.is_known]
        return {address for name in away for address in self._configuration.placed(name)}


def past_name(kind: str, name: str) -> str:
    """Return the name of the series of a process: a broker and a router may have the same."""
    return f"{kind} {name}"


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _with_gaps(points: Iterable[tuple[str, Point]], unknown: set[str]) -> Iterator[tuple[str, Point]]:
    """Yield the points, UNKNOWN for addresses that are `unknown`."""
    for name, point in points:
        if name not in unknown:
            yield name, point
    for name in unknown:
        yield name, UNKNOWN


def _gateways(router: Node) -> set[str]:
    """Return the names of the gateways at a router, without the containers of their connections for address spaces."""
    kinds = router.merged.kinds
    rows = [row for row in kinds.get("connections", {}).values() if row.get("role") in GATEWAYS]
    own = [row for row in rows if SPACE not in row.get("properties", ())]
    return {str(row["container"]) for row in own if row.get("container")} | kinds.get("gateways", {}).keys()


def _router() -> Node:
    return Node("router", "the router")
