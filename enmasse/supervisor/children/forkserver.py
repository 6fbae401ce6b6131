"""Server process that has imported the services and forks a process for each start of one.

    python -P -m enmasse.supervisor.children.forkserver MODULE…

Standard input is a SEQPACKET socket to the client (`launch.py`), which is the parent of this process and a child
subreaper. A request is the JSON list [MODULE, ARGUMENT…] with one file descriptor, the output of the new process. The
answer is its process id, or an error number of the system, negative. The new process becomes a child of the client: a
killed server leaves the services running. The server ends when the client closes the socket, or ends.

What a service imports with its first client that needs it, the server imports after it
(enmasse/process/late_imports.py): the first client of the process that replaces it does not wait again, and a suite
without such clients has none of that.

Imports next to nothing itself: a service is forked with what is imported here.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import select
import socket
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from enmasse.process import startup

LONGEST = 65_536
"""Bytes of a request at most."""

IMPORTED_LATER = ("enmasse.logs.structured", "uvloop", "enmasse.stores.sqlite", "encodings.utf_8_sig", "setproctitle")
"""Modules that services import after their start."""


def serve(client: socket.socket, modules: list[str]) -> None:
    """Import `<module>.__main__` of each of the modules, then fork a process for each request until the client ends."""
    for module in (*(f"{module}.__main__" for module in modules), *IMPORTED_LATER):
        # A service imports the module again and reports the error in its own log.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    prepare()
    gc.freeze()  # collections of a forked process do not write into pages that all share
    answer(client, modules)


def answer(client: socket.socket, modules: list[str]) -> None:
    """Fork a process for each request until the client ends; meanwhile import what services import."""
    from enmasse.process import late_imports  # which services have imported

    names, late_imports.told = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    late_imports.told.setblocking(False)
    while True:
        if names in select.select([client, names], [], [])[0]:
            _import_late(names.recv(LONGEST), modules)
            continue
        request, files, _, _ = socket.recv_fds(client, LONGEST, 1)
        if not request:
            return
        _fork(client, names, request, files[0])
        os.close(files[0])


def _import_late(stated: bytes, modules: list[str]) -> None:
    """Import a module that a service has imported: one of the services, whatever a service states."""
    name = stated.decode(errors="replace")
    if name.startswith(tuple(f"{module}." for module in modules)) and name not in sys.modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
        gc.freeze()
        sys._clear_type_cache()


def prepare() -> None:
    """Do once what each forked process would do at its start, with memory of its own for the result."""
    import hashlib
    import hmac

    import msgspec

    for kind in _derived(msgspec.Struct):
        with contextlib.suppress(Exception):  # a service that uses the type reports the error
            msgspec.json.Decoder(kind)  # msgspec evaluates the annotations of a type once
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1)  # OpenSSL looks for an algorithm and keeps it; logins need these
    hmac.new(b"", b"", "sha256")
    show(sys.orig_argv)  # the first title moves the environment
    sys._clear_type_cache()  # an entry that is replaced writes into the page of the name that it had


def _derived(kind: type[Any]) -> Iterator[type[Any]]:
    for each in kind.__subclasses__():
        yield each
        yield from _derived(each)


def _fork(client: socket.socket, names: socket.socket, request: bytes, output: int) -> None:
    """Fork twice: the process between ends at once, and the client inherits the second as its child."""
    try:
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            return
    except OSError as error:
        client.send(b"%d" % -(error.errno or errno.EAGAIN))
        return
    between = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        client.send(b"%d" % -(error.errno or errno.EAGAIN))
        os._exit(0)
    if pid:
        os._exit(0)
    while os.getppid() == between:
        os.sched_yield()
    client.send(b"%d" % os.getpid())
    client.detach()  # `_run` replaces standard input
    names.close()
    _run(json.loads(request), output)


def _run(command: list[str], output: int) -> NoReturn:
    """Run the service of the request in this process, to its end."""
    startup.die_with_parent()  # the kernel does not pass this on to a forked process
    os.setpgid(0, 0)  # Ctrl-C is for the client, which ends its children in order
    nothing = os.open(os.devnull, os.O_RDONLY)
    for new, standard in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(new, standard)
    os.close(nothing)
    os.close(output)
    module, *arguments = command
    show([sys.executable, "-P", "-m", *command])
    main = importlib.import_module(f"{module}.__main__")
    sys.argv = [str(main.__file__), *arguments]
    main.main()
    raise SystemExit


def show(command: list[str]) -> None:
    """Have the process listed with `command`, by which people and `datadir.end_orphans` recognise a process."""
    with contextlib.suppress(ImportError):
        from setproctitle import setproctitle

        setproctitle(" ".join(command))


if __name__ == "__main__":
    startup.begin()
    serve(socket.socket(fileno=0), sys.argv[1:])
