"""A standalone cluster: a master and two workers, each a process with a folder of its own and a Python without
packages; executors die."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
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
WALLED = ROOT / "tests" / "spark" / "cluster" / "walled"
PROGRAM = ROOT / "tests" / "spark" / "cluster" / "resending.py"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
COUNT = 120
SETTINGS = {
    "spark.executor.memory": "470m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


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
    driver, notes, programs = folder / "driver", folder / "notes", folder / "bin"
    driver.mkdir()
    programs.mkdir()
    python = programs / PYTHON
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{WALLED}" exec {sys.base_prefix}/bin/{PYTHON} "$@"\n')
    python.chmod(0o755)
    wall = {  # for the executors, which have the environment of their worker
        "PATH": f"{programs}:{os.environ['PATH']}",
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


def documented(cluster: Cluster, program: str) -> list[str]:
    """The commands of docs/spark.md for a spark-submit of one's own, with this master, driver and program."""
    section = (ROOT / "docs" / "spark.md").read_text().partition("For a `spark-submit` of your own")[2]
    block = re.search(r"\n\n((?:    .*\n)+)", section)
    assert block is not None
    text = block[1].replace("\\\n", "")
    for words, ours in {
        "spark://master:7077": cluster.url, "driver.example.com": "127.0.0.1", "python3.11": PYTHON, "job.py": program,
    }.items():  # fmt: skip
        assert words in text
        text = text.replace(words, ours)
    return [line.strip() for line in text.splitlines()]


class Query:
    """A query of PROGRAM on the cluster, whose driver has a folder of its own, and all that it has sent."""

    def __init__(self, cluster: Cluster, broker: Broker, folder: Path, name: str) -> None:
        self.cluster, self.broker = cluster, broker
        self.source, self.target = broker.queue(f"{name}-readings"), broker.queue_without_duplicates(f"{name}-results")
        self.work = cluster.driver / name
        self.work.mkdir()
        self.program = [str(PROGRAM), broker.url, self.source, self.target, str(self.work)]
        self.settings = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "PATH": path}
        self.run = partial(subprocess.run, cwd=folder, env=self.environment)
        self.found: Counter[str] = Counter()

    @contextlib.contextmanager
    def submitted(self) -> Iterator[None]:
        """Run it by `enmasse spark submit`; at the end it is stopped."""
        master = ["--master", self.cluster.url]
        try:
            self.run(["enmasse", "spark", "submit", *master, *self.settings, *self.program], check=True)
            yield
        finally:
            self.run(["enmasse", "spark", "stop", PROGRAM.stem])

    def part(self, number: int, *, killing: subprocess.Popen[bytes] | None = None) -> None:
        """Send COUNT messages to the query and receive what it sends; the executor of `killing` dies meanwhile."""
        self.broker.send(self.source, numbered(number * COUNT))
        self.receive(50)  # limit: a number of messages
        if killing is not None:
            wait_for("an executor", partial(executor_of, killing), DEADLINE).kill()
        self.receive(COUNT - 50)

    def receive(self, count: int) -> None:
        self.found.update(message.id for message in self.broker.receive(self.target, count))

    def check(self, parts: int) -> None:
        """Each message came once; no executor has seen files of the driver, nor had the packages before."""
        assert set(self.found) == {f"m{i}" for i in range(parts * COUNT)} and max(self.found.values()) == 1
        notes = self.cluster.notes.read_text().splitlines()
        assert f"open {self.work}/spool/id" in notes, "executors looked for the files"
        assert not any(line.endswith(f"{self.work}/spool/0") for line in notes), "executors looked for a segment"
        imported = [line for line in notes if not line.startswith(f"open {self.cluster.driver}")]
        assert imported and all("/enmasse-site/" in line for line in imported), "what executors run is of the archive"


@pytest.mark.slow
def test_executors_without_packages_and_files_get_both_from_the_driver_and_may_die(
    cluster: Cluster, broker: Broker, tmp_path: Path
) -> None:
    query = Query(cluster, broker, tmp_path, "submitted")
    with query.submitted():
        query.part(0, killing=cluster.workers[0])
    query.check(1)


@pytest.mark.slow
def test_a_query_is_continued_by_the_documented_spark_submit(cluster: Cluster, broker: Broker, tmp_path: Path) -> None:
    """After `enmasse spark submit` and `stop`."""
    query = Query(cluster, broker, tmp_path, "continued")
    with query.submitted():
        query.part(0)
    *before, submit = documented(cluster, shlex.join(query.program))
    query.run(["bash", "-euc", "\n".join(before)], check=True)
    submit = submit.replace("spark-submit", shlex.join(["exec", "spark-submit", *query.settings]), 1)
    with (tmp_path / "log").open("wb") as log:
        driver = subprocess.Popen(
            ["bash", "-c", submit], cwd=tmp_path, env=query.environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        query.part(1, killing=cluster.workers[1])
        assert driver.poll() is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, 9)
        driver.wait()
    query.check(2)
