"""Python programs as processes: services and `enmasse` commands.

Importing takes a program 0.15 to 0.3 s of processor time. On Linux one process has imported what a program imports, and
forks it (`forkserver.py`); elsewhere it is executed, as Pods and images do. The suites of `enmasse up` are not started
here.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from enmasse.cli.registry import module_of
from enmasse.supervisor.children.forkserver import IMPORTED_LATER
from enmasse.testing import Executed, UpProcess
from tests.kit.forkserver import LONGEST

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Program:
    """A Python program: the first arguments of the interpreter, and modules that it imports. Without any, it is always
    executed."""

    arguments: tuple[str, ...]
    imports: tuple[str, ...]


COMMANDS = ("up", "status", "scale", "address", "subscription", "retained", "mqtt", "send", "receive", "bench")
OF_COMMANDS = tuple(
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for folder in ("contexts", "messages", "output", "configuration")
    for file in sorted((ROOT / "enmasse" / "cli" / folder).glob("*.py"))
    if file.stem not in ("__init__", "cluster")
)
"""What commands import as they need it."""
COMMAND = Program(
    (str(Path(sys.executable).with_name("enmasse")),),
    (
        "enmasse.cli.registry",
        *(module_of(name) for name in (*COMMANDS, "publish", "subscribe", "user", "flavor", "space", "connection")),
        *OF_COMMANDS, "enmasse.aio.mqtt", "difflib", "encodings.idna",
    ),
)  # fmt: skip
"""The command line."""
SERVICES = tuple(f"services.{file.parent.name}.__main__" for file in sorted((ROOT / "services").glob("*/__main__.py")))


def service(kind: str) -> Program:
    """Return the program of a service. It is forked from the same process as suites."""
    return Program(("-m", f"services.{kind}"), UP.imports)


LATER = ("services.console.web", "enmasse.supervisor.web", "prometheus_client.core", "prometheus_client.exposition")
"""Modules that processes of a suite import with the first request, to have less memory until then."""
UP = Program(
    ("-m", "tests.kit.forked_up"), (*IMPORTED_LATER, *LATER, *SERVICES, *COMMAND.imports, "tests.kit.forked_up")
)
"""The command line again, for `up`: the services of its suite are forked from the same process."""


class Forked:
    """A forked program, with the part of subprocess.Popen that tests use."""

    def __init__(self, pid: int, status: int) -> None:
        """`status`: the pipe with the exit status."""
        self.pid = pid
        self.returncode: int | None = None
        self.status = status
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status, or minus the number of the signal that ended the process; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        with self._reading:
            if self.returncode is None:
                ended = select.poll()
                ended.register(self.status, select.POLLIN)
                if not ended.poll(None if timeout is None else timeout * 1000):
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
                with open(self.status, "rb") as status:
                    self.returncode = int(status.read() or -signal.SIGKILL)  # nothing: the server was killed
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


Process = Forked | subprocess.Popen[bytes]


def _start_server(
    given: socket.socket, imports: tuple[str, ...], before: Callable[[], None] | None = None
) -> subprocess.Popen[bytes]:
    """Start a server of programs. `given`: a socket to its client, or one to which clients will connect."""
    command = [sys.executable, "-m", "tests.kit.forkserver", str(given.fileno()), *imports]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(given.fileno(),),
        preexec_fn=before,
    )  # fmt: skip


class Server:
    """A server process that has imported the modules of a program. It ends with this process."""

    def __init__(self, imports: tuple[str, ...]) -> None:
        self._asking = threading.Lock()
        if imports in _shared:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._socket.connect(_shared[imports])
            return
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = _start_server(theirs, imports)

    def fork(self, arguments: list[str], streams: list[int], folder: str, environment: dict[str, str]) -> Forked:
        """Start a program."""
        status, theirs = os.pipe()
        with self._asking:
            socket.send_fds(self._socket, [json.dumps([arguments, folder, environment]).encode()], [*streams, theirs])
            os.close(theirs)
            answer = self._socket.recv(LONGEST)
        assert answer, "the fork server has ended"
        return Forked(int(answer), status)


_servers: dict[tuple[str, ...], Server] = {}
_shared: dict[tuple[str, ...], str] = {}
"""Sockets of servers for several processes, by what they have imported."""
_starting = threading.Lock()


def listen_for_servers(folder: Path) -> dict[socket.socket, tuple[str, ...]]:
    """Make sockets to which processes that are forked from this one will connect for a server of the suite's programs:
    with what it imports. `folder`: of the sockets."""
    found = {}
    for number, program in enumerate((UP, COMMAND)):
        path = str(folder / f"programs-{number}")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(path)
        listening.listen()
        found[listening] = program.imports
        _shared[program.imports] = path
    return found


def share_server(listening: socket.socket, imports: tuple[str, ...]) -> None:
    """Start the server from which those of all who connect to this socket are forked. It ends with this process."""
    with listening:
        _start_server(listening, imports, end_with_parent)


def own_servers() -> None:
    """Let this process have servers of its own, whose programs are below it."""
    _shared.clear()


def _interpreter(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that change how the interpreter itself starts."""
    return {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LD_"))}


_OWN = _interpreter(dict(os.environ))


def forks(program: Program, environment: dict[str, str]) -> bool:
    """Return True if a program is forked, with these variables on top of those of this process."""
    return sys.platform == "linux" and bool(program.imports) and _interpreter({**os.environ, **environment}) == _OWN


def start(
    program: Program, *arguments: str | Path, stdin: int = 0, stdout: int = 1, stderr: int = 2,
    cwd: Path | None = None, environment: dict[str, str] | None = None,
) -> Process:  # fmt: skip
    """Start a program: forked on Linux, unless its environment changes how the interpreter starts; else executed.
    `environment`: on top of this process's."""
    words = [*program.arguments, *map(str, arguments)]
    whole = {**os.environ, **(environment or {})}
    streams = [stdin, stdout, stderr]
    if not forks(program, environment or {}):
        return subprocess.Popen([sys.executable, *words], stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=whole)
    with _starting:
        if program.imports not in _servers:
            _servers[program.imports] = Server(program.imports)
    return _servers[program.imports].fork(words, streams, str(cwd or Path.cwd()), whole)


def end_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends; put it in a group of its own. For servers
    that are no programs of ours, as `preexec_fn` of subprocess.Popen."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    os.setpgid(0, 0)


def start_service(
    kind: str | Program,
    config: Path,
    *,
    log: IO[bytes] | IO[str] | None = None,
    environment: dict[str, str] | None = None,
) -> Process:
    """Start a service, which ends with this process. `log`: what it writes goes there instead of standard error."""
    program = service(kind) if isinstance(kind, str) else kind
    parent = {"ENMASSE_PARENT": str(os.getpid())}
    stderr = 2 if log is None else log.fileno()
    return start(program, "--config", config, stderr=stderr, environment=parent | (environment or {}))


def run(
    program: Program, *arguments: str | Path, input: str | None = None, stdout: int | None = None,
    seconds: float = 180, environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run a program to its end. Its output is in the result, or goes to the descriptor `stdout`. Raises
    subprocess.TimeoutExpired, and kills the program, after `seconds`."""
    with contextlib.ExitStack() as files:
        given, out, err = (files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3))
        if input is not None:
            given.write(input)
            given.seek(0)
        stdin = 0 if input is None else given.fileno()
        process = start(
            program, *arguments, stdin=stdin, stdout=out.fileno() if stdout is None else stdout, stderr=err.fileno(),
            environment=environment,
        )  # fmt: skip
        try:
            status = process.wait(seconds)
        except BaseException:
            process.kill()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(map(str, arguments)), status, out.read(), err.read())


class ForkedUp(Forked):
    """A forked `enmasse up`, whose output this process reads."""

    def __init__(self, process: Forked, arguments: list[str], stdout: IO[str]) -> None:
        super().__init__(process.pid, process.status)
        self.args, self.stdout = arguments, stdout


class ForkedCommands(Executed):
    """Forks the commands of suites, where that is possible."""

    def up(self, arguments: list[str], stderr: IO[str] | None) -> UpProcess:
        """Start `enmasse up`. `stderr`: of it; None: that of this process."""
        if not forks(UP, {}):
            return super().up(arguments, stderr)
        reading, writing = os.pipe()
        process = start(UP, "up", *arguments, stdout=writing, stderr=2 if stderr is None else stderr.fileno())
        os.close(writing)
        assert isinstance(process, Forked)
        return ForkedUp(process, arguments, os.fdopen(reading))

    def run(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return run(COMMAND, *arguments)
