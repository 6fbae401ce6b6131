"""From the options of `enmasse up` to a running suite: everything that can be wrong is found before anything starts."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from enmasse import __version__, log
from enmasse.process import PORT_OFFSET
from enmasse.supervisor import datadir, limits, logfile
from enmasse.supervisor.child import Command
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.files import read_file
from enmasse.supervisor.plan import SUPERVISOR, Options
from enmasse.supervisor.ports import InternalPorts, bind_public, check_public
from enmasse.supervisor.suite import Feed, Suite

if TYPE_CHECKING:
    from enmasse.model.configuration import Content
    from enmasse.webserver import WebServer


def service_command(kind: str, settings: Path) -> list[str]:
    """How a service is started. -P: the folder `enmasse up` was called in must not lend it modules."""
    return [sys.executable, "-P", "-m", f"services.{kind}", "--config", str(settings)]


async def _configserv_feed(address: str) -> Feed:
    """configserv's status feed. Its library is imported in a thread: the children start meanwhile."""
    module = await asyncio.to_thread(importlib.import_module, "enmasse.supervisor.feed")
    feed: Feed = module.StatusFeed(address)
    return feed


def run(
    options: Options,
    out: TextIO,
    say: Callable[[str], None],
    command: Command = service_command,
    make_feed: Callable[[str], Awaitable[Feed]] = _configserv_feed,
) -> None:
    """Run the suite until it is told to stop. Raises StartError when it cannot start."""
    limits.raise_open_files(say)
    os.environ[PORT_OFFSET] = str(options.offset)
    os.umask(0o077)  # for the children too: what lies in the data directory is nobody else's business
    check_names(options)
    check_tls(options)
    try:
        check_config(options)  # first: a wrong --config makes no folder
        with contextlib.ExitStack() as stack:
            # A directory that is new is made last of all. Of one that was used, who uses it is told before the ports
            # that he has, and a killed suite has left processes there that may have ports.
            data = stack.enter_context(_opened(options.data)) if datadir.is_used(options.data) else None
            listening = stack.enter_context(bind_public(options.http_port, "HTTP"))
            for name, port in options.public_ports().items():
                check_public(port, name.upper())
            if data is None:
                data = stack.enter_context(_opened(options.data))
            _start_log(options, data)
            avoid = [*options.public_ports().values(), options.http_port]
            ports = InternalPorts(data.run / "ports.json", avoid)
            suite = Suite(options, data, ports, command, make_feed, out, say)
            asyncio.run(suite.run(_http(listening)))
    except OSError as error:
        raise StartError(f"{error.filename or options.data}: {error.strerror or error}") from None


def _start_log(options: Options, data: datadir.DataDir) -> None:
    """What `enmasse up` itself logs goes into a file; the terminal has what people need to know."""
    with contextlib.suppress(OSError):  # a full disk: the suite starts all the same
        log.setup(options.log_level(SUPERVISOR), logfile.OwnLog(data.logs / f"{SUPERVISOR}.log"), service=SUPERVISOR)
    config, ports = str(options.config), {**options.public_ports(), "http": options.http_port}
    log.get().info("starting", version=__version__, pid=os.getpid(), config=config, data=str(data.path), ports=ports)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[datadir.DataDir]:
    with contextlib.closing(datadir.open_data_dir(path)) as data:
        datadir.end_orphans(data)
        yield data


def _http(listening: socket.socket) -> Callable[[Suite], WebServer]:
    def serve(suite: Suite) -> WebServer:
        from enmasse.supervisor import web  # its libraries take their time: the services have been started before

        return web.serve(listening, suite)

    return serve


def check_names(options: Options) -> None:
    """Raise StartError where a path cannot be written into JSON."""
    for option, path in (
        ("--config", options.config),
        ("--data", options.data),
        ("--tls-cert", options.tls_cert),
        ("--tls-key", options.tls_key),
    ):
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise StartError(f"{option} {os.fsencode(path or '')!r}: the name is not UTF-8. Choose another.") from None


def check_tls(options: Options) -> None:
    """Raise StartError unless certificate and key are both absent, or both there and belong together."""
    if options.tls_cert is None and options.tls_key is None:
        return
    if options.tls_cert is None or options.tls_key is None:
        raise StartError("--tls-cert and --tls-key go together: give both, or neither.")
    import ssl

    for option, path in (("--tls-cert", options.tls_cert), ("--tls-key", options.tls_key)):
        try:
            read_file(path)
        except OSError as error:
            raise StartError(f"{option} {path}: {error.strerror}.") from None
    try:
        # With a password of our own, which is wrong: OpenSSL would ask for one at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_cert, options.tls_key, lambda: "none")
    except ssl.SSLError as error:
        raise StartError(
            f"--tls-cert {options.tls_cert}, --tls-key {options.tls_key}: {error.reason or error}. Both must be PEM "
            "files, the key without a password, and belong together."
        ) from None


def is_configured(data: Path) -> bool:
    """Whether the data directory holds a last good configuration, which the suite starts with if the files are gone."""
    kept = data / "configserv"
    return kept.is_dir() and any(kept.iterdir())


def check_config(options: Options) -> None:
    """Raise StartError if the suite has nothing to run with.

    Once configserv has kept a good configuration, a file that does not parse changes nothing; without one there is
    nothing to serve. Invalid entries in files that parse do not prevent the start.
    """
    folder = options.config
    if is_configured(options.data):
        return
    if not folder.is_dir():
        raise StartError(f"configuration directory {folder}: no such directory. `enmasse init {folder}` makes one.")
    from enmasse.model.configuration import ADDRESSES, FILES, FLAVORS, AppliedState, apply

    applied = apply({name: _content(folder / name) for name in FILES}, AppliedState())
    if not all(name in applied.state.config for name in (ADDRESSES, FLAVORS)):
        lines = [f"{folder}/{problem}" for problem in applied.problems if problem.entry is None]
        raise StartError(*lines, f"Put {'it' if len(lines) == 1 else 'them'} right; `enmasse init DIR` shows how.")


def _content(path: Path) -> Content:
    from enmasse.model.configuration import Unreadable

    try:
        return read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Unreadable(error.strerror or str(error))
