"""The running suite of `enmasse up`: its children, its view of the status feed, its ready line, its end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import msgspec

from enmasse.engines import EMBEDDED
from enmasse.engines.choices import BROKERS, ROUTERS
from enmasse.engines.engine import MOST_ROUTERS
from enmasse.engines.program import Program, Spec
from enmasse.identity.processes.credentials import Credential
from enmasse.identity.processes.roles import Role
from enmasse.logs import log
from enmasse.model.mqtt_limits import MOST_GATEWAYS
from enmasse.process import runner
from enmasse.process.process_bounds import ProcessBounds
from enmasse.process.service_table import DOORS, SERVICES
from enmasse.process.terminal import has_terminal
from enmasse.storage.files import NO_ROOM, write_json
from enmasse.supervisor import desired_processes, space_listeners, status, welcome
from enmasse.supervisor.autoscaler import Autoscaler
from enmasse.supervisor.certificate_troubles import Certificates
from enmasse.supervisor.children import logfile
from enmasse.supervisor.children.brokers import DesiredBrokers
from enmasse.supervisor.children.child import Child
from enmasse.supervisor.children.group import STOP_WITHIN, ChildGroup
from enmasse.supervisor.children.launch import Launch, reap_orphans
from enmasse.supervisor.children.replicas import Replicas
from enmasse.supervisor.children.space_processes import SpaceProcesses
from enmasse.supervisor.error_lines import NOT_ASKED, error_lines
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan import door_gateways, listen_option, mqtt
from enmasse.supervisor.plan.credential_issuer import CredentialIssuer
from enmasse.supervisor.plan.datadir import DataDir
from enmasse.supervisor.plan.internal_ports import LOOPBACK, InternalPorts
from enmasse.supervisor.plan.own_routers import forget_routers_of, own_routers
from enmasse.supervisor.plan.services import (
    GATEWAY,
    LOGINS,
    RAGENT,
    ROUTER_KIND,
    SCALE_ROUTER,
    SPACES,
    SPARK,
    SUPERVISOR,
    USERS,
    Options,
    admits_anonymous,
    asks_for_users,
    authserv,
    fixed_services,
    forget_router,
    has_spaces,
    has_users,
    knows_roles,
    router,
)
from enmasse.supervisor.reloading import Reload, renewed
from enmasse.text import printable

if TYPE_CHECKING:  # imported after the services have been started
    from enmasse.http.webserver import WebServer

POLL_UNSETTLED, POLL_SETTLED = 0.05, 0.5
"""Seconds between two looks at the folder `desired`."""
WRITE_AGAIN = 1.0
"""Seconds until a failed write of the files for other processes is repeated, for example on a full disk."""
RENEWED_WITHIN = 20.0
"""Seconds for processes to listen where options say that are read again."""
HANG_UP = 0.1
"""Seconds from SIGHUP until it is looked whether the terminal is there."""
PATIENCE = 20.0
"""Seconds until progress of the start is reported."""
STOP_ORDER = (
    (SPARK,),
    *(
        tuple(name for name, service in SERVICES.items() if service.ends == turn)
        for turn in sorted({service.ends for service in SERVICES.values()})
    ),
)
"""Kinds of processes, in the order in which they are ended."""


class StatusSource(Protocol):
    """The status feed of configserv, and the way to force addresses."""

    body: dict[str, Any] | None
    """The newest state, kept while the feed is lost: `config` and `errors`, `addresses` and, of these, `unready`."""
    spaces: Collection[str] | None
    """The address spaces beside the default one, as last known; None: not known yet."""
    gateways: dict[str, int] | None
    """Address space → its number of gateways of its own, as last known; None: not known yet."""
    routers: dict[str, int] | None
    """Address space → its number of routers of its own, likewise."""
    attached: bool
    """True if `body` is current: set with the first snapshot after an attach."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow the feed until cancelled, reconnecting after losses."""

    async def force(self, names: list[str]) -> str | None:
        """Have configserv discard the messages of these addresses. Return the reason if it refused."""


class Supervisor:
    """All processes of `enmasse up`. `out` gets the lines of the start, `say` further lines for users. `programs`:
    engine → program. `read_again`: what becomes of running options if they are read again; raises StartError.
    """

    def __init__(
        self, options: Options, data: DataDir, ports: InternalPorts, programs: Mapping[str, Program], launch: Launch,
        make_feed: Callable[[str, Credential], Awaitable[StatusSource]], out: TextIO, say: Callable[[str], None],
        read_again: Callable[[Options], Reload],
    ) -> None:  # fmt: skip
        self.options = options
        self.data = data
        self.is_ready = False
        self._ports = ports
        self._programs = programs
        self._launch = launch
        self._make_feed = make_feed
        self._out = out
        self._say = say
        self._read_again = read_again
        self._reloading = asyncio.Lock()
        self._had_terminal = has_terminal()
        self._issuer = CredentialIssuer(data.run, BROKERS[options.broker].peers)
        self._news = asyncio.Event()
        self._fixed: dict[str, Child] = {}
        self._brokers = DesiredBrokers(
            options, data, ports, self._child, self._news.set, self._say_once, self._withdraw
        )
        self._routers = Replicas(
            ROUTER_KIND, MOST_ROUTERS, data.path / SCALE_ROUTER,
            self._router, self._forget_router, self._news.set,
        )  # fmt: skip
        self._gateways = Replicas(
            GATEWAY, MOST_GATEWAYS, data.path / "scale.json", self._gateway, self._forget_gateway, self._news.set
        )
        self._doors = {
            door.kind: Replicas(
                door.kind, MOST_GATEWAYS, data.path / f"scale-{door.kind}.json",
                partial(self._door, part), self._forget_door, self._news.set,
            )
            for part, door in DOORS.items() if part in options.doors
        }  # fmt: skip
        self._autoscalers = [Autoscaler(group) for group in (self._routers, self._gateways, *self._doors.values())]
        self._own_gateways = SpaceProcesses(self._own_gateway, self._forget_own_gateway, self._news.set, self._say_once)
        self._own_routers = SpaceProcesses(self._own_router, self._forget_own_router, self._news.set, self._say_once)
        self._authserv: Child | None = None
        self._has_users = options.users
        self._admits_anonymous = admits_anonymous(options.config)
        self._certificates: Certificates | None = None
        if (files := options.certificate) is not None:
            self._certificates = Certificates(*files, options.tls_client_ca, self._news.set)
        self._feed: StatusSource | None = None
        self._web: WebServer | None = None
        self._stop = asyncio.Event()
        self._shown_ready: set[str] = set()
        self._shown_lines: set[str] = set()
        self._listener_problems: list[str] = []
        self._written_pids: list[int] = []
        self._logged_config: dict[str, str] = {}
        self._log = log.get()
        self._written_actual: list[dict[str, Any]] | None = None

    @property
    def operator_secret(self) -> str:
        """The secret that requests of operators carry."""
        return self._issuer.operator_secret

    # Queries and commands

    async def queries(self) -> dict[str, Any]:
        """Return the queries of the Spark pipeline, and its newest windows; nothing without one."""
        if self.options.pipeline is None:
            return {"queries": [], "windows": []}
        from enmasse.supervisor import pipeline

        return await pipeline.progress(self.data)

    async def refresh(self) -> None:
        """Have what the queries return as of a moment ago."""
        await asyncio.gather(*(child.refresh() for child in self._children()))

    def components(self) -> list[dict[str, Any]]:
        """Return `components` of the status JSON: the fixed services, routers, gateways, then brokers by name, and last
        those that leave."""
        leaving = [child for child in self._leaving() if child.leaving]
        found = [child.component(redundant=self._is_redundant(child)) for child in (*self._children(), *leaving)]
        for entry in found:
            if entry["kind"] == "configserv" and entry["ready"] and not (self._feed and self._feed.attached):
                entry["ready"], entry["detail"] = False, "its status feed has not delivered yet"
            if entry["kind"] == ROUTER_KIND and self._lets_in_everyone:
                entry["ready"], entry["detail"] = False, f"{NOT_ASKED}; {entry['detail']}"
        for entry in found:
            if (space := self._own_routers.spaces_with({}).get(entry["name"])) is not None:
                entry["detail"] = "; ".join(filter(None, (f"of the address space {space}", entry["detail"])))
        for each in self._autoscalers:
            for first in (one for one in found if each.sentence and one["name"] == f"{each.kind}-0"):
                first["detail"] = "; ".join(filter(None, (first["detail"], each.sentence)))
        return found

    def status(self) -> status.Status:
        """Return the current status JSON."""
        feed = self._feed.body if self._feed else None
        return self._merged(feed)

    def status_text(self) -> bytes:
        """Return the current status as JSON, without decoding what configserv has sent of each address."""
        feed = self._feed.body if self._feed else None
        if feed is not None:
            feed = {**feed, "addresses": feed["addresses"].raw()}
        return msgspec.json.encode(self._merged(feed))

    def _merged(self, feed: Mapping[str, Any] | None) -> dict[str, Any]:
        return status.merge(
            self.components(), feed, self.options.ca, self._insecure(), self.certificate_troubles, self._listeners()
        )

    def _listeners(self) -> list[dict[str, Any]]:
        return space_listeners.rows(self.options, self._feed.spaces if self._feed else None)

    @property
    def certificate_troubles(self) -> list[str]:
        """Sentences about the certificates of listeners that expire, have expired or cannot be used."""
        return self._certificates.troubles if self._certificates is not None else []

    def brief(self) -> dict[str, Any]:
        """Return `schema`, `ready` and `config` of the status JSON: with 100,000 addresses at no cost for each."""
        return status.brief(self.components(), self._feed.body if self._feed else None)

    def scale(self, service: str, bounds: ProcessBounds) -> tuple[bool, str]:
        """Set the number of processes of `service`. Return whether that is accepted, and the reason or what happens."""
        if service == GATEWAY and self.options.has_mqtt:
            if bounds.least == 0:
                return (
                    False,
                    "without a gateway nothing serves MQTT; `enmasse up --without mqtt` starts a suite without it",
                )
            return self._gateways.scale(bounds)
        if (door := self._doors.get(service)) is not None:
            return door.scale(bounds)
        if service == ROUTER_KIND:
            if not bounds.fixed and self.options.router != EMBEDDED:
                return False, "only embedded routers come and go by their load: name one number"
            own = len(self._own_routers.spaces_with({}))
            if own and bounds.most > MOST_ROUTERS - own:
                return False, f"a suite has at most {MOST_ROUTERS} routers, and address spaces have {own} of their own"
            return self._routers.scale(bounds)
        return status.scale(self.components(), service, bounds)

    def restart(self, name: str) -> tuple[bool, str]:
        """Have a process end and start again. Return whether that is accepted, and the reason or what happens."""
        children = self._children()
        child = next((each for each in children if each.spec.name == name), None)
        if child is None:
            names = sorted(each.spec.name for each in children)
            return False, f"there is no component {name!r}; there are {', '.join(names)}"
        if not child.restart(STOP_WITHIN, hands_on=self._is_redundant(child)):
            return False, f"{name} is starting or ending at the moment: see `enmasse status`"
        if child.leaving:
            return True, f"{name} hands its clients on, and starts again then"
        return True, f"{name} ends, and starts again then"

    def _is_redundant(self, child: Child) -> bool:
        """Return True if another ready process serves clients at a port of this one."""
        ports = child.spec.wanted_endpoints
        return bool(ports) and any(
            each is not child and each.is_serving and each.spec.wanted_endpoints & ports for each in self._sharing()
        )

    async def reload(self) -> Reload:
        """Read the options again, and have those take effect that can. Raises StartError, and changes nothing then;
        OSError, if files cannot be written."""
        async with self._reloading:
            try:
                found = await asyncio.to_thread(self._read_again, self.options)
            except StartError as error:
                self._log.warning("suite.options.rejected", reason=str(error))
                raise
            before, self.options = self.options, found.options
            log.set_level(self.options.log_level(SUPERVISOR))
            for group, wanted, changed in (
                (self._routers, self.options.routers, self.options.routers != before.routers),
                (self._gateways, self.options.gateways, self.options.gateways != before.gateways),
            ):
                if changed and wanted is not None and not (done := group.scale(wanted))[0]:
                    found.waiting.append(f"{group.kind}={wanted}: {done[1]}")
            found.waiting.extend(await self._renew())
            found.warnings.extend(space_listeners.problems(self._listeners()))
            self._news.set()
            self._log.info("suite.options.reloaded", changed=found.changed, later=found.later, waiting=found.waiting)
            return found

    async def _renew(self) -> list[str]:
        """Have the processes take the options. Return what they have not done in time, as sentences. Raises OSError."""
        self._brokers.take(self.options)
        changes = [(child, child.spec, renewed(child.spec, spec)) for child, spec in self._wanted_specs()]
        for child, _, spec in changes:
            child.renew(spec)
        done = await asyncio.gather(
            *(
                child.renewed(spec.wanted_endpoints, old.wanted_endpoints - spec.wanted_endpoints, RENEWED_WITHIN)
                for child, old, spec in changes
                if child.pid is not None
            )
        )
        return [each for each in done if each]

    def _wanted_specs(self) -> Iterator[tuple[Child, Spec]]:
        """Yield the processes that are not brokers with their descriptions by the options."""
        common = self.options, self.data, self._ports
        own_routers = self._own_routers.spaces_with(self._own_routers.desired)
        for spec in (*fixed_services(*common, own_routers), *mqtt.keepers(*common)):
            if spec.name in self._fixed:
                yield self._fixed[spec.name], spec
        if self._authserv is not None:
            yield self._authserv, authserv(*common)
        for child in self._routers.children:
            yield child, router(*common, child.spec.name)
        for child, space in self._own_routers.by_space():
            yield child, router(*common, child.spec.name, space)
        for child in self._gateways.children:
            yield child, mqtt.gateway(*common, child.spec.name)
        for child, space in self._own_gateways.by_space():
            yield child, mqtt.gateway_of(*common, child.spec.name, space)
        for part, door in DOORS.items():
            for child in self._doors[door.kind].children if door.kind in self._doors else ():
                yield child, door_gateways.gateway(*common, part, child.spec.name)

    def scraped(self) -> list[tuple[str, str, int]]:
        """Return name, host and health port of each component that serves metrics."""
        specs = [child.spec for child in self._children() if child.ready]
        routers = (name for name, engine in ROUTERS.items() if not engine.serves_http)
        silent = {SPARK, *routers, *(name for name, engine in BROKERS.items() if not engine.serves_http)}
        return [(spec.name, LOOPBACK, spec.health_port) for spec in specs if spec.engine not in silent]

    async def force(self, names: list[str]) -> str | None:
        """Discard the messages of these addresses. Return the reason if that was refused."""
        return (
            await self._feed.force(names) if self._feed else "the configuration service is not reached yet; try again"
        )

    # Its life

    async def run(self, serve_http: Callable[[Supervisor], WebServer]) -> None:
        """Run until SIGINT or SIGTERM, or until its terminal is closed. `serve_http` starts the HTTP server.

        Raises OSError if its files cannot be written, other than for lack of room.
        """
        self._catch_signals()
        self._issuer.begin()
        specs = fixed_services(self.options, self.data, self._ports)
        specs += mqtt.keepers(self.options, self.data, self._ports)
        if self.options.pipeline is not None:
            from enmasse.supervisor import pipeline

            specs.append(pipeline.spec(self.options, self.data))
        self._fixed = {spec.name: self._child(spec) for spec in specs}
        self._look_at_desired()  # brokers of the last run start with the rest,
        try:
            self._write_facts()  # and files of the last run are replaced
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._news.set()  # written as soon as possible
        for line in welcome.first_lines(self.options, self._insecure()):
            self._print(line)
        for child in self._fixed.values():
            child.start()
        if self._has_users or has_spaces(self.options.config) or not knows_roles(self.options):
            self._start_authserv()
        self._start_replicas(self._routers, self.options.routers, "--routers")
        if self.options.has_mqtt:
            self._start_replicas(self._gateways, self.options.gateways, "--gateways")
        for door in self._doors.values():
            door.start()
        followers = (self._follow_desired(), self._show_changes(), self._show_what_is_missing())
        tasks = [asyncio.create_task(follower) for follower in followers]
        tasks += [asyncio.create_task(each.run()) for each in self._autoscalers]
        if self.options.pipeline is not None:
            tasks.append(asyncio.create_task(reap_orphans()))
        if self.options.tls_auto:
            tasks.append(asyncio.create_task(self._keep_certificates()))
        if self._certificates is not None:
            tasks.append(asyncio.create_task(self._certificates.watch()))
        try:
            await asyncio.sleep(0)  # the children's tasks launch their processes before this one spends time on imports
            self._web = serve_http(self)
            self._feed = await self._make_feed(specs[0].settings["listen"], self._issuer.supervisor)
            tasks.append(asyncio.create_task(self._feed.run(self._news.set)))
            await self._until_stopped(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._stop_children()
            self._issuer.end()
            if self._web is not None:
                self._web.close()
            self._ports.close()

    def _start_replicas(self, group: Replicas, wanted: ProcessBounds | None, option: str) -> None:
        accepted, reason = (True, "") if wanted is None else group.scale(wanted)
        if not accepted:
            self._say_once(f"{option} {wanted}: {reason}")
        group.start()

    async def _keep_certificates(self) -> None:
        from enmasse.supervisor.plan import suite_ca  # its libraries take time and memory

        def names() -> list[str]:
            return suite_ca.names(listen_option.names(self.options.listen), self.options.space_domain)

        await suite_ca.keep(self.options.tls_folder, names, self._say_once)

    @property
    def _lets_in_everyone(self) -> bool:
        """There are users now, for which listeners for AMQP clients do not ask."""
        return self._has_users and not asks_for_users(self.options)

    def _insecure(self) -> list[str]:
        users = self._has_users or has_users(self.options.config)
        return self.options.insecure(users=users and not self._admits_anonymous)

    async def _until_stopped(self, tasks: list[asyncio.Task[None]]) -> None:
        stopped = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for task in done - {stopped}:
            await task  # these tasks never end by themselves: raises their error

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def asked() -> None:
            self._log.info("suite.stop.requested", now=self._stop.is_set())
            if self._stop.is_set():  # requested twice: end at once
                for child in (*self._children(), *self._leaving()):
                    child.kill()
            self._stop.set()

        async def hung_up() -> None:
            await asyncio.sleep(HANG_UP)  # the terminal goes at about the same time
            if self._had_terminal and not has_terminal():
                asked()
                return
            try:
                self._say(f"options: {await self.reload()}")
            except StartError as error:
                self._say(f"options: nothing was changed: {error}")
            except OSError as error:
                self._say(f"options: {error.filename or self.data.run}: {error.strerror}")

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, asked)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
            loop.add_signal_handler(signal.SIGHUP, lambda: runner.spawn(hung_up(), "reload"))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})

    def _child(self, spec: Spec) -> Child:
        program = self._programs[spec.engine]

        def issue() -> None:
            if spec.engine == EMBEDDED or spec.kind == ROUTER_KIND:
                self._issuer.issue(spec.name, Role(spec.kind), as_line=spec.engine != EMBEDDED)

        return Child(spec, program, self._launch, self.data.run, self.data.logs, issue, self._news.set, self._say)

    def _withdraw(self, name: str) -> None:
        """Withdraw the credential of a process that has left the suite."""
        try:
            self._issuer.withdraw(name)
        except OSError as error:
            self._say_once(f"{error.filename or self.data.run}: {error.strerror}")

    def _users_came(self) -> None:
        """Have the authentication service from the first users on."""
        if not self._has_users and not asks_for_users(self.options):
            self._say_once(f"INSECURE: {NOT_ASKED}")
        self._has_users = True
        self._start_authserv()

    def _start_authserv(self) -> None:
        """Start the authentication service, unless it runs."""
        if self._authserv is None:
            self._authserv = self._child(authserv(self.options, self.data, self._ports))
            self._authserv.start()

    def _router(self, name: str) -> Child:
        return self._child(router(self.options, self.data, self._ports, name))

    def _forget_router(self, name: str) -> None:
        forget_router(self._ports, name)
        self._withdraw(name)

    def _gateway(self, name: str) -> Child:
        return self._child(mqtt.gateway(self.options, self.data, self._ports, name))

    def _forget_gateway(self, name: str) -> None:
        mqtt.forget_ports(self._ports, name)
        self._withdraw(name)

    def _door(self, part: str, name: str) -> Child:
        return self._child(door_gateways.gateway(self.options, self.data, self._ports, part, name))

    def _forget_door(self, name: str) -> None:
        door_gateways.forget_ports(self._ports, name)
        self._withdraw(name)

    def _own_gateway(self, name: str, space: str) -> Child:
        return self._child(mqtt.gateway_of(self.options, self.data, self._ports, name, space))

    def _forget_own_gateway(self, name: str, space: str | None) -> None:
        mqtt.forget_ports(self._ports, name)
        if space is not None:
            mqtt.forget_ports_of(self._ports, space)
        self._withdraw(name)

    def _own_router(self, name: str, space: str) -> Child:
        return self._child(router(self.options, self.data, self._ports, name, space))

    def _forget_own_router(self, name: str, space: str | None) -> None:
        self._forget_router(name)
        if space is not None:
            forget_routers_of(self._ports, space)
        self._tell_agent(self._own_routers.desired)

    def _want_own_routers(self, wanted: Mapping[str, int]) -> None:
        """Have these numbers of routers of address spaces. The agent knows before they come whose they are."""
        found, missing = own_routers(wanted, self._own_routers.desired, self._routers.bounds.most)
        for space in missing:
            self._say_once(
                f"spaces.json: the address space {space!r} has fewer routers of its own than it wants: a suite has at "
                f"most {MOST_ROUTERS}"
            )
        if found != self._own_routers.desired and self._tell_agent(found):
            self._own_routers.want(found)

    def _tell_agent(self, desired: Mapping[str, str]) -> bool:
        """Have the router agent know the routers of address spaces, these and those that are not gone yet. Return
        whether that was written."""
        spaces = self._own_routers.spaces_with(desired)
        specs = fixed_services(self.options, self.data, self._ports, spaces)
        agent = self._fixed[RAGENT]
        try:
            agent.renew(renewed(agent.spec, next(spec for spec in specs if spec.name == RAGENT)))
        except OSError as error:
            self._say_once(f"{error.filename or self.data.run}: {error.strerror}")
            asyncio.get_running_loop().call_later(WRITE_AGAIN, self._news.set)
            return False
        return True

    def _sharing(self) -> list[Child]:
        """Return the processes of which several may serve clients at one port."""
        return [*self._all_routers(), *self._all_gateways()]

    def _children(self) -> list[Child]:
        own = [*self._fixed.values(), *([self._authserv] if self._authserv is not None else [])]
        return [*own, *self._all_routers(), *self._all_gateways(), *self._brokers.children]

    def _all_routers(self) -> list[Child]:
        return [*self._routers.children, *self._own_routers.children]

    def _all_gateways(self) -> list[Child]:
        doors = [child for door in self._doors.values() for child in door.children]
        return [*self._gateways.children, *self._own_gateways.children, *doors]

    def _groups(self) -> tuple[ChildGroup[Any], ...]:
        return (
            self._routers,
            self._own_routers,
            self._gateways,
            self._own_gateways,
            *self._doors.values(),
            self._brokers,
        )

    def _leaving(self) -> list[Child]:
        return [child for group in self._groups() for child in group.leaving]

    async def _stop_children(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_WITHIN
        await asyncio.gather(*(group.all_left() for group in self._groups()))
        for kinds in STOP_ORDER:
            patience = max(0.5, deadline - loop.time())
            await asyncio.gather(*(c.stop(patience) for c in self._children() if c.spec.kind in kinds))
        with contextlib.suppress(OSError):
            (self.data.run / "children.json").unlink(missing_ok=True)

    # The local driver

    async def _follow_desired(self) -> None:
        """Keep exactly the processes of the folder `desired` running, and the files with secrets where they are."""
        loop = asyncio.get_running_loop()
        while True:
            self._look_at_desired()
            for child in (*self._children(), *self._leaving()):
                child.look(loop.time())
            logfile.rotate_log(self.data.audit)
            with contextlib.suppress(OSError):
                self._issuer.restore()
            settled = self.is_ready and self._brokers.settled
            await asyncio.sleep(POLL_SETTLED if settled else POLL_UNSETTLED)

    def _look_at_desired(self) -> None:
        if "storage_controller" in self._fixed:  # without it no service manages such brokers
            self._brokers.look([*self._fixed, *(child.spec.name for child in self._sharing())])

    # Files and lines for users and the storage controller

    async def _show_changes(self) -> None:
        """After every change: the file `actual`, the list of pids, lines on stdout and stderr."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                self._write_facts()
            except OSError as error:
                self._say_once(f"{error.filename or self.data.run}: {error.strerror}")
                asyncio.get_running_loop().call_later(WRITE_AGAIN, self._news.set)
            for component in self.components():
                if component["ready"] and component["name"] not in self._shown_ready:
                    self._shown_ready.add(component["name"])
                    self._print(f"{component['name']} is ready (pid {component['pid']})")
            self._show_listener_problems()
            if self._feed and self._feed.gateways is not None and self.options.has_mqtt:
                self._own_gateways.want(mqtt.own_gateways(self._feed.gateways))
            if self._feed and self._feed.routers is not None and self.options.shares_ports:
                self._want_own_routers(self._feed.routers)
            if self._feed and self._feed.body:
                self._log_configuration(self._feed.body)
                if any(file in self._feed.body.get("config", {}) for file in LOGINS):
                    self._users_came()
                elif SPACES in self._feed.body.get("config", {}):
                    self._start_authserv()  # their users log in
                for line in error_lines(self._feed.body.get("errors", ())):
                    self._say_once(line)
                if not self.is_ready and self._feed.attached:
                    self._show_ready(list(self._feed.body["unready"]))

    def _show_listener_problems(self) -> None:
        found = space_listeners.problems(self._listeners())
        for line in found:
            if line not in self._listener_problems:
                self._shown_lines.discard(line)  # the space may have been there meanwhile
                self._say_once(line)
        self._listener_problems = found

    def _log_configuration(self, body: dict[str, Any]) -> None:
        """Log which files apply with changed content. configserv logs the changes in them."""
        for name, digest in dict(body.get("config", {})).items():
            if self._logged_config.get(name) != digest:
                self._logged_config[name] = digest
                self._log.info("suite.configuration.applied", file=name, sha256=digest)
                if name == USERS:
                    self._admits_anonymous = admits_anonymous(self.options.config)

    def _show_ready(self, unready: list[dict[str, Any]]) -> None:
        if not status.started(self.components(), unready):
            return
        self.is_ready = True
        for address in unready:
            self._say(f"address {address['name']} is {address['phase']}: {address.get('message', '')}")
        self._log.info("suite.start.completed")
        for line in ("EnMasse is ready", *welcome.lines(self.options, self.status()["addresses"])):
            self._print(line)

    async def _show_what_is_missing(self) -> None:
        """Report the progress of a long start to the user."""
        await asyncio.sleep(PATIENCE)
        if not self.is_ready:
            current = self.status()
            waiting = [f"{c['name']} ({c['detail'] or 'not ready'})" for c in current["components"] if not c["ready"]]
            waiting += [f"address {a['name']} ({a['phase']})" for a in current["addresses"] if not a["ready"]]
            more = f" and {len(waiting) - 10} more" if len(waiting) > 10 else ""
            self._log.warning("suite.start.delayed", waiting_for=waiting[:10], more=max(0, len(waiting) - 10))
            self._say(f"still waiting for {', '.join(waiting[:10])}{more}; logs are in {self.data.logs}")
        await asyncio.Event().wait()  # ended by cancellation, like the others

    def _write_facts(self) -> None:
        """Write the changed files. Raises OSError; the next call repeats the rest."""
        pids = sorted(child.pid for child in (*self._children(), *self._leaving()) if child.pid is not None)
        actual = self._brokers.actual()
        children_file, actual_file = self.data.run / "children.json", self.data.actual
        if actual != self._written_actual or not actual_file.exists():
            desired_processes.write_actual(actual_file, actual)
            self._written_actual = actual
        if pids != self._written_pids or not children_file.exists():
            write_json(children_file, pids)
            self._written_pids = pids

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the reader has gone, or the disk is full: not a reason to stop
            self._out.write(printable(line) + "\n")
            self._out.flush()

    def _say_once(self, line: str) -> None:
        if line not in self._shown_lines:
            if len(self._shown_lines) > 10_000:
                self._shown_lines.clear()
            self._shown_lines.add(line)
            self._log.warning("suite.notice.printed", line=line)
            self._say(line)
