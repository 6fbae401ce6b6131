"""Starting processes of the suite: executed, or forked from a process that has imported the services already.

Importing takes a service a quarter of a second of processor time and 20 MiB; a forked one starts in milliseconds and
shares these pages with the others (docs/decisions/0031-services-are-forked.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from enmasse.logs import log
from enmasse.supervisor.children.forkserver import LONGEST

PYTHON_MODULE = (sys.executable, "-P", "-m")
"""Begin of a command that runs a Python module. -P: no imports from the current directory."""
_PR_SET_CHILD_SUBREAPER = 36
REAP_SECONDS = 1.0
_launched: set[int] = set()
"""Ids of all processes that were started here: others wait for them."""


class Process(Protocol):
    """A started child process: one of asyncio, or a forked one."""

    @property
    def pid(self) -> int:
        """Return the process id."""

    @property
    def returncode(self) -> int | None:
        """Return the status, or minus the number of the signal that ended the process; None while it runs."""

    async def wait(self) -> int:
        """Wait for the end of the process. Returns `returncode`."""

    def send_signal(self, number: int) -> None:
        """Send a signal. Raises ProcessLookupError if the process has ended."""


Launch = Callable[[Sequence[str], int], Awaitable[Process]]
"""(command, descriptor of its output) → the child process, in a process group of its own, which ends with this one.
Raises OSError. The caller keeps the descriptor."""


async def execute(command: Sequence[str], output: int) -> Process:
    """Launch a program by executing it."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment(),
        process_group=0,  # Ctrl-C is for the supervisor, which ends its children in order
    )
    _launched.add(process.pid)
    return process


async def reap_orphans() -> None:
    """Wait, until cancelled, for processes that have ended and whose parents, children of this process, ended before:
    they have become children of this process."""
    seen: set[int] = set()
    while True:
        ended = _ended_children() - _launched
        for pid in ended & seen:  # one that was launched a moment ago is not in `_launched` yet
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        seen = ended
        await asyncio.sleep(REAP_SECONDS)


def _ended_children() -> set[int]:
    """Return the children of this process that have ended and were not waited for; empty where /proc lacks that."""
    found = set()
    for task in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in map(int, task.read_text().split()):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z":
                        found.add(pid)
    return found


def environment() -> dict[str, str]:
    """Return the environment of a child process, which ends with this one."""
    return {**os.environ, "ENMASSE_PARENT": str(os.getpid())}


class Forked:
    """A forked child process, followed by a descriptor of the process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        _launched.add(pid)
        self._descriptor = os.pidfd_open(pid)
        self._ended = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(self._descriptor, self._on_end)

    async def wait(self) -> int:
        """Wait for the end of the process. Returns its status, or minus the number of the signal that ended it."""
        return int(await asyncio.shield(self._ended))

    def send_signal(self, number: int) -> None:
        """Send a signal. Raises ProcessLookupError if the process has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._descriptor, number)

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set_result(self.returncode)


CAN_FORK = sys.platform == "linux" and hasattr(os, "pidfd_open")
"""True where a forked grandchild can become a child of this process."""


class ForkServer:
    """A server process that forks services (forkserver.py). The first launch after its end starts another one.

    `modules`: the modules it imports; commands that run another module or program are executed.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._turn = asyncio.Lock()
        self._socket: socket.socket | None = None
        self._server: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the server process, which imports the modules meanwhile. If that fails, the first launch repeats it."""
        if CAN_FORK:
            with contextlib.suppress(OSError):
                self._socket = await self._start()

    async def _start(self) -> socket.socket:
        """Start the server process, which imports the modules after this returns. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                inherit_orphans()
                self._server = await asyncio.create_subprocess_exec(
                    *(*PYTHON_MODULE, "enmasse.supervisor.children.forkserver", *self._modules),
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,  # each service reports what fails in its own log
                    env=environment(),
                    process_group=0,
                )
                _launched.add(self._server.pid)
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        return ours

    async def launch(self, command: Sequence[str], output: int) -> Process:
        """Fork the service that `command` names; execute any other command, and all while the server cannot fork.

        Raises OSError.
        """
        size = len(PYTHON_MODULE)
        if not CAN_FORK or tuple(command[:size]) != PYTHON_MODULE or command[size] not in self._modules:
            return await execute(command, output)
        try:
            return Forked(await self._ask(command[size:], output))
        except OSError as error:
            log.get().warning("suite.fork.failed", error=str(error), module=command[size])
            return await execute(command, output)

    async def _ask(self, words: Sequence[str], output: int) -> int:
        """Return the process id of a new process. Raises OSError."""
        async with self._turn:
            if self._socket is None:
                self._socket = await self._start()
            try:
                socket.send_fds(self._socket, [json.dumps(words).encode()], [output])
                answer = int(await asyncio.get_running_loop().sock_recv(self._socket, LONGEST) or -errno.ECONNRESET)
                if answer < 0:
                    raise OSError(-answer, os.strerror(-answer))
            except BaseException:  # also if the caller is cancelled: the next one must not read this answer
                await self.close()
                raise
            return answer

    async def close(self) -> None:
        """End the server process. The forked processes continue."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                self._server.kill()
            await self._server.wait()
            self._server = None


def inherit_orphans() -> None:
    """Make this process the parent of descendants whose parent has ended. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
