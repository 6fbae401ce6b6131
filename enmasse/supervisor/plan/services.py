"""Services of every suite, and their settings (docs/contracts.md, "A service as a process")."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from enmasse.engines import EMBEDDED
from enmasse.engines.choices import ROUTERS
from enmasse.engines.engine import MOST_ROUTERS
from enmasse.engines.program import Spec
from enmasse.identity.principal import ANONYMOUS
from enmasse.identity.processes.operator import SECRET_FILE
from enmasse.identity.processes.roles import Listener as Inner
from enmasse.model.loopback import is_loopback
from enmasse.model.mqtt_limits import Limits
from enmasse.network.trickle import LEAVING
from enmasse.process.process_bounds import ProcessBounds
from enmasse.process.service_table import DOORS
from enmasse.process.settings import METRICS_ADDRESSES, LogLevel
from enmasse.supervisor.plan import process_count
from enmasse.supervisor.plan.datadir import DataDir
from enmasse.supervisor.plan.internal_ports import LOOPBACK, InternalPorts
from enmasse.supervisor.plan.listen_option import NO_NAMES, PLAIN, Listen, Listener, Place, listeners
from enmasse.supervisor.plan.public_ports import CONSOLE, PublicPorts

ROUTER_KIND = "router"
ROUTER = f"{ROUTER_KIND}-0"
"""The first router, which has the public ports."""
SCALE_ROUTER = "scale-router.json"
"""File in the data folder with the number of routers."""
NOBODYS: Final[Mapping[str, str]] = MappingProxyType({})
"""No routers of address spaces."""
RAGENT = "ragent"
GATEWAY, SUBSERV, LWT = "mqtt_gateway", "subserv", "mqtt_lwt"
AMQP_PROTOCOLS = frozenset({"amqp", "amqps"})
MQTT_PART = "mqtt"

PARTS = (MQTT_PART,)
"""Parts that `--without` can leave out."""
AUTHSERV = "authserv"
SPARK = "spark"
"""Name, kind and engine of the pipeline's process."""
RATE, BEHIND = "rows a second", "messages behind"
"""Counts of the pipeline in the status."""
ROUTERS_LISTENERS = tuple(map(str, (Inner.OPERATORS, Inner.SERVICES, Inner.MESH)))
"""Names of a router's listeners for processes and operators."""
USERS = "users.json"
ISSUERS = "issuers.json"
LOGINS = (USERS, ISSUERS)
"""Files that prove users: with one of them clients need credentials."""
SPACES = "spaces.json"
_NUMBERED = re.compile(r"-(\d+)$")
SUPERVISOR = "enmasse"
"""The name of `enmasse up` itself among the components with a log."""
LOG_LEVEL = "info"
PEERS = "peers.verifiers"
"""File in the folder `run` from which listeners read the processes of the suite."""
CREDENTIAL = ".credential"
"""Suffix of the file in the folder `run` with the credential of a process."""
SECRET = ".secret"  # noqa: S105 (a suffix)
"""Suffix of a file there with a secret alone: the operator's, and those of routers of other products."""
SCRAM = "SCRAM-SHA-256"
CA_CERT, CA_KEY, SERVER_CERT, SERVER_KEY = "ca.crt", "ca.key", "server.crt", "server.key"
"""Files of `--tls auto`."""


class _Kept(msgspec.Struct):
    config: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `enmasse up`. Paths are absolute."""

    config: Path
    data: Path
    offset: int = 0
    tls_cert: Path | None = None
    tls_key: Path | None = None
    without: frozenset[str] = frozenset()
    """PARTS that are left out."""
    store: str | None = None
    """URL of the Redis server for the stores of MQTT; None: files in the data folder."""
    router: str = EMBEDDED
    """Engine of the routers."""
    broker: str = EMBEDDED
    """Engine of the brokers."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of pages that may connect to the gateways by WebSocket, beside those of the same host."""
    mqtt_limits: Limits = field(default_factory=Limits)
    """Limits of MQTT clients."""
    log_levels: Mapping[str, LogLevel] = field(default_factory=dict)
    """Kind of a service, or SUPERVISOR → log level; "" → level of all others."""
    tls_auto: bool = False
    """Certificate and key are made by the suite, in the data folder."""
    listen: tuple[Listen, ...] = ()
    """Addresses of the listeners for clients, beside loopback."""
    allow_anonymous: bool = False
    """Clients of other machines may connect although there are no users."""
    allow_plaintext: bool = False
    """Clients of other machines may connect without TLS."""
    users: bool = False
    """There were users at the start."""
    pipeline: Path | None = None
    """File of the telemetry pipeline that runs beside the suite; None: none does."""
    tls_client_ca: Path | None = None
    """File with the authority of clients' certificates; None: clients are not asked for one."""
    metrics_addresses: int = METRICS_ADDRESSES
    """Addresses with metrics of their own; the others are counted together."""
    gateways: ProcessBounds | None = None
    """Number of MQTT gateways, from now on; None: that of the last run."""
    routers: ProcessBounds | None = None
    """Number of routers, from now on; None: that of the last run."""
    traces: bool = False
    """Messages are traced, as the variables of OpenTelemetry in the environment say."""
    webhooks: Path | None = None
    """File of the receivers of events; None: events are posted nowhere."""
    space_domain: str = ""
    """Clients mean an address space by the host `SPACE.<space_domain>`; empty: not."""
    doors: frozenset[str] = frozenset()
    """Parts of DOORS that serve clients."""
    overridden: tuple[str, ...] = ()
    """Options of the file that the command line, or the environment, states otherwise."""
    listener_names: Mapping[Place, str] = field(default_factory=lambda: NO_NAMES)
    """Names of listeners that were there before a reload: they keep them."""
    config_stated: bool = False
    """The configuration folder was stated: it must exist, even if the suite could start without it."""

    @property
    def traced(self) -> dict[str, dict[str, str]]:
        """Return the setting of a process that carries messages."""
        return {"traces": {}} if self.traces else {}

    def log_level(self, kind: str) -> str:
        """Return the log level of `kind`."""
        return self.log_levels.get(kind) or self.log_levels.get("") or LOG_LEVEL

    @property
    def tls_folder(self) -> Path:
        """Folder of the certificates that the suite makes."""
        return self.data / "tls"

    @property
    def ca(self) -> Path | None:
        """File of the CA that clients have to trust; None if the suite has not made one."""
        return self.tls_folder / CA_CERT if self.tls_auto else None

    @property
    def certificate(self) -> tuple[Path, Path] | None:
        """Files of the server's certificate and its key; None without TLS."""
        if self.tls_auto:
            return self.tls_folder / SERVER_CERT, self.tls_folder / SERVER_KEY
        return (self.tls_cert, self.tls_key) if self.tls_cert is not None and self.tls_key is not None else None

    @property
    def public_ports(self) -> PublicPorts:
        """Return the public ports. The console is served with TLS only to users, and if `--listen` asks for it."""
        tls = self.certificate is not None
        wanted = any(each.protocol in (None, CONSOLE) for each in self.listen)
        return PublicPorts(self.offset, tls, self.has_mqtt, self.doors, console=wanted and self.users and tls)

    @property
    def shares_ports(self) -> bool:
        """Return True if all routers listen at the ports for AMQP clients."""
        return ROUTERS[self.router].shares_ports

    @property
    def has_mqtt(self) -> bool:
        """Return True if the suite serves MQTT."""
        return MQTT_PART not in self.without

    def listeners(self) -> list[Listener]:
        """Return all listeners for clients: of the routers (where they do not share ports, of the first), and of the
        gateways."""
        return self.at(self.public_ports.for_clients())

    def at(self, ports: Mapping[str, int]) -> list[Listener]:
        """Return the listeners of these protocols, given with their ports."""
        return listeners(ports, self.listen, plaintext=self.allow_plaintext, known=self.listener_names)

    def insecure(self, *, users: bool) -> list[str]:
        """Return what clients of other machines may do without: be `anonymous`, connect in `plaintext`."""
        outside = [each for each in self.listeners() if not is_loopback(each.host)]
        plain = any(each.protocol in PLAIN for each in outside)
        anonymous = [e for e in outside if not users or (e.protocol in AMQP_PROTOCOLS and not asks_for_users(self))]
        return [*(["anonymous"] if anonymous else []), *(["plaintext"] if plain else [])]


class SettingsMaker:
    """Builds the settings of services and reserves their ports."""

    def __init__(self, options: Options, data: DataDir, ports: InternalPorts) -> None:
        self.options = options
        self.ports = ports
        wanted = None if options.routers is None else options.routers.least
        self._count = process_count.stored(data.path / SCALE_ROUTER, ROUTER_KIND, MOST_ROUTERS, wanted)
        self._data, self._run = data.path, data.run
        self._audit = str(data.audit)
        self._metrics_secret = str(data.run / SECRET_FILE)

    @property
    def peers(self) -> str:
        """The file of the processes that may connect."""
        return str(self._run / PEERS)

    def stored(self, name: str) -> Path:
        """Return the folder for what the process `name` stores."""
        return self._data / name

    def credential(self, name: str) -> str:
        """Return the file with the credential of the process `name`."""
        return str(self._run / f"{name}{CREDENTIAL}")

    def address(self, key: str) -> str:
        """Return host:port of an internal port."""
        return f"{LOOPBACK}:{self.ports.get(key)}"

    @property
    def configserv(self) -> str:
        """Return host:port of configserv."""
        return self.address("configserv/amqp")

    def __call__(self, name: str, kind: str = "", **more: Any) -> dict[str, Any]:
        """Build the settings common to all services, and `more`."""
        level = self.options.log_level(kind or name)
        return {"name": name, "health": self.address(f"{name}/health"), "log_level": level, **self.common(name), **more}

    def common(self, name: str) -> dict[str, str]:
        """Return the files of a process of the suite."""
        return {"credential": self.credential(name), "audit": self._audit, "metrics_secret": self._metrics_secret}

    def routed(self, name: str, kind: str = "", **more: Any) -> dict[str, Any]:
        """Build the settings of a service behind the router, and `more`."""
        return self(name, kind, router=self.routers(name), configserv=self.configserv, **more)

    def routers(self, name: str) -> list[str]:
        """Return host:port of the listeners for services of all routers that there may be, those of now first, and of
        these another one for each process of a number. Of routers of Dispatch only the first has services."""
        if not self.options.shares_ports:
            return [self.address(f"{ROUTER}/services")]
        number = int(found[1]) if (found := _NUMBERED.search(name)) is not None else 0
        now, later = range(self._count), range(self._count, MOST_ROUTERS)
        order = [*now[number % self._count :], *now[: number % self._count], *later]
        return [self.address(f"{router_name(each)}/services") for each in order]


def fixed_services(
    options: Options, data: DataDir, ports: InternalPorts, own_routers: Mapping[str, str] = NOBODYS
) -> list[Spec]:
    """Return the services of which every suite has one, in the order of display. Reserves their ports. `own_routers`:
    router → the address space whose own it is."""
    settings = SettingsMaker(options, data, ports)
    configserv, ragent = settings.configserv, settings.address("ragent/amqp")
    tls = tls_files(options, clients=knows_roles(options)) or None
    # brokers.json names brokers made by hand; then no storage controller is needed.
    by_hand = has_brokers_by_hand(options.config)
    reporters = ["ragent"] if by_hand else ["ragent", "storage_controller"]
    of_all = [None] if options.shares_ports else map(router_name, range(MOST_ROUTERS))
    for_clients = [
        {
            "name": each.name,
            "host": each.host,
            "port": each.port,
            "tls": tls if each.protocol == "amqps" else None,
            **({} if router is None else {"router": router}),
            **({} if each.space is None else {"space": each.space}),
            **({"shared": True} if options.shares_ports else {}),
        }
        for router, space in [*((each, None) for each in of_all), *own_routers.items()]
        for each in router_listeners(options, ports, router or ROUTER, space)
    ]
    return [
        Spec(
            "configserv",
            "configserv",
            settings(
                "configserv",
                listen=configserv,
                peers=settings.peers,
                config_dir=str(options.config),
                data_dir=str(data.path / "configserv"),
                reporters=reporters,
                binders=[SUBSERV] if options.has_mqtt else [],
                holders=[*reporters[1:], *([SUBSERV, LWT] if options.has_mqtt else [])],
                domain=options.space_domain,
            ),
        ),
        Spec(
            RAGENT,
            RAGENT,
            settings(
                RAGENT,
                listen=ragent,
                peers=settings.peers,
                router_secrets=None if knows_roles(options) else str(data.run / f"{{router}}{SECRET}"),
                configserv=configserv,
                listeners=for_clients,
                mqtt=options.has_mqtt,
                sasl_plugin=AUTHSERV if asks_for_users(options) else None,
                authenticate=options.users and not knows_roles(options),
                spaces=asks_for_users(options),
                static=["ragent", *ROUTERS_LISTENERS],
            ),
        ),
        *([] if by_hand else [_storage_controller(settings, configserv, data)]),
        _console(settings),
    ]


def authserv(options: Options, data: DataDir, ports: InternalPorts) -> Spec:
    """Return the authentication service, which a suite with users has. Reserves its ports."""
    settings = SettingsMaker(options, data, ports)
    listen, configserv = settings.address(f"{AUTHSERV}/amqp"), settings.configserv
    logins = settings.address(f"{AUTHSERV}/logins")
    made = settings(AUTHSERV, listen=listen, configserv=configserv, logins=logins, peers=settings.peers)
    if not knows_roles(options):
        made["processes"] = {each: settings.address(f"{AUTHSERV}/{each}") for each in ROUTERS_LISTENERS}
    return Spec(AUTHSERV, AUTHSERV, made)


def tls_files(options: Options, *, clients: bool = True) -> dict[str, str]:
    """Return the settings `cert`, `key` and `client_ca` of listeners with TLS; empty without TLS. `clients` False:
    without the certificates of clients, which a router that does not know the users cannot use."""
    files = dict(zip(("cert", "key"), map(str, options.certificate or ()), strict=False))
    return files | ({"client_ca": str(options.tls_client_ca)} if options.tls_client_ca is not None and clients else {})


def embedded_kinds(options: Options) -> list[str]:
    """Return the kinds of service that a suite with these options starts, without those of other products, and without
    authserv: only suites with users have it, and its libraries are large."""
    kinds = ["configserv", "ragent", CONSOLE]
    kinds += ["storage_controller"] if not has_brokers_by_hand(options.config) else []
    kinds += ["router"] if options.router == EMBEDDED else []
    kinds += ["broker"] if options.broker == EMBEDDED else []
    kinds += ["subserv", "mqtt_lwt", GATEWAY] if options.has_mqtt else []
    kinds += [door.kind for part, door in DOORS.items() if part in options.doors]
    return kinds


def knows_roles(options: Options) -> bool:
    """Return True if routers know the suite's processes and their roles. Those of other products ask the
    authentication service about them."""
    return options.router == EMBEDDED


def asks_for_users(options: Options) -> bool:
    """Return True if listeners for AMQP clients ask for a user as soon as there are users. Those of Dispatch do so if
    there were users at the start."""
    return knows_roles(options) or options.users


def router_name(number: int) -> str:
    """Return name and id of a router."""
    return f"{ROUTER_KIND}-{number}"


def router_listeners(options: Options, ports: InternalPorts, name: str, space: str | None) -> list[Listener]:
    """Return a router's listeners for clients. Where routers do not share ports, those other than the first have
    internal ones, and so have routers of an address space, which share those of the space; they are reserved."""
    public = options.public_ports.of_amqp()
    if space is not None:
        return [Listener(each, each, LOOPBACK, ports.get(f"{ROUTER_KIND}-{space}/{each}"), space) for each in public]
    if name == ROUTER or options.shares_ports:
        return options.at(public)
    return [Listener(each, each, LOOPBACK, ports.get(f"{name}/{each}")) for each in public]


def router(options: Options, data: DataDir, ports: InternalPorts, name: str, space: str | None = None) -> Spec:
    """Return a router of the chosen engine. Reserves its ports. `space`: the address space whose own it is; services
    and gateways, which act for all, do not connect to it."""
    settings = SettingsMaker(options, data, ports)
    operators = operators_port(options, ports, name)
    listening = {each.at for each in router_listeners(options, ports, name, space)} | {f"{LOOPBACK}:{operators}"}
    entities = _router_entities(
        name,
        settings.address("ragent/amqp"),
        operators,
        ports.get(f"{name}/services") if space is None else None,
        ports.get(f"{name}/{Inner.MESH}"),
    )
    secret = str(data.run / f"{name}{SECRET}")
    made = ROUTERS[options.router].settings(name, entities, settings.address, options.log_level(ROUTER_KIND), secret)
    if knows_roles(options):
        made |= settings.common(name)
        made["peers"] = settings.peers
        made["configserv"] = settings.configserv
        made["metrics_addresses"] = options.metrics_addresses
        made["leave_within"] = LEAVING
        made |= options.traced
    if asks_for_users(options):
        made["entities"] = [*made["entities"], _auth_service(settings.address(f"{AUTHSERV}/amqp"))]
    return Spec(name, ROUTER_KIND, made, frozenset(listening), options.router)


def operators_port(options: Options, ports: InternalPorts, name: str) -> int:
    """Return the port of a router's listener for operators, which is reserved."""
    return options.public_ports.operators if name == ROUTER else ports.get(f"{name}/operators")


def forget_router(ports: InternalPorts, name: str) -> None:
    """Release the ports of a removed router, except those that settings of other processes contain."""
    for key in ("health", Inner.MESH):
        ports.release(f"{name}/{key}")


def has_users(config: Path) -> bool:
    """Return True if the configuration has users, or issuers that state them."""
    return any((config / file).exists() for file in LOGINS)


def has_spaces(config: Path) -> bool:
    """Return True if the configuration may have address spaces, whose users log in."""
    return (config / SPACES).exists()


def admits_anonymous(config: Path) -> bool:
    """Return True if users.json has the entry `anonymous`, for clients without credentials."""
    try:
        return ANONYMOUS in msgspec.json.decode((config / USERS).read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError):  # the configuration service reports it
        return False


def kept_users(data: Path) -> bool:
    """Return True if the configuration service has kept users or issuers in the data directory."""
    try:
        kept = msgspec.json.decode((data / "configserv" / "configuration.json").read_bytes(), type=_Kept)
    except (OSError, msgspec.DecodeError):  # the service reports it
        return False
    return any(file in kept.config for file in LOGINS)


def has_brokers_by_hand(config: Path) -> bool:
    """Return True if the configuration names brokers itself."""
    return (config / "brokers.json").exists()


def _storage_controller(settings: SettingsMaker, configserv: str, data: DataDir) -> Spec:
    engine = settings.options.broker
    driver = {
        "kind": "local",
        "desired": str(data.desired),
        "actual": str(data.actual),
        "engine": engine,
    }
    name = "storage_controller"
    most = settings.options.metrics_addresses
    return Spec(name, name, settings(name, configserv=configserv, driver=driver, metrics_addresses=most))


def _console(settings: SettingsMaker) -> Spec:
    options = settings.options
    listen = f"{LOOPBACK}:{options.public_ports.http}"
    https = [each.at for each in options.at(options.public_ports.of_console())]
    more: dict[str, Any] = {"https": https, **tls_files(options, clients=False)} if https else {}
    if options.webhooks is not None:
        more |= {"webhooks": str(options.webhooks), "webhooks_state": str(settings.stored(CONSOLE) / "webhooks.json")}
    made = settings(
        CONSOLE,
        listen=listen,
        configserv=settings.configserv,
        routers={
            name: f"{LOOPBACK}:{operators_port(options, settings.ports, name)}"
            for name in map(router_name, range(MOST_ROUTERS))
        },
        logins=settings.address(f"{AUTHSERV}/logins"),
        supervisor=f"{LOOPBACK}:{options.public_ports.admin}",
        token_uses=str(settings.stored(CONSOLE) / "token-uses.json"),
        history=str(settings.stored(CONSOLE) / "history.json"),
        **more,
    )
    return Spec(CONSOLE, CONSOLE, made, frozenset({listen, *https}))


def _auth_service(address: str) -> list[Any]:
    """Return the static entity of the authentication service, to which listeners for clients refer."""
    host, _, port = address.rpartition(":")
    return ["authServicePlugin", {"name": AUTHSERV, "host": host, "port": port}]


def _router_entities(name: str, ragent: str, operators: int, services: int | None, mesh: int) -> list[list[Any]]:
    """Return the static entities of a router: a connector to its agent, which configures everything else; a listener
    for operators, available also without the agent (listeners for clients carry no management); one for services, if
    they connect to it; one for other routers, also of a single router, so that a second one needs no restart of the
    first. Peers on these authenticate."""
    host, _, port = ragent.rpartition(":")

    def for_peers(access: str, mechanisms: str = SCRAM) -> dict[str, Any]:
        return {"saslMechanisms": mechanisms, "authenticatePeer": True, "access": access}

    for_services = {
        "name": "services",
        "host": LOOPBACK,
        "port": str(services),
        "role": "route-container",
        "management": False,
        "idleTimeoutSeconds": 8,  # as on control connections: what a process that hangs has goes to another one then
        **for_peers("services"),
    }
    return [
        ["router", {"id": name, "mode": "interior", "defaultDistribution": "unavailable"}],
        ["connector", {"name": "ragent", "host": host, "port": port, "role": "normal", "saslMechanisms": SCRAM}],
        [
            "listener",
            {
                "name": "operators",
                "host": LOOPBACK,
                "port": str(operators),
                "role": "normal",
                **for_peers("operators", f"{SCRAM} PLAIN"),
            },
        ],
        *([] if services is None else [["listener", for_services]]),
        [
            "listener",
            {
                "name": Inner.MESH.value,
                "host": LOOPBACK,
                "port": str(mesh),
                "role": Inner.MESH.value,
                **for_peers(Inner.MESH.value),
            },
        ],
    ]
