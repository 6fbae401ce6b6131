"""`enmasse up` in a process that was forked from one that has imported it and all services (`processes.UP`).

Executed, it imports 300 modules, and its fork server 700 others: 0.6 s of processor time of the 1.2 s that a suite
takes. Here the first process that it starts, the fork server, is forked beside it before it begins, and waits until it
is wanted. A later one is executed.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence

from enmasse.cli import main
from enmasse.process import startup
from enmasse.supervisor import start
from enmasse.supervisor.children import forkserver, launch
from enmasse.supervisor.plan.services import AUTHSERV
from enmasse.testing import PROGRAM
from tests.kit.forkserver import LONGEST

TITLE = [*launch.PYTHON_MODULE, "enmasse.supervisor.children.forkserver"]

if __name__ != "__main__":
    forkserver.prepare()


class _Beside(launch.Forked):
    """A fork server that was forked, with what is used of asyncio's process."""

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ReadyForkServer(launch.ForkServer):
    """A fork server whose first process waits already, and has imported the authentication service too, which costs 0.3
    s of processor time where it is executed."""

    waiting: tuple[socket.socket, int] | None = None

    def __init__(self, modules: Sequence[str]) -> None:
        super().__init__([*modules, start.service_module(AUTHSERV)])

    async def _start(self) -> socket.socket:
        if (waiting := ReadyForkServer.waiting) is None:
            return await super()._start()
        ReadyForkServer.waiting = None
        ours, pid = waiting
        launch.inherit_orphans()
        ours.send(json.dumps([launch.environment(), resource.getrlimit(resource.RLIMIT_NOFILE)]).encode())
        self._server = _Beside(pid)  # type: ignore[assignment]  # a process by its methods
        ours.setblocking(False)
        return ours


def _wait(theirs: socket.socket) -> None:
    """Be the fork server, once the client wants one."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    message = theirs.recv(LONGEST)
    if not message:
        os._exit(0)
    environment, files = json.loads(message)
    os.environ.clear()
    os.environ.update(environment)
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    os.umask(0o077)
    startup.begin()
    os.setpgid(0, 0)
    os.dup2(theirs.fileno(), 0)
    theirs.close()
    forkserver.show(TITLE)
    gc.freeze()
    forkserver.answer(socket.socket(fileno=0), ["services"])
    startup.end(0)


def run() -> None:
    """Run `enmasse` with the arguments of this process."""
    sys.argv[0] = str(PROGRAM)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if not pid:
        atexit._clear()
        ours.close()
        _wait(theirs)
    theirs.close()
    ReadyForkServer.waiting = ours, pid
    setattr(start, "ForkServer", ReadyForkServer)  # noqa: B010  it exports only `run`
    forkserver.show([sys.executable, *sys.argv])
    gc.enable()
    main()


if __name__ == "__main__":
    run()
