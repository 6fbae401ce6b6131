"""`make soak-spark`: a suite, a driver with executors of its own, two numbered senders; kill after kill; the counts.

SOAK_SECONDS (900) is how long faults come, SOAK_SEED their order. Each fault comes about as often as the others. The
verdict: each message that was accepted is in Parquet exactly once, by way of the source alone (`raw`), and by way of
source, sink and source (`sent`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from enmasse.aio.client import connect
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.message import Message
from enmasse.amqp.performatives import ACCEPTED
from enmasse.spark.spool import head_of
from enmasse.testing import Suite, running, wait_for
from tests.soak.__main__ import number

RATE = 60.0
WINDOW = 50
PATIENCE = 300.0
"""Seconds in which a new batch has to come after a fault, on a slow machine."""
MASTER = "local-cluster[2,1,640]"
"""Executors are processes of their own."""
SETTINGS = {
    "spark.executor.memory": "640m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.excludeOnFailure.enabled": "false",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "8",
}
FLAVOR = "small-persisted-queue"
ADDRESSES = {name: {"type": "queue", "flavor": FLAVOR, "duplicates": "message-id"} for name in ("raw", "sent", "back")}


class Sender(threading.Thread):
    """Numbered messages to one address; what was not accepted is sent again, with the same id."""

    def __init__(self, url: str, address: str) -> None:
        super().__init__(daemon=True)
        self.url, self.address = url, address
        self.accepted: set[str] = set()
        self.over = threading.Event()

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        pending: dict[str, Any] = {}
        count = 0
        while pending or not self.over.is_set():
            with contextlib.suppress(OSError, AmqpError, TimeoutError):
                async with connect(self.url, timeout=5) as client:
                    sender = await client.sender(self.address)
                    for name in list(pending):
                        await self._send(sender, name, pending)
                    while not self.over.is_set():
                        name = f"{self.address}-{count}"
                        count += 1
                        pending[name] = None
                        await self._send(sender, name, pending)
                        await asyncio.sleep(1 / RATE)
            await asyncio.sleep(0.3)

    async def _send(self, sender: Any, name: str, pending: dict[str, Any]) -> None:
        outcome = await sender.send(Message(name.encode(), message_id=name, durable=True), timeout=10)
        if outcome is ACCEPTED:
            self.accepted.add(name)
            del pending[name]


class Soak:
    """One soak, in a folder."""

    def __init__(self, folder: Path, suite: Suite, rng: random.Random) -> None:
        self.folder, self.suite, self.rng = folder, suite, rng
        self.work = folder / "work"
        self.work.mkdir()
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []
        self.driver: subprocess.Popen[bytes] | None = None
        self.log = (folder / "driver.log").open("ab")
        kinds: dict[str, Callable[[], bool]] = {
            "driver": self.kill_driver,
            "driver between offsets and commit": self.kill_between,
            "executor": lambda: self.kill_process("CoarseGrainedExecutorBackend"),
            "worker": lambda: self.kill_process("pyspark.daemon"),
            "receiver": lambda: self.kill_process("enmasse.spark.receiver"),
            "receiver after a sync": self.kill_receiver,
            "broker": lambda: self.kill_component("broker"),
            "router": lambda: self.kill_component("router"),
            "supervisor": self.kill_supervisor,
        }
        self.faults = kinds

    # The driver

    def start(self) -> None:
        """Start the driver, if it does not run."""
        if self.driver is not None and self.driver.poll() is None:
            return
        self.end_driver()
        words = " ".join(f"--conf '{name}={value}'" for name, value in SETTINGS.items())
        environment = {
            **os.environ,
            "SPARK_MASTER": MASTER,
            "PYSPARK_SUBMIT_ARGS": f"{words} pyspark-shell",
            "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
        }
        command = [sys.executable, "-m", "tests.soak.spark.driver", self.suite.url, str(self.work)]
        self.driver = subprocess.Popen(
            command, env=environment, stdout=self.log, stderr=self.log, start_new_session=True
        )

    def end_driver(self) -> None:
        """SIGKILL of the driver and of all that it has started."""
        if self.driver is None:
            return
        found: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            found = psutil.Process(self.driver.pid).children(recursive=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()
        psutil.wait_procs(found, 60)
        for left in found:  # what a dead driver leaves would still have its spool
            with contextlib.suppress(psutil.NoSuchProcess):
                if left.status() != psutil.STATUS_ZOMBIE:
                    self.problems.append(f"a process outlived its driver by a minute: {left.cmdline()}")
                    left.kill()
        self.driver = None

    # Progress

    def commits(self, address: str) -> int:
        """The number of the last batch that is done; -1 before the first."""
        files = (self.work / address / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(file.name) for file in files), default=-1)

    def offsets(self, address: str) -> int:
        """The number of the last batch that is planned; -1 before the first."""
        files = (self.work / address / "checkpoint" / "offsets").glob("[0-9]*")
        return max((int(file.name) for file in files), default=-1)

    def progress(self) -> None:
        """Wait until each query has done another batch; start the driver where it has ended."""
        before = {address: self.commits(address) for address in ADDRESSES}

        def moved() -> bool:
            self.start()
            return all(self.commits(address) > last for address, last in before.items())

        try:
            wait_for("another batch of each query", moved, PATIENCE)
        except TimeoutError as error:
            self.problems.append(str(error))
            raise

    # Faults: each returns False where there was nothing to kill

    def kill_process(self, word: str) -> bool:
        """SIGKILL of one process below the driver whose command has a word."""
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            assert self.driver is not None
            for process in psutil.Process(self.driver.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    if any(word in part for part in process.cmdline()):
                        found.append(process)
        if not found:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            self.rng.choice(found).kill()
        return True

    def kill_driver(self) -> bool:
        """SIGKILL of the JVM alone, or of the driver's Python alone, or of all at once."""
        assert self.driver is not None
        way = self.rng.randrange(3)
        if way == 0:
            return self.kill_process("org.apache.spark.deploy.SparkSubmit") and bool(self.driver.wait(60) or True)
        if way == 1:
            self.driver.kill()
            self.driver.wait()
        self.end_driver()
        return True

    def kill_between(self) -> bool:
        """SIGKILL of the driver when a batch is in Spark's offset log and not yet in its log of commits."""
        address = self.rng.choice(list(ADDRESSES))
        before, end = self.offsets(address), time.monotonic() + 60
        while time.monotonic() < end:
            now = self.offsets(address)
            if now > before:
                assert self.driver is not None
                os.killpg(self.driver.pid, signal.SIGKILL)
                placed = self.commits(address) < now
                self.end_driver()
                return placed
            time.sleep(0.002)
        return False

    def kill_receiver(self) -> bool:
        """SIGKILL of the receiver of `raw` when it has synced, which is before it has settled."""
        path = self.work / "raw" / "spool"
        if not (path / "head").exists():
            return False
        receivers = []
        assert self.driver is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.driver.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    if "enmasse.spark.receiver" in process.cmdline():
                        receivers.append(process)
        owners = [one for one in receivers if f'"pid": {one.pid},' in (path / "owner").read_text()]
        if not owners:
            return False
        head = head_of(path)
        before, end = head.get(), time.monotonic() + 10
        while head.get() == before:
            if time.monotonic() > end:
                return False
        with contextlib.suppress(psutil.NoSuchProcess):
            owners[0].kill()
        return True

    def kill_component(self, kind: str) -> bool:
        """SIGKILL of a process of the suite."""
        self.suite.kill(self.suite.component(kind, "raw" if kind == "broker" else ""))
        return True

    def kill_supervisor(self) -> bool:
        """SIGKILL of `enmasse up`, which is started again."""
        assert self.suite.process is not None
        self.suite.process.kill()
        self.suite.process.wait()
        self.suite.up()
        return True

    # The counts

    def rows(self, address: str) -> Counter[str]:
        """Message-ids in the files that Spark has committed."""
        folder = self.work / address / "out"
        names: set[str] = set()
        for log in (folder / "_spark_metadata").glob("[0-9]*"):
            for line in log.read_text().splitlines()[1:]:
                names.add(json.loads(line)["path"].removeprefix("file://"))
        found: Counter[str] = Counter()
        for name in names:
            found.update(body.decode() for body in pq.read_table(name, columns=["body"]).column("body").to_pylist())
        return found

    def count(self, name: str, address: str, wanted: set[str]) -> None:
        """Compare what has come with what was accepted, once all of it is there."""
        found = Counter[str]()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not wanted <= set(found):
            self.start()
            time.sleep(2)
            found = self.rows(address)
        lost, doubled = wanted - set(found), {key: many for key, many in found.items() if many > 1}
        say(f"{name}: {len(wanted):,} accepted, {sum(found.values()):,} rows, {len(lost)} lost, {len(doubled)} doubled")
        for what, some in (("lost", sorted(lost)), ("doubled", sorted(doubled))):
            if some:
                self.problems.append(f"{name}: {what}: {', '.join(some[:10])}{' …' if len(some) > 10 else ''}")


def say(line: str) -> None:
    print(line, flush=True)


def soak(folder: Path, suite: Suite, seconds: int, seed: int) -> bool:
    """Run; whether all was well."""
    it = Soak(folder, suite, random.Random(seed))
    senders = {address: Sender(suite.url, address) for address in ("raw", "sent")}
    suite.up()
    for sender in senders.values():
        sender.start()
    try:
        it.start()
        it.progress()
        end, began, queue = time.monotonic() + seconds, time.monotonic(), list[str]()
        while time.monotonic() < end:
            if not queue:
                queue = it.rng.sample(list(it.faults), len(it.faults))
            fault = queue.pop()
            time.sleep(it.rng.uniform(0.2, 3))
            it.start()
            if it.faults[fault]():
                it.done[fault] += 1
            it.progress()
            say(f"{time.monotonic() - began:6.0f} s  {fault:<36} {sum(len(s.accepted) for s in senders.values()):>8,}")
        for sender in senders.values():
            sender.over.set()
        for sender in senders.values():
            sender.join(60)
        it.count("source", "raw", senders["raw"].accepted)
        it.count("source, sink, source", "back", senders["sent"].accepted)
    except TimeoutError:
        pass
    finally:
        it.end_driver()
    for fault, many in sorted(it.done.items()):
        say(f"{many:>4} {fault}")
    for problem in it.problems:
        say(f"! {problem}")
    say(f"seed {seed}: {'FAILED' if it.problems else 'PASSED'}")
    return not it.problems


def main() -> int:
    seconds = number("SOAK_SECONDS", 900)
    seed = number("SOAK_SEED", random.SystemRandom().randrange(1 << 32))
    for told in (signal.SIGINT, signal.SIGTERM):
        signal.signal(told, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="enmasse-soak-spark-"))
    say(f"seed {seed}, {seconds} s, {MASTER}")
    with (folder / "stderr").open("w") as errors, running(folder / "suite", ADDRESSES) as suite:
        suite.stderr = errors
        passed = soak(folder, suite, seconds, seed)
    if not passed:
        say(f"spools, checkpoints, files and logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
