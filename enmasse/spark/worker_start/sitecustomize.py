"""Lets Spark's Python processes start quickly: Python runs this before their own module and its imports.

PySpark is imported from its folder, which has bytecode, where Spark puts a zip file without any before it on the path:
0.2 s of processor time instead of 0.7, for the daemon, and again for each worker that it forks.

A worker connects to its JVM at once. Spark 4.2 gives one that it starts by itself (the reader of a streaming source, on
the driver's machine) ten seconds to connect (`PythonWorkerFactory.createSimpleWorker`), and no setting changes them.
PySpark connects after its imports, for which a machine on which many others compute takes longer than that; then the
query fails with "Python worker failed to connect back". Workers that the daemon forks have a minute.

Modules that are imported here are those of Python alone until the connection is there.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

PORT, SECRET = "PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SECRET"
"""Variables that Spark gives to a worker: where the JVM waits, and what proves that it is the worker."""
ZIPS = "/pyspark/python/lib/"
"""Place of the zip files below the folder in which pip has installed PySpark."""
LENGTH = struct.Struct("!i")
STATES = "pyspark.sql.streaming.transform_with_state_driver_worker"
"""Module of the worker that prepares a state (`transformWithState`), which prints each step on standard output."""


def unzip() -> None:
    """Take the zip files of PySpark and Py4J off the path, if the packages with which they came are on it."""
    for path in [path for path in sys.path if ZIPS in path]:
        folder = path.partition(ZIPS)[0]
        if folder in sys.path and all(os.path.isdir(f"{folder}/{name}") for name in ("pyspark", "py4j")):
            sys.path.remove(path)


def is_worker() -> bool:
    """Return whether this process is a worker, and none that a worker has started: they inherit its variables."""
    option, module = [*sys.orig_argv, "", ""][1:3]
    return option == "-m" and module.startswith("pyspark.") and PORT in os.environ


def connect() -> None:
    """Connect, and give PySpark the connection in place of its own. Raises OSError."""
    port, secret = int(os.environ[PORT]), os.environ[SECRET]
    host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "").lower() == "true" else "127.0.0.1"
    connection = socket.create_connection((host, port), float(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", "15")))
    stream = connection.makefile("rwb", 65536)
    stream.write(LENGTH.pack(len(secret)) + secret.encode())
    stream.flush()
    if stream.read(LENGTH.size + 2) != LENGTH.pack(2) + b"ok":
        raise ConnectionError(f"the JVM on port {port} refuses this worker's secret")
    hand_over(port, stream, connection)


def hand_over(port: int, stream: Any, connection: socket.socket) -> None:
    """Let PySpark's first connection to a port be this one."""
    import pyspark.util

    made, own = [(stream, connection)], pyspark.util.local_connect_and_auth

    def connected(where: int | str | None, secret: str | None) -> Any:
        return made.pop() if where == port and made else own(where, secret)

    pyspark.util.local_connect_and_auth = connected


def run_hidden() -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    here = os.path.dirname(__file__)
    found = PathFinder.find_spec(__name__, [path for path in sys.path if path != here])
    if found is not None and found.loader is not None:
        found.loader.exec_module(module_from_spec(found))


unzip()
if STATES in sys.orig_argv:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
if is_worker():
    with contextlib.suppress(OSError):  # PySpark connects then, and states why it cannot
        connect()
run_hidden()
