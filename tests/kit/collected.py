"""A process that has imported all tests, from which the processes of pytest are forked, with `-n`.

    python -m tests.kit.collected FD ARGUMENT…

To import the tests takes each process about five seconds of processor time, and a minute where they are not compiled
yet. `FD`: a listening socket, to which `forked_worker.py` connects; it accepts when the tests that ARGUMENT names are
imported. The server ends with the process that has started it.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import NoReturn

import pytest

from enmasse.process import startup
from tests.kit import processes

FORKED_WORKER = Path(__file__).with_name("forked_worker.py")


class Collected:
    """The server, from the side of the process that starts it."""

    def __init__(self, arguments: list[str]) -> None:
        """`arguments`: files and folders of tests."""
        self._folder = tempfile.TemporaryDirectory(prefix="pytest-collected-")
        path = f"{self._folder.name}/socket"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()
            command = [sys.executable, "-m", "tests.kit.collected", str(listening.fileno()), *arguments]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(listening.fileno(),))
        self.python = f"{sys.executable} {FORKED_WORKER} {path}"
        """Command that takes the place of the interpreter's."""

    def close(self) -> None:
        """End the server."""
        self._process.communicate()
        self._folder.cleanup()


def serve(listening: socket.socket, arguments: list[str]) -> None:
    """Import the tests, then fork a process for each connection until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *arguments])  # the workers show what is wrong
    from hypothesis.internal import charmap

    charmap.charmap()
    charmap.intervals_from_codec("utf-8")  # two seconds in a fresh clone, in each process that has texts as examples
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets what has ended
    waiting = selectors.DefaultSelector()
    waiting.register(listening, selectors.EVENT_READ)
    waiting.register(0, selectors.EVENT_READ)
    servers = processes.listen_for_servers(Path(listening.getsockname()).parent)
    for one in servers:
        waiting.register(one, selectors.EVENT_READ)
    while True:
        ready = [key.fileobj for key, _ in waiting.select()]
        if 0 in ready:
            return
        for one in [one for one in servers if one in ready]:  # the first process wants it
            waiting.unregister(one)
            processes.share_server(one, servers.pop(one))
        if listening not in ready:
            continue
        client, _ = listening.accept()
        with client:
            _, streams, _, _ = socket.recv_fds(client, 1, 3)
            if len(streams) == 3 and not os.fork():
                waiting.close()
                for one in (listening, *servers):
                    one.close()
                _run(client, streams)
            for each in streams:
                os.close(each)


def _run(client: socket.socket, streams: list[int]) -> NoReturn:
    """Be the interpreter that xdist has started: run what it sends."""
    for standard, each in enumerate(streams):
        os.dup2(each, standard)
        os.close(each)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    client.send(b"x")
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  it stays open
    sys.argv = ["-c"]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(eval(sys.stdin.readline()), vars(main))
    startup.end(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
