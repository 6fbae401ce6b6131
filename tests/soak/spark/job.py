"""The soaked job: a driver with its executors, what can be killed of it and of its suite, and what it has written."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pyarrow.parquet as pq

from enmasse.testing import Suite, wait_for
from tests.soak.spark import hooks
from tests.soak.spark.driver import FLIGHT, TARGETS
from tests.soak.spark.hooks.sitecustomize import DELETING, SERVING, SYNCED

PATIENCE = 300.0
"""Seconds in which a new batch has to come after a kill, on a slow machine."""
ENDING = 60.0
"""Seconds in which processes end that a killed driver has started."""
MOMENT = 30.0
"""Seconds in which a moment has to come for which a process is armed."""
MASTER = "local-cluster[2,1,640]"
"""Executors are processes of their own."""
SETTINGS = {
    "spark.executor.memory": "640m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.excludeOnFailure.enabled": "false",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "8",
}


def runs(process: psutil.Process) -> bool:
    """Whether a process has not ended: where the first process of a machine collects none, its entry stays."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


class Job:
    """One driver after the other, in a folder, beside a suite."""

    def __init__(self, folder: Path, suite: Suite, rng: random.Random) -> None:
        self.folder, self.suite, self.rng = folder, suite, rng
        self.work, self.armed = folder / "work", folder / "armed"
        self.work.mkdir()
        self.armed.mkdir()
        self.problems: list[str] = []
        self.driver: subprocess.Popen[bytes] | None = None
        self.log = (folder / "driver.log").open("ab")
        self.kills: dict[str, Callable[[], bool]] = {
            "driver": self.kill_driver,
            "driver between offset log and commit": self.kill_between,
            "executor": partial(self.kill_process, "CoarseGrainedExecutorBackend"),
            "Python worker": partial(self.kill_process, "pyspark.daemon"),
            "receiver": partial(self.kill_process, "enmasse.spark.receiver.spool_receiver"),
            "receiver between sync and settlement": partial(self.kill_at, SYNCED),
            "receiver while it deletes a segment": partial(self.kill_at, DELETING),
            "reader while Flight serves a range": partial(self.kill_at, SERVING),
            "broker": partial(self.kill_component, "broker"),
            "router": partial(self.kill_component, "router"),
            "supervisor": self.kill_supervisor,
        }
        """By name. Each returns whether there was something to kill, at that moment."""

    def start(self) -> None:
        """Start the driver, if it does not run."""
        if self.driver is not None and self.driver.poll() is None:
            return
        self.end()
        words = " ".join(f"--conf '{name}={value}'" for name, value in SETTINGS.items())
        environment = {
            **os.environ,
            "SPARK_MASTER": MASTER,
            "PYSPARK_SUBMIT_ARGS": f"{words} pyspark-shell",
            "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "PYTHONPATH": str(Path(hooks.__file__).parent),
            "SOAK_ARMED": str(self.armed),
            "SOAK_WALL": str(self.work / FLIGHT / "spool"),
        }
        command = [sys.executable, "-m", "tests.soak.spark.driver", self.suite.url, str(self.work)]
        self.driver = subprocess.Popen(
            command, env=environment, stdout=self.log, stderr=self.log, start_new_session=True
        )

    def end(self) -> None:
        """SIGKILL of the driver and of all that it has started."""
        if self.driver is None:
            return
        found: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            found = psutil.Process(self.driver.pid).children(recursive=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()
        try:  # what a dead driver leaves would still have its spool
            wait_for("the end of what the driver has started", lambda: not any(map(runs, found)), ENDING)
        except TimeoutError:
            for left in filter(runs, found):
                self.problems.append(f"a process outlived its driver by {ENDING:.0f} s: {left}")
                left.kill()
        self.driver = None

    # Progress

    def last(self, address: str, log: str) -> int:
        """The number of the last batch in one of Spark's logs, `commits` or `offsets`; -1 before the first."""
        files = (self.work / address / "checkpoint" / log).glob("[0-9]*")
        return max((int(file.name) for file in files), default=-1)

    def progress(self) -> None:
        """Wait until each query has done another batch; start the driver where it has ended."""
        before = {address: self.last(address, "commits") for address in TARGETS}

        def moved() -> bool:
            self.start()
            return all(self.last(address, "commits") > last for address, last in before.items())

        try:
            wait_for("another batch of each query", moved, PATIENCE)
        except TimeoutError as error:
            self.problems.append(str(error))
            raise

    # Kills

    def kill_process(self, word: str) -> bool:
        """One process below the driver whose command has a word."""
        assert self.driver is not None
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.driver.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    if any(word in part for part in process.cmdline()):
                        found.append(process)
        if not found:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            self.rng.choice(found).kill()
            return True
        return False

    def kill_driver(self) -> bool:
        """The JVM alone, or the driver's Python alone, or all at once."""
        assert self.driver is not None
        way = self.rng.randrange(3)
        if way == 0:
            return self.kill_process("org.apache.spark.deploy.SparkSubmit") and self.driver.wait(60) is not None
        if way == 1:
            self.driver.kill()
            self.driver.wait()
        self.end()
        return True

    def kill_between(self) -> bool:
        """The driver, when a batch is in Spark's offset log and not yet in its log of commits."""
        address = self.rng.choice(list(TARGETS))
        before, end = self.last(address, "offsets"), time.monotonic() + MOMENT
        while time.monotonic() < end:
            now = self.last(address, "offsets")
            if now > before:
                assert self.driver is not None
                os.killpg(self.driver.pid, signal.SIGKILL)
                placed = self.last(address, "commits") < now
                self.end()
                return placed
            time.sleep(0.002)
        return False

    def kill_at(self, moment: str) -> bool:
        """The process that comes to a moment first, by itself (hooks/sitecustomize.py)."""
        armed = self.armed / moment
        armed.touch()
        end = time.monotonic() + MOMENT
        while armed.exists():
            if time.monotonic() > end:
                armed.unlink(missing_ok=True)
                return False
            time.sleep(0.01)
        return True

    def kill_component(self, kind: str) -> bool:
        """A process of the suite."""
        self.suite.kill(self.suite.component(kind, "raw" if kind == "broker" else ""))
        return True

    def kill_supervisor(self) -> bool:
        """`enmasse up`, which is started again."""
        assert self.suite.process is not None
        self.suite.process.kill()
        self.suite.process.wait()
        self.suite.up()
        return True

    def rows(self, address: str) -> Counter[str]:
        """The names of the messages in the files that Spark has committed."""
        folder = self.work / address / "out"
        files: set[str] = set()
        for log in (folder / "_spark_metadata").glob("[0-9]*"):
            for line in log.read_text().splitlines()[1:]:
                files.add(json.loads(line)["path"].removeprefix("file://"))
        found: Counter[str] = Counter()
        for name in files:
            bodies = pq.read_table(name, columns=["body"]).column("body").to_pylist()
            found.update(body.decode().rstrip() for body in bodies)
        return found
