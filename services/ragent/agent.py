"""The router agent: feeds in, routers dialling in, readiness out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec

from enmasse.control import ControlConnection, keep_connected, listen
from enmasse.control.configserv_client import ConfigurationClient
from enmasse.control.reports import ReadinessReporter
from enmasse.http import health
from enmasse.identity.processes.credentials import AnyCredential, own, peers_at
from enmasse.identity.processes.roles import Listener
from enmasse.logs import log
from enmasse.metrics import gauge, single
from enmasse.model import feeds
from enmasse.model.address_types import TYPES, AddressType
from enmasse.model.names import AddressName
from enmasse.process import runner, settings
from enmasse.reconcile import ReadinessBook
from enmasse.text import counted
from services.ragent import entities
from services.ragent.client_shares import ClientShares
from services.ragent.desired import Desired
from services.ragent.entities import ROUTER
from services.ragent.manual_brokers import ManualBrokers
from services.ragent.router import ManagedRouter

if TYPE_CHECKING:
    from prometheus_client.core import Metric

ROLE = "ragent"
FEEDS = ("addresses", "flavors", "placements")
ROUTER_PRODUCT = "qpid-dispatch-router"
MAX_ROUTERS = 64
DOUBLED, DOUBLED_WITHIN = 3, 30.0
"""Number of replaced connections of a router, and seconds, above which two routers are taken to share one id."""
DOUBLED_TEXT = "several routers have this id and replace each other: give each an id of its own"
FOREIGN_SHOWN = 5
NOT_KEPT_APART = (
    "Qpid Dispatch would let clients without credentials reach the addresses of every space: add users, and start "
    "`enmasse up` again, or use the embedded router (docs/engines.md)"
)
NAME_IT = "; with a brokers.json, name it, or its flavor, there"
_LOG = log.get()


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files with the certificate (chain) and its key, by their paths on the routers. `client_ca`: with the authority of
    clients' certificates; None: clients are not asked for one."""

    cert: str
    key: str
    client_ca: str | None = None


class ClientListener(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One listener for clients, made when the router is configured."""

    name: str
    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    tls: Tls | None = None
    router: str | None = None
    """Id of the router that has the listener; absent: every router has it."""
    routers: str | None = None
    """Instead, of several: what their ids have before `-NUMBER`, as the names of a StatefulSet's pods do."""
    space: str | None = None
    """Address space of all of its clients; absent: each means its own."""
    shared: bool = False
    """Several routers listen at this port of one machine, and each gets a part of those who connect."""


class RouterAgentSettings(settings.ServiceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent's settings (docs/contracts.md, "A service as a process")."""

    listen: settings.HostPort
    peers: str | None = None
    """File of the processes that may connect; None: any peer that states to be a router."""
    configserv: settings.HostPort
    listeners: tuple[ClientListener, ...] = ()
    mqtt: bool = False
    """Whether routers have the nodes of the MQTT services and the queues of sessions (`$sub/<broker>`)."""
    sasl_plugin: str | None = None
    """Name of the authentication service, in the routers' own configuration, that the listeners for clients ask."""
    broker_profile: str | None = None
    """Name of the sslProfile, in the routers' own configuration, with which they authenticate at brokers that want it;
    absent: by their credential (SCRAM-SHA-256)."""
    router_secrets: str | None = None
    """Path, on the routers, of the file with a router's secret in a line, in which `{router}` stands for its id: for
    routers of Qpid Dispatch, which log in by SCRAM-SHA-256 at brokers that want it, and at each other. Absent: routers
    know their credential themselves."""
    authenticate: bool = False
    """No client may skip SASL: Dispatch does not ask the service about one that does, and lets it in."""
    spaces: bool = True
    """Routers keep clients out of address spaces other than their own. False: routers of Dispatch whose clients need no
    credentials, which get no addresses of spaces."""
    static: tuple[str, ...] = ("ragent",)
    """Names of entities in the routers' own configuration: they are not reported as foreign."""


def _files(tls: Tls | None) -> entities.TlsFiles | None:
    return None if tls is None else entities.TlsFiles(tls.cert, tls.key, tls.client_ca)


def _listeners(config: RouterAgentSettings) -> list[entities.ClientListener]:
    return [
        entities.ClientListener(
            each.name, each.host, each.port, _files(each.tls), each.router, each.space, each.shared, each.routers
        )
        for each in config.listeners
    ]


class RouterAgent:
    """All routers, and the reported readiness of the addresses.

    It stands by until `lead` is called: it follows the feeds and accepts routers, but sends them nothing, asks no
    broker and reports nothing.
    """

    def __init__(self, config: RouterAgentSettings) -> None:
        self.leads = False
        """True if this instance manages the routers and reports: only one may (docs/contracts.md, "Roles and
        instances")."""
        self.desired = Desired(
            _listeners(config),
            mqtt=config.mqtt,
            sasl_plugin=config.sasl_plugin,
            authenticate=config.authenticate,
            broker_profile=config.broker_profile,
            router_secrets=config.router_secrets,
            spaces=config.spaces,
        )
        self.routers: dict[str, ManagedRouter] = {}
        self.by_hand = ManualBrokers(config.name, self._contents_changed, self._restarted)
        self.book = ReadinessBook("what was missing on a router has been made again")
        self.readiness = ReadinessReporter(
            ROLE,
            config.name,
            self.book,
            feeds=FEEDS,
            pending=self._pending,
            begin=lambda: self.readiness.received("addresses"),
        )
        self.configuration = ConfigurationClient(
            (
                feeds.FollowedFeed("addresses/changes", feeds.AddressChanges, self._on_addresses),
                # Flavors do not affect routers yet: a changed flavor counts as applied on receipt.
                feeds.FollowedFeed("flavors", feeds.Flavors, lambda _: None),
                feeds.FollowedFeed("placements/changes", feeds.PlacementChanges, self._on_placements),
            ),
            self.readiness,
        )
        self.client_shares = ClientShares(self.routers.values, self.desired.space_of)
        self._static = frozenset(config.static)
        self._waiting: list[ControlConnection] = []
        """Connections of routers that were accepted on standby."""
        self._replaced: Counter[str] = Counter()
        """Router id → replacements of its connection within DOUBLED_WITHIN."""

    def lead(self) -> None:
        """Start to lead: read and configure every connected router, and report everything. Cannot be undone: an
        instance that loses the lead has to end its process.
        """
        self.leads = True
        self._ask_brokers()
        self.evaluate(self.desired.addresses)
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            if not connection.is_gone:
                self._opened(connection)
        self.configuration.start_reporting()

    # feeds

    def _on_addresses(self, body: feeds.Addresses) -> None:
        changed = self.desired.set_addresses(body)
        self._touch("addresses", changed)

    def _on_placements(self, body: feeds.Placements) -> None:
        changed, moved = self.desired.set_placements(body)
        if moved:
            for router in self.routers.values():
                router.touch_brokers(moved)
        self._ask_brokers()
        self._touch("placements", changed)
        self.evaluate(self.desired.placed_on(moved))

    def _ask_brokers(self) -> None:
        if self.leads:
            self.by_hand.follow({name: (broker.host, broker.port) for name, broker in self.desired.by_hand.items()})

    def _touch(self, source: str, changed: Collection[AddressName]) -> None:
        first = self.desired.sources.deliver(source)
        for router in self.routers.values():
            router.touch(changed)
            if first:
                router.read_again()  # only a complete desired state shows what may be deleted
        self.evaluate(changed)

    def _contents_changed(self, names: Iterable[AddressName] | None) -> None:
        """Handle changed contents of brokers managed by hand for these addresses (None: for all)."""
        self.evaluate(self.desired.addresses if names is None else names)

    def _restarted(self, broker: str) -> None:
        """Have every router show whether it is connected to this broker: placements do not state its restarts."""
        for router in self.routers.values():
            router.touch_brokers((broker,))
        self.evaluate(self.desired.placed_on((broker,)))

    async def take(self, config: RouterAgentSettings) -> None:
        """Have the listeners for clients of changed settings."""
        if self.desired.set_listeners(_listeners(config)):
            for router in self.routers.values():
                router.touch_listeners()

    # routers

    def accepted(self, connection: ControlConnection) -> None:
        """Accept a peer that has dialled in. Its credential makes it a router; where the listener asks for none, its
        Open does."""
        connection.on_open = lambda: self._opened(connection)

    def _opened(self, connection: ControlConnection) -> None:
        name = connection.remote_container
        if connection.identity is not None and connection.admission is not None:
            if not connection.identity.may_be(name):
                error = connection.admission.refusal(f"may not be router {name[:100]!r}")
                connection.close(error.condition, error.description)
                return
        elif not self._states_to_be_router(connection):
            return
        if not self.leads:
            self._waiting = [other for other in self._waiting if not other.is_gone]
            self._waiting.append(connection)
            return
        old = self.routers.get(name)
        if old is not None:
            self._replace(old, connection)
        elif len(self.routers) >= MAX_ROUTERS:
            connection.close("amqp:resource-limit-exceeded", f"at most {MAX_ROUTERS} routers")
            return
        router = ManagedRouter(connection, self.desired, self.evaluate, self.book.lose, self._meshed)
        self.routers[name] = router
        self.evaluate(self.desired.addresses)
        runner.spawn(self._manage(router), f"router {name}")

    def _states_to_be_router(self, connection: ControlConnection) -> bool:
        product = connection.remote_properties.get("product")
        if product == ROUTER_PRODUCT and connection.remote_container:
            return True
        _LOG.warning("agent.peer.rejected", peer=connection.peer, product=str(product)[:100])
        connection.close("amqp:not-allowed", f"only routers (product {ROUTER_PRODUCT}) are managed here")
        return False

    def _meshed(self) -> None:
        """Reconcile the other routers after a router's endpoint has changed."""
        for router in self.routers.values():
            router.touch_neighbours()

    def _replace(self, old: ManagedRouter, connection: ControlConnection) -> None:
        """Replace a router's connection: it restarted before the old one timed out, or two routers share one id."""
        loop = asyncio.get_running_loop()
        self._replaced[old.id] += 1
        loop.call_later(DOUBLED_WITHIN, self._forget_replaced, old.id)
        if self._is_doubled(old.id):
            _LOG.error("agent.router.duplicated", router=old.id, peer=connection.peer)
        else:
            _LOG.warning("agent.router.replaced", router=old.id, peer=connection.peer)
        old.close("amqp:connection:forced", "replaced by a newer connection of the same router id")

    def _forget_replaced(self, name: str) -> None:
        doubled = self._is_doubled(name)
        self._replaced[name] -= 1
        if doubled and not self._is_doubled(name):
            self.evaluate(self.desired.addresses)

    def _is_doubled(self, name: str) -> bool:
        return self._replaced[name] >= DOUBLED

    async def _manage(self, router: ManagedRouter) -> None:
        try:
            await router.run()
        finally:
            if self.routers.get(router.id) is router:
                del self.routers[router.id]
                self.desired.mesh.left(router.id)
            router.close("amqp:connection:forced", "management of this router has ended")
            self.evaluate(self.desired.addresses)

    # readiness

    def evaluate(self, names: Iterable[AddressName]) -> None:
        """Evaluate and report the readiness of these addresses."""
        if not self.leads:
            return
        for name in names:
            type_ = self.desired.type(name)
            self.book.put(name, self._state(name, type_) if type_ is not None else self._leaving(name))
        self.readiness.changed()

    def _state(self, name: AddressName, type_: AddressType) -> feeds.Readiness:
        components = tuple(sorted(self.routers))
        active = frozenset(p.broker for p in self.desired.placements(name) if p.active)
        consumers = 0
        failed, problem = False, self._unroutable(name, type_, active)
        for router in () if problem else self._judged():
            failed, problem = self._problem(router, name, active)
            if problem:
                problem = f"router {router.id}: {problem}"
                break
            consumers += router.consumers.get(name, 0)
        if problem:
            return feeds.Readiness(ready=False, failed=failed, message=problem, components=components)
        return feeds.Readiness(
            ready=True,
            message=next((text for broker in active if (text := self.by_hand.note(broker, type_))), ""),
            components=components,
            consumers=None if self.desired.is_routed(name) else consumers,
        )

    def _judged(self) -> list[ManagedRouter]:
        """Return the routers on which an address has to work: no client is at those without listeners, unless these
        are all."""
        return [router for router in self.routers.values() if router.serving] or [*self.routers.values()]

    def _unroutable(self, name: AddressName, type_: AddressType, active: Collection[str]) -> str:
        """Return what prevents the address from working on every router; empty if nothing does."""
        if not self.desired.may_have(name):
            return NOT_KEPT_APART
        if not self.routers:
            return "no router is connected"
        entity = TYPES[type_].entity
        for router in self.routers:
            work = self.desired.work(router, name)
            if work is None or work.kind != (entity or type_):
                return f"is a {work.kind if work else type_} on the routers until nothing of that is left"
        if entity is None:
            return ""
        if not active:
            return "no broker carries it yet" + ("" if self.desired.has_made else NAME_IT)
        return next((text for broker in active if (text := self.by_hand.problem(broker, name, entity))), "")

    def _problem(self, router: ManagedRouter, name: AddressName, active: Collection[str]) -> tuple[bool, str]:
        """Return whether the address has failed on a router, and what prevents it from working there."""
        if self._is_doubled(router.id):
            return True, DOUBLED_TEXT
        if refusal := router.refused.get(name):
            return True, refusal
        if not router.configured:
            return False, "is being configured"
        type_ = self.desired.type(name)
        if (type_ is None or not TYPES[type_].stored) and (parted := self._parted(router, self._judged())):
            return False, parted
        work = self.desired.work(router.id, name)
        return False, router.table.problem(name, work, active) if work is not None else ""

    def _parted(self, router: ManagedRouter, among: Iterable[ManagedRouter]) -> str:
        """List those of these routers to which this router lacks a connection; empty if it lacks none."""
        known = {other.id for other in among}
        others = [name for name in self.desired.mesh.parted(router.id) if name in known]
        return f"has no connection with router {', '.join(others)} yet" if others else ""

    def _leaving(self, name: AddressName) -> feeds.Readiness | None:
        """Return the readiness of an address that is no longer desired; None once its removal is complete."""
        for router in self.routers.values():
            refusal = router.refused.get(name)
            if refusal or router.works_on(name):
                message = f"router {router.id}: {refusal or 'is being removed'}"
                components = tuple(sorted(self.routers))
                return feeds.Readiness(ready=False, failed=bool(refusal), message=message, components=components)
        return None

    def _pending(self) -> dict[str, str]:
        """Describe pending work that addresses do not show: routers may still have undesired entities."""
        late = sorted(router.id for router in self.routers.values() if not router.settled)
        if self.routers and not late:
            return {}
        text = f"{', '.join(late)}: being configured" if late else "no router is connected"
        return {"addresses": text, "placements": text}

    # health

    def healthy(self) -> tuple[bool, str]:
        """Return whether everything is configured, and if not, what the agent waits for."""
        if not self.configuration.connected:
            return False, "no connection to the configuration service"
        if not self.desired.sources.has("addresses"):
            return False, "no addresses were delivered yet"
        if not self.leads:
            return True, "stands by"
        if not self.routers:
            return False, "no router is connected"
        if doubled := [name for name in sorted(self.routers) if self._is_doubled(name)]:
            return False, f"router {', '.join(doubled)}: {DOUBLED_TEXT}"
        late = [router.id for router in self.routers.values() if not router.serving]
        if late:
            return False, "; ".join([f"being configured: {', '.join(sorted(late))}", *self._refusals()])
        if parted := [
            f"router {n}: {text}"
            for n, r in sorted(self.routers.items())
            if (text := self._parted(r, self.routers.values()))
        ]:
            return False, "; ".join([*parted, *self._refusals()])
        return True, "; ".join([counted(len(self.routers), "router"), *self._notes(), *self._refusals()])

    def _refusals(self) -> list[str]:
        """List refusals by routers that concern no address."""
        return [
            f"{name}: {router.refused[ROUTER]}"
            for name, router in sorted(self.routers.items())
            if ROUTER in router.refused
        ]

    def _notes(self) -> list[str]:
        """List notices for users about routers that work."""
        notes = []
        alone = [name for name, router in sorted(self.routers.items()) if router.inter_router is None]
        if alone and len(self.routers) > 1:
            notes.append(f"{', '.join(alone)}: no listener for other routers; anycast and multicast end there")
        managed = []
        for name, router in sorted(self.routers.items()):
            if foreign := router.foreign(self._static):
                more = f" and {len(foreign) - FOREIGN_SHOWN} more" if len(foreign) > FOREIGN_SHOWN else ""
                notes.append(f"on {name}, not made here: {', '.join(foreign[:FOREIGN_SHOWN])}{more}")
            if self.desired.has_listeners and not self.desired.listeners(name):
                notes.append(f"{name} has no listener for clients: each of them is another router's")
            elif not router.extended:
                managed.append(name)
        if managed:
            notes.append(f"clients of {', '.join(managed)} reach its management: it cannot be configured otherwise")
        return notes

    def metrics(self) -> Iterator[Metric]:
        """Yield metrics of the agent and its routers (docs/metrics.md)."""
        rows = sum(len(rows) for router in self.routers.values() for rows in router.table.rows.values())
        foreign = [({"router": name}, len(router.foreign(self._static))) for name, router in self.routers.items()]
        yield gauge("ragent_routers", "Routers connected.", single(len(self.routers)))
        yield gauge("ragent_addresses", "Addresses that are desired or still being removed.", single(len(self.book)))
        yield gauge("ragent_addresses_not_ready", "Those of them that are not ready.", single(self.book.not_ready))
        yield gauge("ragent_foreign_entities", "Entities on a router that the agent has not made.", foreign)
        yield gauge("ragent_entities", "Entities that the agent made, on all routers.", single(rows))


async def serve(config: RouterAgentSettings, stop: runner.Stop) -> None:
    """Run the service until `stop` is set. Raises process.Fatal if a port cannot be opened."""
    credential = own(config)
    agent = RouterAgent(config)
    agent.lead()  # the only instance; with several, the elected leader calls this
    await run(agent, config, stop, credential)


async def run(
    agent: RouterAgent, config: RouterAgentSettings, stop: runner.Stop, credential: AnyCredential | None = None
) -> None:
    """Connect a leading or standby agent until `stop` is set. Raises process.Fatal if a port cannot be opened."""
    state = health.Health(config.health, agent.metrics, metrics_secret=config.metrics_secret)
    state.check = agent.healthy
    await state.start()
    host, port = settings.host_port(config.listen)
    listener = await listen(
        host,
        port,
        agent.accepted,
        container=config.name,
        properties={"product": "ragent"},
        peers=None if (peers := peers_at(config.peers)) is None else (Listener.AGENT, peers),
        max_connections=4 * MAX_ROUTERS,
    )
    state.endpoints = lambda: {"amqp": f"{listener.host}:{listener.port}"}
    host, port = settings.host_port(config.configserv)
    feeding = asyncio.ensure_future(
        keep_connected(host, port, agent.configuration.session, container=config.name, credential=credential)
    )
    sharing = runner.spawn(agent.client_shares.run(), "shares of clients")
    stop.on_settings(agent.take)
    try:
        await stop.wait()
    finally:
        sharing.cancel()
        feeding.cancel()
        agent.by_hand.close()
        await listener.close()
        await state.close()
