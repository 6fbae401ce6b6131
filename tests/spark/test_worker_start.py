"""Python workers connect to their JVM before they import PySpark, and do not import it from a zip file: the worker is
real, the test is the JVM."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from enmasse.spark.session import WORKER_START, start_quickly
from tests.spark.conftest import DEADLINE

READER = "pyspark.sql.streaming.python_streaming_source_runner"
SECRET = b"a secret"


@pytest.fixture
def jvm() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(DEADLINE)
        yield listening


def start(port: int, *command: str, path: str = WORKER_START) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHON_WORKER_FACTORY_PORT": str(port),
        "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(),
    }
    return subprocess.Popen([sys.executable, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def has_arrow(worker: subprocess.Popen[bytes]) -> bool:
    return "libarrow" in Path(f"/proc/{worker.pid}/maps").read_text()


def read(connection: socket.socket, count: int) -> bytes:
    return connection.recv(count, socket.MSG_WAITALL)


def test_a_worker_connects_before_its_imports_and_works_with_that_connection(jvm: socket.socket) -> None:
    worker = start(jvm.getsockname()[1], "-m", READER)
    connection, _ = jvm.accept()
    with connection:
        connection.settimeout(DEADLINE)
        assert read(connection, 4 + len(SECRET)) == struct.pack("!i", len(SECRET)) + SECRET
        assert not has_arrow(worker), "it waits for the answer, and has imported nothing that is large"
        connection.sendall(struct.pack("!i", 2) + b"ok")
        assert read(connection, 4) == struct.pack("!i", worker.pid), "the first that PySpark itself sends"
        assert has_arrow(worker)
    worker.communicate()


def test_a_worker_that_is_refused_or_not_awaited_fails_as_it_does_without(jvm: socket.socket) -> None:
    worker = start(jvm.getsockname()[1], "-m", READER)
    for _ in ("early", "PySpark's own"):
        connection, _ = jvm.accept()
        with connection:
            read(connection, 4 + len(SECRET))
            connection.sendall(struct.pack("!i", 3) + b"err")
    assert b"UNEXPECTED_RESPONSE_FROM_SERVER" in worker.communicate()[1]
    port = jvm.getsockname()[1]
    jvm.close()
    assert b"CANNOT_OPEN_SOCKET" in start(port, "-m", READER).communicate()[1]


def test_what_a_worker_starts_does_not_connect_and_a_hidden_sitecustomize_runs(
    jvm: socket.socket, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hidden', __name__)\n")
    jvm.setblocking(False)
    for command in (("-c", "print('over')"), ("-m", "this")):
        out, error = start(jvm.getsockname()[1], *command, path=f"{WORKER_START}{os.pathsep}{tmp_path}").communicate()
        assert out.startswith(b"hidden sitecustomize\n") and error == b""
    with pytest.raises(BlockingIOError):
        jvm.accept()


def test_pyspark_is_imported_from_the_folder_in_which_the_zip_file_is(jvm: socket.socket, tmp_path: Path) -> None:
    """But from a zip file that is installed elsewhere: it may be of another release."""
    packages = Path(pyspark.__file__).parents[1]
    installed = packages / "pyspark" / "python" / "lib" / "pyspark.zip"
    elsewhere = tmp_path / "pyspark" / "python" / "lib" / "pyspark.zip"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.symlink_to(installed)
    for there, origin in ((installed, packages), (elsewhere, elsewhere)):
        path = f"{WORKER_START}{os.pathsep}{there}"
        found = "import importlib.util; print(importlib.util.find_spec('pyspark').origin)"
        out, error = start(jvm.getsockname()[1], "-c", found, path=path).communicate()
        assert (out.decode().strip(), error) == (f"{origin}/pyspark/__init__.py", b"")


def test_the_worker_that_prepares_a_state_prints_no_steps(jvm: socket.socket) -> None:
    worker = start(jvm.getsockname()[1], "-m", "pyspark.sql.streaming.transform_with_state_driver_worker")
    connection, _ = jvm.accept()
    with connection:
        connection.settimeout(DEADLINE)
        read(connection, 4 + len(SECRET))
        version = "{}.{}".format(*sys.version_info[:2]).encode()
        connection.sendall(struct.pack("!i", 2) + b"ok" + struct.pack("!i", len(version)) + version)
        assert read(connection, 4) == struct.pack("!i", worker.pid)
    assert worker.communicate()[0] == b""


def test_the_folder_is_first_on_the_path_of_workers_once() -> None:
    environment: dict[str, str] = {}
    for _ in range(2):
        start_quickly(environment)
    assert environment == {"PYTHONPATH": WORKER_START}
    environment = {"PYTHONPATH": "./enmasse-site"}
    start_quickly(environment)
    assert environment == {"PYTHONPATH": f"{WORKER_START}{os.pathsep}./enmasse-site"}
