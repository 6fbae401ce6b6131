"""The faults of a soak. Each is a function that does it, undoes it, and says what it was in a few words.

A fault gets its own random numbers, so that a seed and a round give the same one again.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.soak import edits, flood
from tests.soak.field import Fault, Field
from tests.soak.watch import status

KINDS = ("router", "broker", "configserv", "ragent", "storage_controller", "mqtt_gateway", "subserv")
MIB = 1 << 20


def kill(kind: str) -> Fault:
    """SIGKILL."""

    def fault(field: Field, rng: random.Random) -> str:
        victim = field.pick(rng, kind)
        field.kill(victim)
        return str(victim["name"])

    return fault


def kill_twice(kind: str) -> Fault:
    """SIGKILL, and once more while it recovers."""

    def fault(field: Field, rng: random.Random) -> str:
        victim = field.pick(rng, kind)
        second = field.kill(victim)
        delay = rng.uniform(0, 0.5)
        field.let(delay)
        field.kill(second)
        return f"{victim['name']}, again {delay:.2f} s after its restart"

    return fault


def stop(kind: str) -> Fault:
    """SIGSTOP for some seconds, then SIGCONT."""

    def fault(field: Field, rng: random.Random) -> str:
        victim = field.pick(rng, kind)
        seconds = rng.choice((0.5, 2.0, 5.0, 12.0))
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim["pid"], signal.SIGSTOP)
            try:
                field.let(seconds)
            finally:
                os.kill(victim["pid"], signal.SIGCONT)
        return f"{victim['name']} for {seconds:g} s"

    return fault


def kill_suite(field: Field, rng: random.Random) -> str:
    """SIGKILL of `enmasse up`, with which everything dies; started again."""
    process = field.suite.process
    assert process is not None
    process.kill()
    process.wait()
    field.let(pause := rng.choice((0.0, 0.0, 2.0)))
    field.start()
    return f"started again after {pause:g} s"


def end_suite(field: Field, rng: random.Random) -> str:
    """SIGTERM of `enmasse up`; started again."""
    ended = field.suite.down()
    field.start()
    if ended:
        raise RuntimeError(f"enmasse up ended with status {ended}")
    return "started again"


@contextmanager
def full(field: Field, left: int) -> Iterator[None]:
    """The data directory's disk has only so many bytes left; without a disk of its own, no broker can write a byte."""
    if field.small_disk:
        ballast = field.suite.data / "ballast"
        try:
            fill(ballast, left)
            yield
        finally:
            ballast.unlink(missing_ok=True)
        return
    brokers = [c["pid"] for c in status(field.suite)["components"] if c["kind"] == "broker" and c["pid"]]
    with contextlib.ExitStack() as undo:
        for pid in brokers:
            undo.enter_context(limited(pid, resource.RLIMIT_FSIZE, left))
        yield


def fill(ballast: Path, left: int) -> None:
    """Write until only so many bytes are left."""
    with ballast.open("wb") as file:
        while (size := _free(ballast.parent) - left) > 0:
            try:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), min(size, MIB))
                file.seek(0, os.SEEK_END)
            except OSError:
                return


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def full_disk(field: Field, rng: random.Random) -> str:
    left, seconds = rng.choice((0, 0, 4096, MIB, 63 * MIB)), rng.choice((1.0, 4.0, 8.0))
    with full(field, left):
        field.let(seconds)
    return f"{left >> 10} KiB left for {seconds:g} s"


def full_disk_kill(field: Field, rng: random.Random) -> str:
    """A broker dies while the disk is full."""
    with full(field, 0):
        field.let(rng.uniform(0.2, 2))
        said = kill("broker")(field, rng)
        field.let(3)
    return f"{said} died meanwhile"


def full_disk_start(field: Field, rng: random.Random) -> str:
    """The suite dies while the disk is full, and starts with a full disk; it must run without being ready."""
    process = field.suite.process
    assert process is not None
    failed: list[BaseException] = []

    def start() -> None:
        try:
            field.start()
        except BaseException as error:
            failed.append(error)

    with full(field, 0):
        process.kill()
        process.wait()
        starting = threading.Thread(target=start)
        starting.start()
        field.let(6)
    starting.join()
    if failed:
        field.start()
        raise RuntimeError("enmasse up did not start with a full disk; `stderr` says why") from failed[0]
    return "killed and started with 0 KiB left"


@contextmanager
def limited(pid: int, what: int, soft: int) -> Iterator[None]:
    """A process's soft limit is lowered for a while."""
    before = resource.prlimit(pid, what)
    resource.prlimit(pid, what, (soft, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, what, before)


def descriptors(kind: str) -> Fault:
    """No further file or socket can be opened for a while."""

    def fault(field: Field, rng: random.Random) -> str:
        victim = field.pick(rng, kind)
        more, seconds = rng.choice((0, 0, 1, 3)), rng.choice((1.0, 4.0))
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            now = psutil.Process(victim["pid"]).num_fds()
            with limited(victim["pid"], resource.RLIMIT_NOFILE, now + more):
                field.let(seconds)
        return f"{victim['name']}: {more} more for {seconds:g} s"

    return fault


def journal_away(field: Field, rng: random.Random) -> str:
    """Files of a broker's journal are elsewhere for some seconds."""
    elsewhere = field.suite.data / "away"
    elsewhere.mkdir(exist_ok=True)
    folders = sorted({file.parent for file in (field.suite.data / "brokers").glob("*/*.journal")})
    folder = rng.choice(folders)
    files = sorted(folder.glob("*.journal"))
    chosen = files if rng.random() < 0.3 else rng.sample(files, rng.randint(1, len(files)))
    moved: list[tuple[Path, Path]] = []
    try:
        for file in chosen:
            with contextlib.suppress(FileNotFoundError):  # compaction was faster
                away = file.rename(elsewhere / file.name)
                moved.append((away, file))
        field.let(seconds := rng.choice((2.0, 5.0)))
    finally:
        for away, file in moved:
            away.rename(file)
    return f"{folder.relative_to(field.suite.data)}: {len(moved)} of {len(files)} for {seconds:g} s"


def flooded(kind: str) -> Fault:
    """A hostile client does one thing as fast as it can."""

    def fault(field: Field, rng: random.Random) -> str:
        seconds = rng.choice((2.0, 5.0))
        address = rng.choice(("orders", "jobs", "news") if kind == "leavers" else ("orders", "news", "direct", "all"))
        port = field.suite.mqtt_port if kind in flood.OVER_MQTT else 5672 + field.suite.offset
        command = [sys.executable, "-m", "tests.soak.flood", kind, str(port), address]
        process = subprocess.Popen(command)
        try:
            field.let(seconds)
        finally:
            process.kill()
            process.wait()
        return f"{address} for {seconds:g} s"

    return fault


FAULTS: dict[str, Fault] = {
    **{f"kill-{kind}": kill(kind) for kind in KINDS},
    **{f"kill-twice-{kind}": kill_twice(kind) for kind in ("broker", "router", "mqtt_gateway")},
    "kill-suite": kill_suite,
    "end-suite": end_suite,
    **{f"stop-{kind}": stop(kind) for kind in KINDS},
    "full-disk": full_disk,
    "full-disk-kill": full_disk_kill,
    "full-disk-start": full_disk_start,
    **{f"descriptors-{kind}": descriptors(kind) for kind in ("broker", "router", "configserv")},
    "journal-away": journal_away,
    **{f"flood-{kind}": flooded(kind) for kind in flood.KINDS},
    **edits.FAULTS,
}
ALONE = {"kill-suite", "end-suite", "full-disk-start", "journal-away", *edits.FAULTS}
"""Nothing else goes on beside these: they end the suite, or a broker that starts meanwhile would miss its files, or
they have to succeed."""


def both(first: str, second: str, field: Field, rng: random.Random) -> str:
    """Two faults at once, the second a little later."""
    said: dict[str, str] = {}
    failed: list[BaseException] = []

    def do(name: str, own: random.Random) -> None:
        try:
            said[name] = FAULTS[name](field, own)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=do, args=(name, random.Random(rng.random()))) for name in (first, second)]
    for thread in threads:
        thread.start()
        time.sleep(0.3)
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return f"{first} {said[first]}; {second} {said[second]}"
