"""Followers of the live state of routers, brokers and gateways, over one connection to each router and broker."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from enmasse import process
from enmasse.api.types import Connection, Event
from enmasse.control import Artemis, ControlConnection, ControlError, Dispatch, connect, keep_connected
from enmasse.control.live import follow
from enmasse.engines.artemis.live import poll_broker
from enmasse.engines.messages.product import Product
from enmasse.engines.messages.products import ARTEMIS, EMBEDDED, product_at
from enmasse.identity.credentials import AnyCredential
from enmasse.identity.roles import Role
from enmasse.live import NODE, Merged, Row
from enmasse.model.feeds import BrokerEndpoint
from enmasse.model.sessions import ByClient, Done
from enmasse.settings import host_port
from services.console.configuration import Configuration
from services.console.errors import RequestError, unknown
from services.console.polling import poll_router
from services.console.rows import Rows
from services.console.subscribers import Subscribers
from services.console.traffic import Traffic, moment

LOOK, SAMPLE = 1.0, 5.0
AGAIN = 5.0
"""Seconds until a node that was refused is asked again: an older process, or a gateway that has not started."""
EVENTS = 5000
MAX_MESSAGE = 16 << 20
CLOSING = 10.0
DIALLING = 5.0
"""Seconds for a process that begins to be followed to be reached: the console dials with its first request."""
FIRST = 3.0
"""Seconds from the beginning in which requests wait for the first state of every process."""
LINGER = 30.0
"""Seconds that following continues after the last request, stream and job."""


class _Latest(NamedTuple):
    """The newest event of a process: its run, and the time; `events`: those of this time, as JSON."""

    run: str
    at: float
    events: frozenset[bytes]


class Node:
    """A process that is followed. `connection` None: it is not reached. `title`: of it in texts."""

    def __init__(self, name: str, title: str) -> None:
        self.name = name
        self.title = title
        self.component = ""
        self.merged = Merged()
        self.task: asyncio.Task[Any] | None = None
        self.product: Product | None = None
        """The product of a broker; None: one that the console does not manage."""
        self.complete = asyncio.Event()
        """Set when its state is complete."""
        self.told = asyncio.Event()
        """Set with its first state, of a router when its gateways are known, too; or if it has none."""
        self.known: _Latest | None = None
        """The newest event before this state, which repeats that one and those before."""
        self.ended = False
        """Whether it is no longer followed."""
        self._connection: ControlConnection | None = None
        self._connected = asyncio.Event()

    @property
    def connection(self) -> ControlConnection | None:
        """Return the connection; None: it is not reached."""
        return self._connection

    @connection.setter
    def connection(self, connection: ControlConnection | None) -> None:
        self._connection = connection
        if connection is None:
            self._connected.clear()
        else:
            self._connected.set()

    async def managed(self) -> Product:
        """Return the product of a broker. Raises RequestError."""
        await self.reached()
        if self.product is None:
            text = f"{self.title} has no management by which messages can be looked at: it is another product"
            raise RequestError("console.change.refused", text)
        return self.product

    async def reached(self) -> ControlConnection:
        """Return the connection, waiting for it at most DIALLING seconds. Raises RequestError."""
        if self.task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DIALLING):
                    await self._connected.wait()
        if self._connection is None:
            raise RequestError("console.service.unavailable", f"{self.title} is not reached; try again")
        return self._connection


class Live:
    """Live state. `router`: host:port of a router's listener for operators; None: without. `subscribers` has MQTT
    clients disconnected."""

    def __init__(
        self,
        configuration: Configuration,
        router: str | None,
        name: str,
        credential: AnyCredential | None,
        subscribers: Subscribers,
    ) -> None:
        self.traffic = Traffic(configuration.owner_of, time.time)
        self.router = _router()
        self.brokers: dict[str, Node] = {}
        self.events: Rows[Event] = Rows(lambda: self._events, self._event)
        self._events: dict[str, Event] = {}
        self._order: deque[str] = deque()
        self._latest: dict[str, _Latest] = {}
        self._configuration = configuration
        self._router = router
        self._name = name
        self._credential = credential
        self._subscribers = subscribers
        self._behind: dict[str, Node] = {}
        self._endpoints: dict[str, BrokerEndpoint] = {}
        self._looking: asyncio.Task[None] | None = None
        self._began = 0.0
        self._users = 0
        self._ending: asyncio.TimerHandle | None = None
        for rows in (self.traffic.connections, self.traffic.links, self.events, configuration.addresses):
            rows.first = self.first_state
        configuration.stats = self.traffic.stats
        configuration.on_brokers.append(self._follow_brokers)

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Follow as long as the block, and LINGER after the last one's end: it costs routers and brokers work."""
        self._users += 1
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._looking is None:
            self._start()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._ending = asyncio.get_running_loop().call_later(LINGER, self._stop)

    async def first_state(self) -> None:
        """Wait until every process has told its first state, at most FIRST after following has begun."""
        left = self._began + FIRST - time.monotonic()
        if left <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                if self._router is not None:
                    await self.router.told.wait()
                for node in (*self.brokers.values(), *self._behind.values()):
                    await node.told.wait()

    async def close(self) -> None:
        """Stop."""
        if self._ending is not None:
            self._ending.cancel()
        await asyncio.gather(*self._stop(), return_exceptions=True)

    def _start(self) -> None:
        self._began = time.monotonic()
        self._looking = process.spawn(self._look(), "rates")
        if self._router is not None:
            host, port = host_port(self._router)
            self.router.task = process.spawn(self._keep(self.router, host, port, self._credential), "live router")
        self._follow_brokers()

    def _stop(self) -> list[asyncio.Task[Any]]:
        """Stop following; return the tasks that end."""
        nodes = [self.router, *self.brokers.values(), *self._behind.values()]
        tasks = [task for task in (self._looking, *(node.task for node in nodes)) if task is not None]
        for task in tasks:
            task.cancel()
        for node in nodes:
            node.ended = True
            self.traffic.gone(node.component)
        self._looking, self._ending, self.router = None, None, _router()
        self.brokers, self._endpoints, self._behind = {}, {}, {}
        self.traffic.rest()
        self._configuration.addresses.changed(None, other_keys=False)
        return tasks

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

    async def close_connection(self, row: Connection) -> None:
        """Close a client's connection at the router, gateway or broker. Raises RequestError."""
        id = row.id.removeprefix(f"{row.component}/")
        connection = self.router.connection
        if any(row.component == node.component for node in self._behind.values()):
            await self._subscribers.ask("disconnect", ByClient(client=id), Done, f"connection {row.id[:200]!r}")
            return
        broker = next((each for each in self.brokers.values() if each.component == row.component), None)
        if broker is not None:
            await self._close_at(broker, id)
            return
        if connection is None or row.component != self.router.component:
            raise RequestError("console.service.unavailable", f"{row.component} is not reached; try again")
        try:
            async with asyncio.timeout(CLOSING):
                node = await Dispatch(connection).opened()
                try:
                    await node.operation(
                        {"operation": "UPDATE", "type": "org.apache.qpid.dispatch.connection", "identity": id},
                        {"adminStatus": "deleted"},
                    )
                finally:
                    node.close()
        except (ControlError, TimeoutError) as error:
            raise RequestError("console.service.failed", f"the router has not closed it: {error}") from None

    async def _close_at(self, broker: Node, id: str) -> None:
        """Close a connection to a broker, by an operation that Artemis has too."""
        await broker.managed()
        connection = await broker.reached()
        try:
            management = await Artemis(connection, timeout=CLOSING).opened()
            try:
                found = await management.invoke("broker", "closeConnectionWithID", id)
            finally:
                management.close()
        except ControlError as error:
            raise RequestError("console.service.failed", f"{broker.title} has not closed it: {error}") from None
        if not found:
            raise unknown(f"connection {id[:200]!r}")

    # -- following

    async def _keep(self, node: Node, host: str, port: int, credential: AnyCredential | None) -> None:
        async def session(connection: ControlConnection) -> None:
            node.connection = connection
            try:
                if node is self.router:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._follow(node, connection, NODE))
                        group.create_task(self._follow_gateways(node, connection))
                else:
                    await self._follow_broker(node, connection)
            finally:
                node.connection = None
                if not node.ended:
                    self.traffic.gone(node.component)

        await keep_connected(
            host,
            port,
            session,
            container=self._name,
            credential=credential,
            max_message_size=MAX_MESSAGE,
            max_links=512,
        )

    async def _follow(self, node: Node, connection: ControlConnection, address: str) -> None:
        while True:
            ended = asyncio.Event()
            node.merged = Merged()
            node.complete.clear()
            receiver = follow(connection, node.merged, lambda body: self._take(node, body), node=address)
            receiver.on_closed = lambda _, ended=ended: ended.set()
            await ended.wait()
            if node is self.router and not node.merged.component:
                await self._poll(node, lambda take: poll_router(connection, take))
            node.told.set()  # it has none to tell
            await asyncio.sleep(AGAIN)

    async def _follow_broker(self, node: Node, connection: ControlConnection) -> None:
        node.product = product_at(connection)
        if node.product is EMBEDDED:
            await self._follow(node, connection, NODE)
        while node.product is ARTEMIS:
            await self._poll(node, lambda take: poll_broker(connection, node.name, take))
            node.told.set()
            await asyncio.sleep(AGAIN)
        node.told.set()
        await connection.wait_closed()  # others are not asked: some make a queue of every name

    async def _poll(self, node: Node, poll: Callable[[Callable[[Row], None]], Awaitable[None]]) -> None:
        """Have a router or broker asked that does not offer live state."""
        merged = node.merged = Merged()
        node.complete.clear()

        def take(body: Row) -> None:
            merged.apply(body)
            self._take(node, body)

        with contextlib.suppress(ControlError):
            await poll(take)

    async def _follow_gateways(self, node: Node, connection: ControlConnection) -> None:
        tasks: dict[str, asyncio.Task[None]] = {}
        await node.complete.wait()
        try:
            while True:
                wanted = self._gateways()
                for name in wanted - tasks.keys():
                    gateway = self._behind[name] = Node(name, name)
                    tasks[name] = asyncio.create_task(self._follow(gateway, connection, f"{NODE}/{name}"))
                for name in tasks.keys() - wanted:
                    tasks.pop(name).cancel()
                    self.traffic.gone(self._behind.pop(name).component)
                node.told.set()
                await asyncio.sleep(AGAIN)
        finally:
            for task in tasks.values():
                task.cancel()

    def _gateways(self) -> set[str]:
        """Return the names of the gateways at the router."""
        rows = self.router.merged.kinds.get("connections", {}).values()
        return {str(row["container"]) for row in rows if row.get("role") == Role.GATEWAY and row.get("container")}

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
                node.task = process.spawn(self._keep(node, endpoint.host, endpoint.port, credential), f"live {name}")
        self._endpoints = dict(now)

    def _credential_at(self, endpoint: BrokerEndpoint) -> AnyCredential | None:
        return self._credential if endpoint.scram or not endpoint.by_hand else None

    def _take(self, node: Node, body: Row) -> None:
        component, run = body["component"], body["run"]
        node.component = component
        self.traffic.take(component, body["kind"], body, full=body["full"])
        if body["full"]:
            node.known = self._latest.get(component)
        for event in body.get("events", ()):
            if node.complete.is_set() or not _is_known(node.known, run, event):
                self._latest[component] = _newer(self._latest.get(component), run, event)
                self._add_event(component, event)
        if node.merged.complete:
            node.complete.set()
            if node is not self.router:
                node.told.set()

    def _add_event(self, component: str, row: Row) -> None:
        # Not counted: ids of the events that a caller may view must not reveal how many others there are.
        id = f"{int(1000 * float(row.get('at') or time.time())):013d}-{secrets.token_hex(4)}"
        known = (
            "at",
            "id",
            "condition",
            "description",
            "reason",
            "address",
            "user",
            "client",
            "container",
            "peer",
            "count",
        )
        self._events[id] = Event(
            id=id,
            time=moment(row.get("at")) or "",
            component=component,
            kind=str(row.get("id", "")),
            condition=str(row.get("condition") or ""),
            description=str(row.get("description") or row.get("reason") or ""),
            address=None if row.get("address") is None else str(row["address"]),
            user=None if row.get("user") is None else str(row["user"]),
            client=str(row.get("client") or row.get("container") or ""),
            peer=str(row.get("peer") or ""),
            count=int(row.get("count") or 1),
            more={key: value for key, value in row.items() if key not in known},
        )
        self._order.append(id)
        if len(self._order) > EVENTS:
            oldest = self._order.popleft()
            del self._events[oldest]
            self.events.changed({oldest})
        self.events.changed({id})

    def _event(self, id: str) -> Event | None:
        return self._events.get(id)

    async def _look(self) -> None:
        sampled = 0.0
        while True:
            await asyncio.sleep(LOOK)
            now = time.monotonic()
            changed = self.traffic.look(now)
            if changed:
                self._configuration.addresses.changed(changed, other_keys=False)
            if now - sampled >= SAMPLE:
                sampled = now
                self.traffic.sample(time.time())


def _router() -> Node:
    return Node("router", "the router")


def _is_known(known: _Latest | None, run: str, event: Row) -> bool:
    """Return whether an event came before, or is the newest one: a new follower gets those that the process keeps."""
    if known is None or known.run != run:
        return False
    return event["at"] < known.at or (event["at"] == known.at and msgspec.json.encode(event) in known.events)


def _newer(known: _Latest | None, run: str, event: Row) -> _Latest:
    encoded = frozenset([msgspec.json.encode(event)])
    if known is None or known.run != run or event["at"] > known.at:
        return _Latest(run, event["at"], encoded)
    return known._replace(events=known.events | encoded) if event["at"] == known.at else known
