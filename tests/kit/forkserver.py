"""Server process that has imported modules and forks a Python program for each request.

    python -m tests.kit.forkserver FD MODULE…

`FD`: a SEQPACKET socket to the client (`processes.py`); or one that listens, then each client has a server of its own,
which is forked from this one and has all imported. A request is the JSON list [ARGUMENTS, FOLDER, ENVIRONMENT]
with four file descriptors: standard input, output and error of the program, and a pipe for its exit status. ARGUMENTS
are those of the interpreter: `-m MODULE ARGUMENT…` or `FILE ARGUMENT…`. The answer is the process id. The status has
the values of subprocess.Popen.returncode, in decimal. The server ends with its client, and its programs with the server
if ENMASSE_PARENT is in their environment.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from typing import NoReturn

from enmasse.process import startup

LONGEST = 200_000
"""Bytes of a request at most."""


def prepare(modules: list[str]) -> None:
    """Import the modules."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client
    os.umask(mask := os.umask(0o077))  # services change it when they are imported
    for module in modules:
        importlib.import_module(module)
    os.umask(mask)
    gc.collect()
    gc.freeze()


def share(listening: socket.socket) -> None:
    """Fork a server for each client that connects."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets what has ended
    while True:
        client, _ = listening.accept()
        with client:
            if not os.fork():
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                serve(client)
                os._exit(0)


def serve(client: socket.socket) -> None:
    """Fork a program for each request until the client ends."""
    waiting = selectors.DefaultSelector()
    waiting.register(client, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.data is not None:
                waiting.unregister(key.fd)
                os.close(key.fd)
                _report(*key.data)
                continue
            request, files, _, _ = socket.recv_fds(client, LONGEST, 4)
            if not request:
                return
            *streams, status = files
            pid = os.fork()
            if not pid:
                os.close(status)
                for each in list(waiting.get_map().values()):
                    if each.data is not None:
                        os.close(each.fd)
                        os.close(each.data[1])
                waiting.close()
                client.close()
                _run(request, streams)
            for descriptor in streams:
                os.close(descriptor)
            waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))
            client.send(b"%d" % pid)


def _report(pid: int, status: int) -> None:
    """Write how a process ended."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(status, b"%d" % code)
    os.close(status)


def _run(request: bytes, streams: list[int]) -> NoReturn:
    """Run the program of the request in this process, to its end."""
    arguments, folder, environment = json.loads(request)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, max(streams) + 1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if "ENMASSE_PARENT" in os.environ:
        os.environ["ENMASSE_PARENT"] = str(os.getppid())
    try:
        if arguments[0] == "-m":
            main = f"{arguments[1]}.__main__"  # runpy warns of a module that was imported before it is run
            sys.modules.pop(main if main in sys.modules else arguments[1], None)
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code is not None and not isinstance(ended.code, int):
            raise  # a text: the interpreter shows it
        startup.end(ended.code or 0)
    startup.end(0)


if __name__ == "__main__":
    given = socket.socket(fileno=int(sys.argv[1]))
    prepare(sys.argv[2:])
    (share if given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) else serve)(given)
