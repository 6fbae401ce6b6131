"""The router agent: feeds in, routers dialling in, readiness out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from enmasse import health, log, process, settings
from enmasse.control import ControlConnection, keep_connected, listen
from enmasse.control.configuration import ReadinessReporter, Report, Restored, follow
from enmasse.metrics import gauge, single
from enmasse.text import counted
from services.ragent import entities
from services.ragent.byhand import ByHand
from services.ragent.desired import Desired
from services.ragent.entities import ACTIVE, AUTO_LINK, CONNECTOR, LINK_ROUTE
from services.ragent.router import Router
from services.ragent.table import OUTDATED, PRESENT, WORKING

if TYPE_CHECKING:
    from prometheus_client.core import Metric

REPORTER = "ragent"
FEEDS = ("addresses", "flavors", "placements")
ROUTER_PRODUCT = "qpid-dispatch-router"
MAX_ROUTERS = 64
FOREIGN_SHOWN = 5
_LOG = log.get()


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files with the certificate (chain) and its key, as the routers see them."""

    cert: str
    key: str


class ClientListener(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One listener for clients, made when the router is configured."""

    name: str
    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    tls: Tls | None = None
    router: str | None = None
    """Id of the router whose listener it is; absent: each router has it."""


class Settings(settings.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent's settings (docs/contracts.md, "A service as a process")."""

    listen: settings.HostPort
    configserv: settings.HostPort
    listeners: tuple[ClientListener, ...] = ()
    static: tuple[str, ...] = ("ragent",)
    """Names of what stands in the routers' own configuration: it is not told of as made by somebody else."""


_State = tuple[bool, bool, str, tuple[str, ...], int | None]
"""ready, failed, message, components, consumers"""


class Agent:
    """All routers, and what is said of the addresses."""

    def __init__(self, config: Settings) -> None:
        self.desired = Desired(
            (each.name, each.host, each.port, (each.tls.cert, each.tls.key) if each.tls else None, each.router)
            for each in config.listeners
        )
        self.routers: dict[str, Router] = {}
        self._static = frozenset(config.static)
        self.by_hand = ByHand(config.name, self._lies_differently)
        self.reporter = ReadinessReporter(
            REPORTER, self._reports, FEEDS, self._pending, lambda: self.reporter.received("addresses")
        )
        self.connected = False
        self._states: dict[str, _State] = {}
        self._same: dict[_State, _State] = {}
        self._restored = Restored(self.reporter, self.evaluate)
        """Addresses of which something was lost, and until when that is shown."""
        self.not_ready = 0

    # feeds

    async def configserv(self, connection: ControlConnection) -> None:
        """The conversation with the configuration service, until the connection is lost."""
        self.reporter.connected()
        links = [
            follow(connection, "addresses", self._on_addresses),
            follow(connection, "flavors", self._on_flavors),
            follow(connection, "placements", self._on_placements),
        ]
        ended = asyncio.Event()
        for link in links:
            link.on_closed = lambda _: ended.set()
        reporting = asyncio.ensure_future(self.reporter.run(connection))
        reporting.add_done_callback(lambda _: ended.set())
        self.connected = True
        try:
            await ended.wait()
            if reporting.done():
                reporting.result()
        finally:
            self.connected = False
            reporting.cancel()

    def _on_addresses(self, body: dict[str, Any]) -> None:
        first = not self.desired.has_addresses
        before = self.desired.set_addresses(body)
        self._touch(before, first)
        self._saw("addresses", body)

    def _on_placements(self, body: dict[str, Any]) -> None:
        first = not self.desired.has_placements
        before, moved = self.desired.set_placements(body)
        if moved:
            for router in self.routers.values():
                router.touch_brokers(moved)
        self.by_hand.follow(self.desired.by_hand)
        self._touch(before, first)
        self.evaluate(self.desired.carried_by(moved))
        self._saw("placements", body)

    def _on_flavors(self, body: dict[str, Any]) -> None:
        if self.desired.set_flavors(body):
            for router in self.routers.values():
                router.read_again()
        self._saw("flavors", body)

    def _saw(self, feed: str, body: Mapping[str, Any]) -> None:
        revision = body.get("revision")
        self.reporter.saw(feed, revision if isinstance(revision, int) else 0)

    def _touch(self, before: Mapping[str, set[tuple[str, str]]], first: bool) -> None:
        for router in self.routers.values():
            router.touch(before)
            if first:
                router.read_again()  # what may be deleted can be told only now
        self.evaluate(before)

    def _lies_differently(self, names: Iterable[str] | None) -> None:
        """What brokers made by hand hold of these (None: of any address) is news."""
        self.evaluate(self.desired.addresses if names is None else names)

    # routers

    def accepted(self, connection: ControlConnection) -> None:
        """A peer has dialled in; it must be a router (its open says so)."""
        connection.on_open = lambda: self._opened(connection)

    def _opened(self, connection: ControlConnection) -> None:
        product = connection.remote_properties.get("product")
        name = connection.remote_container
        if product != ROUTER_PRODUCT or not name:
            _LOG.warning("not a router", peer=connection.peer, product=str(product)[:100])
            connection.close("amqp:not-allowed", f"only routers (product {ROUTER_PRODUCT}) are managed here")
            return
        old = self.routers.get(name)
        if old is not None:
            # A router that was killed and is back before its old connection has timed out; or two with one name.
            _LOG.warning("a router with the same id connected again", router=name, peer=connection.peer)
            old.close("amqp:connection:forced", "replaced by a newer connection of the same router id")
        elif len(self.routers) >= MAX_ROUTERS:
            connection.close("amqp:resource-limit-exceeded", f"at most {MAX_ROUTERS} routers")
            return
        router = Router(connection, self.desired, self.evaluate, self._restored.add)
        self.routers[name] = router
        self.evaluate(self.desired.addresses)
        process.spawn(self._manage(router), f"router {name}")

    async def _manage(self, router: Router) -> None:
        work = asyncio.ensure_future(router.run())
        gone = asyncio.ensure_future(router.wait_closed())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            work.cancel()
            gone.cancel()
            if self.routers.get(router.id) is router:
                del self.routers[router.id]
            router.close("amqp:connection:forced", "management of this router has ended")
            self.evaluate(self.desired.addresses)

    # readiness

    def evaluate(self, names: Iterable[str]) -> None:
        """Says anew how these addresses are, and reports those whose state is news."""
        news = []
        states = self._states
        for name in names:
            state = self._state(name) if self.desired.kind(name) is not None else self._leaving(name)
            old = states.get(name)
            if state == old:
                continue
            self.not_ready += (state is not None and not state[0]) - (old is not None and not old[0])
            if state is None:
                del states[name]
            else:
                states[name] = self._same.setdefault(state, state)
            news.append(name)
        if len(self._same) > 2 * len(states) + 100:
            self._same = {state: state for state in states.values()}
        self.reporter.changed(news)

    def _state(self, name: str) -> _State:
        routers = self.routers
        components = tuple(sorted(routers))
        if not routers:
            return False, False, "no router is connected", components, None
        work = self.desired.work(name)
        kind = self.desired.kind(name)
        if work is None or work.kind != kind:
            message = f"is a {work.kind if work else kind} on the routers until nothing of that is left"
            return False, False, message, components, None
        placements = self.desired.placements(name)
        if kind in ("queue", "topic"):
            active = {p.broker for p in placements if not p.draining}
            if not active:
                return False, False, self._unplaced(), components, None
            for broker in active:
                problem = self.by_hand.problem(broker, name, kind)
                if problem:
                    return False, False, problem, components, None
        else:
            active = set()
        consumers = 0
        for router in routers.values():
            failure = router.failed.get(name)
            if failure is not None:
                return False, True, f"router {router.id}: {failure}", components, None
            problem = self._problem(router, name, work, active)
            if problem:
                return False, False, f"router {router.id}: {problem}", components, None
            consumers += router.consumers.get(name, 0)
        if name in self._restored:
            return False, False, "what was missing on a router has been made again", components, None
        return True, False, "", components, consumers if kind != "topic" else None

    def _unplaced(self) -> str:
        if self.desired.by_hand:
            return "no broker of brokers.json carries it: name it, or its flavor, there"
        return "no broker carries it yet"

    def _leaving(self, name: str) -> _State | None:
        """How it is with an address that is not wanted any more; None: there is nothing left to be done about it."""
        for router in self.routers.values():
            failure = router.failed.get(name)
            if failure is not None or router.works_on(name):
                message = f"router {router.id}: {failure or 'is being removed'}"
                return False, failure is not None, message, tuple(sorted(self.routers)), None
        return None

    def _problem(self, router: Router, name: str, work: entities.Carried, active: set[str]) -> str:
        """What keeps the address from working on one router, as last read; empty where nothing does."""
        if not router.configured:
            return "is being configured"
        table = router.table
        for key in entities.names_of_address(name, work):
            status = table.status(key)
            type_ = key[0]
            if type_ in (AUTO_LINK, LINK_ROUTE):
                owner = entities.owner(key[1])
                assert owner is not None
                if owner.broker not in active:
                    continue
                connector = table.status((CONNECTOR, entities.connector_name(owner.broker)))
                if connector == OUTDATED:
                    return f"broker {owner.broker} moved or was started again; the connection to it is looked at"
                if status == ACTIVE:
                    if connector in WORKING:
                        continue
                    return f"the connection to broker {owner.broker} is {connector or 'missing'}"
                what = f"the {'auto-link' if type_ == AUTO_LINK else 'link route'} {key[1]}"
                why = table.errors.get(key[1]) or table.errors.get(entities.connector_name(owner.broker)) or ""
                return f"{what} is {status or 'missing'}{f': {why}' if why else ''}"
            if status != PRESENT:
                return f"the address entity is {status or 'missing'}"
        return ""

    def _pending(self) -> dict[str, str]:
        """What the addresses do not tell: routers may still have what is not wanted."""
        late = sorted(router.id for router in self.routers.values() if not router.settled)
        if self.routers and not late:
            return {}
        text = f"{', '.join(late)}: being configured" if late else "no router is connected"
        return {"addresses": text, "placements": text}

    def _reports(self, names: Iterable[str] | None) -> dict[str, Report]:
        states = self._states
        found: dict[str, Report] = {}
        for name in states if names is None else names:
            state = states.get(name)
            if state is None:
                continue
            ready, failed, message, components, consumers = state
            found[name] = {
                "ready": ready,
                "failed": failed,
                "message": message,
                "components": components,
                "messages": None,
                "consumers": consumers,
            }
        return found

    # health

    def healthy(self) -> tuple[bool, str]:
        """Whether everything is configured, and if not, what is awaited."""
        if not self.connected:
            return False, "no connection to the configuration service"
        if not self.desired.has_addresses:
            return False, "no addresses were delivered yet"
        if not self.routers:
            return False, "no router is connected"
        late = [router.id for router in self.routers.values() if not router.serving]
        if late:
            return False, "; ".join([f"being configured: {', '.join(sorted(late))}", *self._refusals()])
        return True, "; ".join([counted(len(self.routers), "router"), *self._notes(), *self._refusals()])

    def _refusals(self) -> list[str]:
        """What routers have refused that is no address's."""
        return [f"{name}: {router.failed['']}" for name, router in sorted(self.routers.items()) if "" in router.failed]

    def _notes(self) -> list[str]:
        """What people should know of routers that work."""
        notes = []
        for name, router in sorted(self.routers.items()):
            if foreign := router.foreign(self._static):
                more = f" and {len(foreign) - FOREIGN_SHOWN} more" if len(foreign) > FOREIGN_SHOWN else ""
                notes.append(f"on {name}, not made here: {', '.join(foreign[:FOREIGN_SHOWN])}{more}")
            if self.desired.has_listeners and not self.desired.listeners(name):
                notes.append(f"{name} has no listener for clients: each of them is another router's")
            elif not router.extended:
                notes.append(f"clients of {name} reach its management: it cannot be told otherwise")
        return notes

    def metrics(self) -> Iterator[Metric]:
        """Of the agent and its routers (docs/metrics.md)."""
        rows = sum(len(rows) for router in self.routers.values() for rows in router.table.rows.values())
        foreign = [({"router": name}, len(router.foreign(self._static))) for name, router in self.routers.items()]
        yield gauge("ragent_routers", "Routers connected.", single(len(self.routers)))
        yield gauge("ragent_addresses", "Addresses that are desired or still being removed.", single(len(self._states)))
        yield gauge("ragent_addresses_not_ready", "Those of them that are not ready.", single(self.not_ready))
        yield gauge("ragent_foreign_entities", "Entities on a router that somebody else made.", foreign)
        yield gauge("ragent_entities", "Entities that the agent made, on all routers.", single(rows))


async def serve(config: Settings, stop: asyncio.Event) -> None:
    """The service: runs until `stop` is set. Raises process.Fatal where a port cannot be had."""
    agent = Agent(config)
    state = health.Health(config.health, agent.metrics)
    state.check = agent.healthy
    await state.start()
    host, port = settings.host_port(config.listen)
    listener = await listen(
        host,
        port,
        agent.accepted,
        container=config.name,
        properties={"product": "ragent"},
        max_connections=4 * MAX_ROUTERS,
    )
    state.endpoints = lambda: {"amqp": f"{listener.host}:{listener.port}"}
    host, port = settings.host_port(config.configserv)
    feeding = asyncio.ensure_future(keep_connected(host, port, agent.configserv, container=config.name))
    try:
        await stop.wait()
    finally:
        feeding.cancel()
        agent.by_hand.close()
        await listener.close()
        await state.close()
