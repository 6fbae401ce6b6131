"""A standalone cluster: a master and two workers, each a process with a folder of its own, and executors that die."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
import pyspark
import pytest
from proton import Message

from enmasse.testing import free_port, wait_for
from tests.spark.conftest import DEADLINE, LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)
ROOT = Path(__file__).resolve().parents[3]
COUNT = 300


class Cluster(NamedTuple):
    """Master's URL, the workers, the folder of the driver that they do not see, and the file of their attempts."""

    url: str
    workers: list[subprocess.Popen[bytes]]
    driver: Path
    notes: Path


def spark_class(name: str, folder: Path, more: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    home = os.path.dirname(pyspark.__file__)
    environment = {
        **os.environ,
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        **more,
    }
    command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    driver, notes = folder / "driver", folder / "notes"
    driver.mkdir()
    wall = {  # for the executors, which have the environment of their worker
        "PYTHONPATH": f"{ROOT / 'tests' / 'spark' / 'cluster' / 'walled'}:{ROOT}",
        "WALLED_OFF": f"{driver}/",
        "WALL_NOTES": str(notes),
    }
    port, page = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    here = ("--host", "127.0.0.1")
    processes = [
        spark_class("master.Master", folder / "master", {}, *here, "--port", str(port), "--webui-port", str(page))
    ]
    try:
        for n in (1, 2):
            place = folder / f"worker{n}"
            ports = ("--port", str(free_port()), "--webui-port", str(free_port()))
            size = ("--cores", "1", "--memory", "600m", "--work-dir", str(place / "work"))
            processes.append(spark_class("worker.Worker", place, wall, *here, *ports, *size, url))

        def alive() -> bool:
            assert all(process.poll() is None for process in processes)
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{page}/json/") as answer:
                return bool(json.load(answer)["aliveworkers"] == 2)
            return False

        wait_for("two workers", alive, DEADLINE)
        yield Cluster(url, processes[1:], driver, notes)
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait()


def executor_of(worker: subprocess.Popen[bytes]) -> psutil.Process | None:
    for child in psutil.Process(worker.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if any("CoarseGrainedExecutorBackend" in word for word in child.cmdline()):
                return child
    return None


def numbered(start: int) -> list[Message]:
    return [Message(id=f"m{i}", body=f"body {i}", durable=True) for i in range(start, start + COUNT)]


def test_executors_without_the_files_read_them_from_the_driver_and_may_die(
    cluster: Cluster, broker: Broker, tmp_path: Path
) -> None:
    source, target = broker.queue("readings"), broker.queue_without_duplicates("results")
    settings = {
        "spark.executor.memory": "470m",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    submit = " ".join(f"--conf '{name}={value}'" for name, value in settings.items())
    environment = {**os.environ, "SPARK_MASTER": cluster.url, "PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell"}
    command = [sys.executable, "-m", "tests.spark.cluster.resending", broker.url, source, target, str(cluster.driver)]
    broker.send(source, numbered(0))
    with (tmp_path / "log").open("wb") as log:
        driver = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        found = Counter(message.id for message in broker.receive(target, COUNT))
        for n, worker in enumerate(cluster.workers, 1):
            broker.send(source, numbered(n * COUNT))
            found += Counter(message.id for message in broker.receive(target, 50))
            wait_for("an executor", partial(executor_of, worker), DEADLINE).kill()
            found += Counter(message.id for message in broker.receive(target, COUNT - 50))
        assert driver.poll() is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, 9)
        driver.wait()
    assert set(found) == {f"m{i}" for i in range(3 * COUNT)} and max(found.values()) == 1
    assert f"open {cluster.driver}/spool/id" in cluster.notes.read_text().splitlines(), "executors looked for the files"
    assert f"{cluster.driver}/spool/0" not in cluster.notes.read_text(), "and for no segment"
