"""A running EnMasse for tests, benchmarks and the demo: own folder, own ports, started and stopped as a user would."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from enmasse.cli.commands.suite.init import write
from enmasse.cli.commands.suite.status import EMPTY, fetch
from enmasse.cli.contexts.http import NotRunning, get_status
from enmasse.identity.processes.credentials import Credential
from enmasse.identity.processes.operator import BEARER, OPERATOR, credential, read_secret
from enmasse.process.service_table import DOORS
from enmasse.supervisor.plan.internal_ports import INTERNAL
from enmasse.supervisor.plan.public_ports import (
    ADMIN,
    AMQP,
    AMQPS,
    CONSOLE_HTTPS,
    HTTP,
    MQTT,
    MQTTS,
    OPERATORS,
    WS,
    WSS,
)  # fmt: skip

PORTS = (AMQPS, AMQP, OPERATORS, ADMIN, HTTP, CONSOLE_HTTPS, MQTT, MQTTS, WS, WSS)
"""Ports of a suite without `--with`."""
OFFSETS = range(1000, INTERNAL.start - max(PORTS))
"""Offsets with which no public port of a suite can be an internal port of another one."""
_held: deque[socket.socket] = deque()
STATUS_SECONDS = 60.0
"""Seconds for one answer of a suite, on a loaded machine."""
HELD = 480
"""Number of ports that stay reserved: older ones are in use by now, or released. select(2) knows 1,024 descriptors."""


def free_ports(*ports: int) -> bool:
    """Reserve these ports on loopback for this process; return False if one of them is in use.

    They stay bound, as `enmasse up` does it with its internal ports: other processes that look for a free port do not
    get them, and a server that sets SO_REUSEADDR can still listen there.
    """
    holders: list[socket.socket] = []
    try:
        for port in ports:
            holders.append(socket.socket())
            holders[-1].bind(("127.0.0.1", port))
    except OSError:
        for holder in holders:
            holder.close()
        return False
    for holder in holders:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _held.extend(holders)
    while len(_held) > HELD:
        _held.popleft().close()
    return True


def ports_of(options: Iterable[str]) -> list[int]:
    """Return the ports of a suite with these options."""
    given = set(options)
    doors = [door for part, door in DOORS.items() if part in given]
    return [*PORTS, *(port for door in doors for port in (*door.plain.values(), *door.tls.values()))]


def free_offset(options: Iterable[str] = ()) -> int:
    """Return a port offset with which all ports of a suite with these options are free, and reserve them. Raises
    RuntimeError if no port is free."""
    ports = ports_of(options)
    offsets = range(OFFSETS.start, min(OFFSETS.stop, 65536 - max(ports)))
    for offset in _from_anywhere(offsets):
        if free_ports(*(port + offset for port in ports)):
            return offset
    raise RuntimeError(f"no free port offset between {offsets.start} and {offsets.stop}")


def _from_anywhere(offsets: range) -> Iterator[int]:
    """Yield all, from a random one on: to shuffle them takes 2 ms."""
    begin = random.choice(offsets)
    yield from range(begin, offsets.stop)
    yield from range(offsets.start, begin)


def free_port() -> int:
    """Return a free port, and reserve it. Raises RuntimeError if no port is free."""
    for offset in _from_anywhere(OFFSETS):
        if free_ports(port := max(PORTS) + offset):
            return port
    raise RuntimeError("no free port")


def wait_for(what: str, condition: Callable[[], Any], seconds: float = 120) -> Any:
    """Poll until the condition gives something true, and return that. Raises TimeoutError naming `what`."""
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began  # taken before the evaluation, so that there is one after the deadline
        if result := condition():
            return result
        if waited >= seconds:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(min(max(waited / 20, 0.01), 0.2))


def operator_headers(data: Path) -> dict[str, str]:
    """Return the headers with the operator's secret of the suite with this data folder; without the secret, none."""
    secret = read_secret(data)
    return {} if secret is None else {"Authorization": f"{BEARER}{secret}"}


class UpProcess(Protocol):
    """The part of subprocess.Popen that is used of a running `enmasse up`."""

    @property
    def pid(self) -> int:
        """Return the process id."""

    @property
    def args(self) -> Any:
        """Return the command."""

    @property
    def returncode(self) -> int | None:
        """Return the exit status; None while it runs."""

    @property
    def stdout(self) -> IO[str] | None:
        """Return what it writes."""

    def poll(self) -> int | None:
        """Return the exit status; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status. Raises subprocess.TimeoutExpired."""

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL."""


class Executed:
    """Starts `enmasse` commands by executing them. `program`: command that runs in the place of `enmasse`."""

    def __init__(self, *program: str) -> None:
        self._program = program or (str(PROGRAM),)

    def up(self, arguments: list[str], stderr: IO[str] | None) -> UpProcess:
        """Start `enmasse up`. `stderr`: of it; None: that of this process."""
        command = [*self._program, "up", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)

    def run(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run([*self._program, *arguments], capture_output=True, text=True)


PROGRAM = Path(sys.executable).parent / "enmasse"
commands: Executed = Executed()
"""Starter of the commands of suites. The tests have one that forks them."""


class Suite:
    """A running `enmasse up`."""

    def __init__(
        self,
        folder: Path,
        addresses: dict[str, Any] | None = None,
        flavors: dict[str, Any] | None = None,
        *,
        options: Iterable[str] = ("--without", "mqtt"),
    ) -> None:
        """`addresses`, `flavors`: entries beside (or instead of) those `enmasse init` writes. `options`: of `up`,
        without MQTT unless a test asks for it, which costs three processes."""
        self.options = list(options)
        self.folder, self.offset = folder, free_offset(self.options)
        self.commands: Executed | None = None
        """Starter of its commands, if it has one of its own."""
        self.addresses, self.flavors = addresses or {}, flavors or {}
        self.config, self.data = folder / "config", folder / "data"
        self.process: UpProcess | None = None
        self.lines: list[str] = []
        self.stderr: IO[str] | None = None
        """Destination of its warnings; None: stderr of this process."""

    @property
    def url(self) -> str:
        """Return the AMQP URL for clients."""
        return f"amqp://127.0.0.1:{5672 + self.offset}"

    @property
    def mqtt_port(self) -> int:
        """Return the port for MQTT clients."""
        return 1883 + self.offset

    @property
    def operators(self) -> str:
        """Host and port of the listener for operators of the router."""
        return f"127.0.0.1:{5673 + self.offset}"

    @property
    def operators_url(self) -> str:
        """Return the AMQP URL of that listener, with the operator's secret. The suite must be running."""
        return f"amqp://{OPERATOR}:{read_secret(self.data)}@{self.operators}"

    @property
    def operator(self) -> Credential | None:
        """Return the operator's credential; without a running suite, None."""
        secret = read_secret(self.data)
        return None if secret is None else credential(secret)

    @property
    def operator_headers(self) -> dict[str, str]:
        """Return the headers of requests to the suite's HTTP endpoint; without a running suite, no header."""
        return operator_headers(self.data)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run an `enmasse` command to its end and return its outcome."""
        return (self.commands or commands).run(list(arguments))

    def init(self) -> None:
        """Write the configuration files, as `enmasse init` does. With addresses of a test the one for all other MQTT
        topics is left out: at most one may be that. Raises OSError."""
        write(self.config)
        if self.addresses:  # otherwise the file is not rewritten
            self.edit("addresses.json", self.addresses, remove=["mqtt"])
        if self.flavors:
            self.edit("flavors.json", self.flavors)

    def edit(self, name: str, entries: dict[str, Any], *, remove: Iterable[str] = ()) -> None:
        """Change entries of a configuration file, by atomic rename as an editor or `enmasse address` does it."""
        file = self.config / name
        content = json.loads(file.read_text())
        content.update(entries)
        for one in remove:
            content.pop(one, None)
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(content, indent=2) + "\n")
        fresh.rename(file)

    def up(self, seconds: float = 300) -> float:
        """Start and return the seconds until the suite printed that it is ready.

        Raises RuntimeError if it ends before; after `seconds` it is ended.
        """
        began = time.monotonic()
        options = ["--config", str(self.config), "--data", str(self.data), "--port-offset", str(self.offset)]
        options += self.options
        self.process = (self.commands or commands).up(options, self.stderr)
        assert self.process.stdout is not None
        too_late = threading.Timer(seconds, self.process.terminate)  # which ends the lines
        too_late.start()
        try:
            for line in self.process.stdout:
                self.lines.append(line.rstrip())
                if line.strip() == "EnMasse is ready":
                    return time.monotonic() - began
        finally:
            too_late.cancel()
        raise RuntimeError("EnMasse did not become ready:\n" + "\n".join(self.lines))

    def status(self) -> dict[str, Any]:
        """Return the status JSON; of a suite that does not answer yet, that of `enmasse status --json`.

        It is read over HTTP: tests poll it, and a process each time would take the processor for itself.
        """
        try:
            return get_status(self.offset, STATUS_SECONDS)
        except NotRunning:
            return EMPTY

    def component(self, kind: str, holding: str = "") -> dict[str, Any]:
        """Return the first component of a kind, or the one that carries an address.

        Raises RuntimeError without one.
        """
        status = self.status()
        names = {c for a in status["addresses"] if a["name"] == holding for c in a["components"]}
        found = [c for c in status["components"] if c["kind"] == kind and (not holding or c["name"] in names)]
        if not found:
            raise RuntimeError(f"no {kind} for {holding!r} in {status}")
        component: dict[str, Any] = found[0]
        return component

    def kill(self, *components: dict[str, Any]) -> None:
        """Kill the processes of components (SIGKILL). Return when they have ended: before, the suite may still report
        that it is ready. Raises TimeoutError.
        """
        for component in components:
            os.kill(component["pid"], signal.SIGKILL)
        for component in components:
            wait_for(f"the end of {component['name']}", partial(_has_ended, component["pid"]))

    def wait_ready(self, seconds: int = 120) -> None:
        """Return when everything is ready. Raises TimeoutError after `seconds`."""
        _, problem = fetch(self.offset, seconds)
        if problem:
            raise TimeoutError("\n".join(problem))

    def down(self) -> int:
        """Stop the suite and return its exit status; kill it if it has not ended after a minute."""
        if self.process is None:
            return 0
        self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@contextlib.contextmanager
def running(
    folder: Path, addresses: dict[str, Any] | None = None, flavors: dict[str, Any] | None = None, **more: Any
) -> Iterator[Suite]:
    """Yield a suite with its files written, to be started with `up()`; it is stopped at the end whatever happened."""
    suite = Suite(folder, addresses, flavors, **more)
    suite.init()
    try:
        yield suite
    finally:
        if suite.process is not None and suite.process.poll() is None:
            suite.down()
