"""From the options of `enmasse up` to a running suite. Everything is checked before anything starts."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from enmasse import __version__
from enmasse.engines import EMBEDDED
from enmasse.engines.choices import BROKERS, ROUTERS
from enmasse.engines.engine import BrokerEngine, EngineUnavailable, RouterEngine
from enmasse.engines.program import Program
from enmasse.identity.processes.credentials import Credential
from enmasse.logs import log
from enmasse.process import allocator
from enmasse.process.installed import import_path
from enmasse.process.runner import PORT_OFFSET
from enmasse.process.service_table import DOORS
from enmasse.storage.files import read_file
from enmasse.supervisor import desired_processes, open_files
from enmasse.supervisor.children import logfile
from enmasse.supervisor.children.child import Command, Service
from enmasse.supervisor.children.launch import PYTHON_MODULE, ForkServer
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan import datadir, listen_option
from enmasse.supervisor.plan.internal_ports import InternalPorts
from enmasse.supervisor.plan.public_ports import CONSOLE, OTHER_PORTS, bind_all, bind_public
from enmasse.supervisor.plan.services import (
    AMQP_PROTOCOLS,
    ISSUERS,
    SPARK,
    SUPERVISOR,
    USERS,
    Options,
    admits_anonymous,
    asks_for_users,
    embedded_kinds,
    has_users,
    kept_users,
    knows_roles,
)
from enmasse.supervisor.reloading import Reload, compared
from enmasse.supervisor.suite import StatusSource, Supervisor
from enmasse.tracing.setup import EXPORTER, INSTALL, PACKAGE

if TYPE_CHECKING:
    from enmasse.http.webserver import WebServer
    from enmasse.model.merged import Content


ANOTHER_PLACE = "name another address or port"
WITHOUT_MQTT = f"{OTHER_PORTS}, or leave MQTT out with --without mqtt"


def service_command(kind: str, settings: Path) -> list[str]:
    """Return the command that starts a service."""
    return [*PYTHON_MODULE, service_module(kind), "--config", str(settings)]


def service_module(kind: str) -> str:
    """Return the Python module that is the service."""
    return f"services.{kind}"


async def _configserv_feed(address: str, credential: Credential) -> StatusSource:
    """Return configserv's status feed. Its library is imported in a thread while the children start."""
    module = await asyncio.to_thread(importlib.import_module, "enmasse.supervisor.feed")
    feed: StatusSource = module.StatusFeed(address, credential)
    return feed


def run(
    options: Options,
    out: TextIO,
    report: Callable[[str], None],
    command: Command = service_command,
    make_feed: Callable[[str, Credential], Awaitable[StatusSource]] = _configserv_feed,
    read_again: Callable[[], Options] | None = None,
) -> None:
    """Run the suite until a signal stops it. Raises StartError if it cannot start.

    `out` gets the lines of the start, `report` lines about problems. `read_again` reads the options again for a reload;
    it raises StartError. None: they stay.
    """
    open_files.raise_open_files(report)
    os.environ[PORT_OFFSET] = str(options.offset)
    os.environ.update(import_path())
    os.umask(0o077)  # for the children too: only the owner may read the data directory
    options = replace(options, users=has_users(options.config) or kept_users(options.data))
    check_names(options)
    check_store(options)
    check_traces(options)
    check_tls(options)
    check_client_ca(options)
    check_exposure(options)
    try:
        check_config(options)  # first: a wrong --config creates no folder
        with contextlib.ExitStack() as stack:
            # A new directory is created last. A used one is opened before the ports are checked: naming its user is
            # the better message, and processes of a killed suite may still have ports.
            data = stack.enter_context(_opened(options.data)) if datadir.is_used(options.data) else None
            if data is not None:
                desired_processes.check_data(data, options.broker)  # before a whole engine is fetched
            programs = _programs(options, command)
            http = stack.enter_context(bind_public(options.public_ports.admin, "ADMIN"))
            check_ports(options)
            if data is None:
                data = stack.enter_context(_opened(options.data))
            datadir.note_offset(data, options.offset)
            _start_log(options, data)
            _make_certificates(options)
            avoid = [*options.public_ports.all().values(), *(each.port for each in options.listeners())]
            ports = InternalPorts(data.run / "ports.json", avoid)
            forks = ForkServer([service_module(kind) for kind in embedded_kinds(options)])

            def again(running: Options) -> Reload:
                return reloaded(running, running if read_again is None else read_again())

            suite = Supervisor(options, data, ports, programs, forks.launch, make_feed, out, report, again)
            allocator.keep_little()
            asyncio.run(_run(suite, forks, http))
    except OSError as error:
        raise StartError("start.file.failed", f"{error.filename or options.data}: {error.strerror or error}") from None


async def _run(suite: Supervisor, forks: ForkServer, http: socket.socket) -> None:
    try:
        await forks.start()
        await suite.run(_http(http))
    finally:
        await forks.close()


def _programs(options: Options, command: Command) -> dict[str, Program]:
    """Return engine → program. Raises StartError if an engine is not available."""
    service = Service(command)
    programs: dict[str, Program] = {EMBEDDED: service}
    chosen: dict[str, RouterEngine | BrokerEngine] = {
        "--router": ROUTERS[options.router],
        "--broker": BROKERS[options.broker],
    }
    for option, engine in chosen.items():
        try:
            programs[engine.name] = engine.find(service)
        except EngineUnavailable as error:
            reason = str(error).rstrip(".")
            raise StartError(
                "start.engine.missing", f"{option} {engine.name}: {reason}. Or start with {option} {EMBEDDED}."
            ) from None
    if options.pipeline is not None:
        from enmasse.supervisor import pipeline

        pipeline.check(options.pipeline)
        programs[SPARK] = pipeline.Pipeline()
    return programs


def _start_log(options: Options, data: datadir.DataDir) -> None:
    """Send the log of `enmasse up` to a file; the terminal shows only lines for users."""
    with contextlib.suppress(OSError):  # on a full disk the suite starts without it
        own = logfile.OwnLog(data.logs / f"{SUPERVISOR}.log")
        log.setup(options.log_level(SUPERVISOR), own, audit_file=data.audit, service=SUPERVISOR)
    config, ports = str(options.config), options.public_ports.all()
    log.get().info(
        "suite.start.begun", version=__version__, pid=os.getpid(), config=config, data=str(data.path), ports=ports
    )


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[datadir.DataDir]:
    with contextlib.closing(datadir.open_data_dir(path)) as data:
        datadir.end_orphans(data)
        yield data


def _http(http: socket.socket) -> Callable[[Supervisor], WebServer]:
    def serve(suite: Supervisor) -> WebServer:
        # imported late, because its libraries take time: the services are starting already
        from enmasse.supervisor import web

        return web.serve(http, suite)

    return serve


def check_store(options: Options) -> None:
    """Raise StartError if the client of the store is not installed."""
    if options.store is not None and importlib.util.find_spec("redis") is None:
        raise StartError(
            "start.redis.missing",
            "--store needs the package `redis`: pip install '.[redis]' in the checkout",
        )


def check_traces(options: Options) -> None:
    """Raise StartError if the packages of traces are not installed."""
    try:
        missing = options.traces and importlib.util.find_spec(EXPORTER) is None
    except ModuleNotFoundError:  # of a package above it
        missing = True
    if missing:
        raise StartError("start.traces.missing", f"--traces needs the package {PACKAGE}; install it with: {INSTALL}")


LAST_PORT: Final = 65535
KEPT_CONFIGURATION: Final = " The data folder has the configuration of the last run; nothing of it was changed."


def check_names(options: Options) -> None:
    """Raise StartError if a path cannot be written into JSON."""
    for option, path in (
        ("--config", options.config),
        ("--data", options.data),
        ("--tls-cert", options.tls_cert),
        ("--tls-key", options.tls_key),
        ("--tls-client-ca", options.tls_client_ca),
        ("--with spark", options.pipeline),
    ):
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise StartError(
                "start.path.not-utf8", f"{option} {os.fsencode(path or '')!r}: the name is not UTF-8. Choose another."
            ) from None


def check_highest_port(options: Options) -> None:
    """Raise StartError if the port offset leads to a port that does not exist."""
    ports = options.public_ports.for_clients()
    name = max(ports, key=ports.__getitem__)
    if ports[name] > LAST_PORT:
        most = options.offset - ports[name] + LAST_PORT
        text = f"{name}: port {ports[name]} does not exist; give --port-offset {most} or a smaller one."
        raise StartError("start.port.not-available", text)


def check_exposure(options: Options) -> None:
    """Raise StartError if `--listen` would open more to other machines than is allowed, or cannot be served."""
    check_highest_port(options)
    served = options.public_ports.for_clients()
    for each in options.listen:
        if each.protocol is not None and each.protocol not in served:
            doors = {name: f"--with {part}" for part, door in DOORS.items() for name in (*door.plain, *door.tls)}
            parts = {**doors, "console": "users (`enmasse user add NAME`)"}
            part = parts.get(each.protocol, "MQTT")
            without_tls = each.protocol in listen_option.TLS and options.certificate is None
            needs = "--tls auto or --tls-cert" if without_tls else part
            raise StartError(
                "start.listen.not-served", f"--listen {each.text}: {each.protocol} needs {needs}, which is not there."
            )
        if each.space is not None and each.protocol in AMQP_PROTOCOLS and not knows_roles(options):
            raise StartError(
                "start.listen.not-served",
                f"--listen {each.text}: {options.router} has no listeners of one address space. Name a protocol of "
                "MQTT, or leave the space out.",
            )
    if (wrong := listen_option.contradiction(served, options.listeners(), options.listen)) is not None:
        raise StartError(
            "start.listen.not-served",
            f"--listen {wrong.text}: port {wrong.port} is that of another listener. Choose another port.",
        )
    outside = [each for each in options.listen if not each.is_local]
    if not outside:
        return
    at = ", ".join(each.text for each in outside)
    if not options.allow_anonymous and not has_users(options.config):
        raise StartError(
            "start.listen.anonymous",
            f"--listen {at}: clients of other machines could connect without a password, because {options.config} has "
            f"neither {USERS} nor {ISSUERS}. Make users with `enmasse user add NAME`, or start with --allow-anonymous.",
        )
    if not options.allow_anonymous and admits_anonymous(options.config):
        raise StartError(
            "start.listen.anonymous",
            f"--listen {at}: clients of other machines could connect without a password, because {USERS} in "
            f"{options.config} has the entry `anonymous`. Remove it with `enmasse user remove anonymous`, or start "
            "with --allow-anonymous.",
        )
    plain = [each.text for each in outside if each.protocol in listen_option.PLAIN or options.certificate is None]
    if plain and not options.allow_plaintext:
        raise StartError(
            "start.listen.plaintext",
            f"--listen {', '.join(plain)}: passwords and messages could be read on the network. Serve TLS with --tls "
            "auto or --tls-cert FILE and name no protocol without it, or start with --allow-plaintext.",
        )


def reloaded(running: Options, wanted: Options) -> Reload:
    """Return what becomes of the running options: `wanted`, as far as that takes effect. What processes open then is
    checked, and certificates are made for it. Raises StartError."""
    found = compared(running, wanted)
    options = found.options
    if knows_roles(options) and not options.users:
        options = replace(options, users=has_users(options.config))
    try:
        check_exposure(options)
        _check_new_ports(running, options)
        _make_certificates(options)
    except OSError as error:
        raise StartError("start.file.failed", f"{error.filename or options.data}: {error.strerror}") from None
    return found._replace(options=options)


def _check_new_ports(running: Options, wanted: Options) -> None:
    """Raise StartError unless listeners that do not run yet can be opened, beside those that run."""
    there = {(each.host, each.port) for each in running.listeners()}
    ports = {port for _, port in there}
    alone = {CONSOLE, *(() if wanted.shares_ports else AMQP_PROTOCOLS)}
    with contextlib.ExitStack() as stack:
        for each in wanted.listeners():
            shared = each.port in ports  # the suite has it on another address
            if (each.host, each.port) not in there and not (shared and each.protocol in alone):
                for bound in bind_all(each.host, each.port, each.protocol.upper(), ANOTHER_PLACE, shared=shared):
                    stack.enter_context(bound)


def check_ports(options: Options) -> None:
    """Raise StartError unless all ports for clients and operators are free."""
    with contextlib.ExitStack() as stack:  # all at once: two of them must not be the same
        for each in options.listeners():
            remedy = WITHOUT_MQTT if each.protocol in options.public_ports.of_mqtt() else OTHER_PORTS
            for bound in bind_all(each.host, each.port, each.protocol.upper(), remedy):
                stack.enter_context(bound)
        stack.enter_context(bind_public(options.public_ports.operators, "OPERATORS"))
        stack.enter_context(bind_public(options.public_ports.http, "HTTP"))


def _make_certificates(options: Options) -> None:
    """Make and renew the certificates of `--tls auto`. Raises StartError, OSError."""
    if options.tls_auto:
        from enmasse.supervisor.plan import suite_ca

        suite_ca.ensure(options.tls_folder, suite_ca.names(listen_option.names(options.listen), options.space_domain))


def check_tls(options: Options) -> None:
    """Raise StartError unless certificate and key are both missing, or both valid and a pair."""
    if options.tls_auto or (options.tls_cert is None and options.tls_key is None):
        return
    if options.tls_cert is None or options.tls_key is None:
        raise StartError("start.tls.incomplete", "--tls-cert and --tls-key go together: give both, or neither.")
    import ssl

    for option, path in (("--tls-cert", options.tls_cert), ("--tls-key", options.tls_key)):
        try:
            read_file(path)
        except OSError as error:
            raise StartError("start.tls.not-readable", f"{option} {path}: {error.strerror}.") from None
    try:
        # With a wrong password, because OpenSSL would ask for one on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_cert, options.tls_key, lambda: "none")
    except ssl.SSLError as error:
        raise StartError(
            "start.tls.invalid",
            f"--tls-cert {options.tls_cert}, --tls-key {options.tls_key}: {error.reason or error}. Both must be PEM "
            "files, the key without a password, and belong together.",
        ) from None


def check_client_ca(options: Options) -> None:
    """Raise StartError unless the authority of clients' certificates can be used, if there is one."""
    path = options.tls_client_ca
    if path is None:
        return
    if options.certificate is None:
        raise StartError(
            "start.tls.incomplete", "--tls-client-ca needs TLS: give --tls auto, or --tls-cert and --tls-key."
        )
    import ssl

    try:
        read_file(path)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except ssl.SSLError as error:
        raise StartError(
            "start.tls.invalid",
            f"--tls-client-ca {path}: {error.reason or error}. It must be a PEM file with the certificates of the "
            "authorities that issue clients' certificates.",
        ) from None
    except OSError as error:
        raise StartError("start.tls.not-readable", f"--tls-client-ca {path}: {error.strerror}.") from None


def is_configured(data: Path) -> bool:
    """Return True if the data directory has a last good configuration, with which the suite can start without files."""
    kept = data / "configserv"
    try:
        return kept.is_dir() and any(kept.iterdir())
    except OSError:  # opening the data directory reports it
        return False


def check_config(options: Options) -> None:
    """Raise StartError if there is no configuration to run with.

    Once configserv has stored a valid configuration, a file that does not parse changes nothing; without one the start
    fails. A folder that was stated must exist in any case: its name may be mistyped. Invalid entries in files that
    parse do not prevent the start.
    """
    folder = options.config
    _check_separation(options)
    configured = is_configured(options.data)
    if configured and (folder.is_dir() or not options.config_stated):
        return
    if folder.exists() and not folder.is_dir():
        raise StartError(
            "configuration.folder.not-a-directory",
            f"configuration directory {folder} is not a directory. Name another one with --config DIR.",
        )
    if not folder.is_dir():
        raise StartError(
            "configuration.folder.missing",
            f"configuration directory {folder}: no such directory. Correct --config, or make one with `enmasse init "
            f"{folder}`.{KEPT_CONFIGURATION if configured else ''}",
        )
    from enmasse.model.configuration import ADDRESSES, FILES, FLAVORS, Applied, apply

    applied = apply({name: _content(folder / name) for name in FILES}, Applied())
    if not (applied.users_known and all(name in applied.state.config for name in (ADDRESSES, FLAVORS))):
        lines = [f"{folder}/{problem}" for problem in applied.problems if problem.entry is None]
        raise StartError(
            "configuration.file.invalid",
            *lines,
            f"Correct {'it' if len(lines) == 1 else 'them'}; `enmasse init DIR` writes an example.",
        )


def _check_separation(options: Options) -> None:
    """Raise StartError if there are address spaces that the router would not keep clients out of."""
    path = options.config / "spaces.json"
    if asks_for_users(options) or not path.is_file():
        return
    from enmasse.model.jsonfile import Unparsable, parse

    with contextlib.suppress(Unparsable, OSError):
        if parse(path.name, read_file(path)).entries:
            raise StartError(
                "start.spaces.unprotected",
                f"{path}: Qpid Dispatch lets clients without credentials reach the addresses of every space. Add a "
                "user to users.json first, or use the embedded router.",
            )


def _content(path: Path) -> Content:
    from enmasse.model.merged import content_by

    return content_by(lambda: read_file(path))
