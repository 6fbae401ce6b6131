"""Time until addresses are ready: 100 to 100,000, a quarter of each type; memory and CPU of the services; one more.

Also the cold start of `enmasse up` on what `enmasse init` writes, the time to ready after SIGKILL of each service, and
what the suite costs when nothing happens. Times count from the file that is written, or the process that is killed, to
the return of `enmasse status --wait`. CPU seconds are of all processes: unlike the times they are meaningful also on a
machine that is busy with other things.
"""

from __future__ import annotations

import compileall
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import summary
from enmasse.supervisor.children.child import STABLE
from enmasse.testing import Suite, running

KINDS: tuple[dict[str, Any], ...] = (
    {"type": "queue", "flavor": "small-persisted-queue"},
    {"type": "topic", "flavor": "small-persisted-topic"},
    {"type": "anycast"},
    {"type": "multicast"},
)
SERVICES = ("configserv", "ragent", "storage_controller", "router", "broker", "mqtt_gateway", "subserv", "mqtt_lwt")
WITHOUT_MQTT = ("--without", "mqtt")
READY_AIMS = {10_000: 4.0, 100_000: 60.0}
"""Number of addresses → seconds in which all are to be ready."""
ONE_MORE_AIM, EACH_AIM, IDLE_AIM = 0.5, 15 << 10, 160 << 20
"""Seconds until a further address is ready; bytes of memory for each, and of an idle suite, in all processes."""
IDLE = 20.0
"""Seconds over which CPU use is measured, and for which everything calms down before."""


def addresses(count: int) -> dict[str, Any]:
    return {f"bench/a{i}": KINDS[i % 4] for i in range(count)}


def verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def processes(suite: Suite) -> list[psutil.Process]:
    """The supervisor and everything below it."""
    assert suite.process is not None
    top = psutil.Process(suite.process.pid)
    return [top, *top.children(recursive=True)]


def memory(suite: Suite) -> int:
    """Memory of all processes, in bytes: the sum of their proportional set sizes (PSS), in which a page that several
    processes share counts once."""
    return sum(int(p.memory_full_info().pss) for p in processes(suite))


def usage(suite: Suite) -> dict[str, tuple[float, int]]:
    """Service → seconds of CPU and bytes of memory (PSS) of its processes."""
    found: dict[str, tuple[float, int]] = {}
    for process in processes(suite):
        arguments = " ".join(process.cmdline()).split()  # a forked service shows its command as one word
        name = arguments[arguments.index("-m") + 1] if "-m" in arguments else "supervisor"
        seconds, size = found.get(name, (0.0, 0))
        used = process.cpu_times()
        found[name] = seconds + used.user + used.system, size + int(process.memory_full_info().pss)
    return found


def cpu(suite: Suite) -> float:
    """Seconds of CPU that all processes have used."""
    return sum(sum(p.cpu_times()[:2]) for p in processes(suite))


def cold_start(rounds: int, options: tuple[str, ...] = ()) -> None:
    times, used = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder, running(Path(folder), options=options) as suite:
            times.append(suite.up())
            used.append(cpu(suite))
    what = "cold start without MQTT" if options else "cold start"
    print(
        f"{what} to ready: {summary(times, 2)} s ({statistics.median(used):.1f} s of CPU)   aim under 3 s: "
        f"{verdict(statistics.median(times) < 3)}",
        flush=True,
    )


def edited(suite: Suite, entries: dict[str, Any]) -> float:
    """Seconds from the file with these further addresses to all ready."""
    suite.edit("addresses.json", entries)
    began = time.monotonic()
    suite.wait_ready(300)
    return time.monotonic() - began


def grow(count: int, more: int = 5) -> None:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), options=()) as suite:
        suite.up()
        before, used, parts = memory(suite), cpu(suite), usage(suite)
        print(f"       idle: {before >> 20} MiB   aim {IDLE_AIM >> 20} MiB: {verdict(before <= IDLE_AIM)}", flush=True)
        took = edited(suite, addresses(count))
        each, used = (memory(suite) - before) / count, cpu(suite) - used
        for name, (seconds, size) in usage(suite).items():
            cpu_before, size_before = parts.get(name, (0.0, 0))
            print(f"       {name}: {seconds - cpu_before:.1f} s of CPU, {size_before >> 20} → {size >> 20} MiB")
        times = [edited(suite, {f"one-more-{i}": KINDS[i % 4]}) for i in range(more)]
        line = (
            f"{count:>6} addresses ready in {took:.1f} s ({count / took:,.0f} a second, {used:.1f} s of CPU), "
            f"{each / 1024:.1f} KiB each"
        )
        if count in READY_AIMS:
            line += f"   aim {READY_AIMS[count]:.0f} s: {verdict(took <= READY_AIMS[count])}"
            line += f", {EACH_AIM >> 10} KiB: {verdict(each <= EACH_AIM)}"
        reached = verdict(statistics.median(times) <= ONE_MORE_AIM)
        print(f"{line}; one more in {summary(times, 2)} s   aim {ONE_MORE_AIM} s: {reached}", flush=True)
        time.sleep(IDLE)
        used = cpu(suite)
        time.sleep(IDLE)
        print(f"       with nothing to do: {100 * (cpu(suite) - used) / IDLE:.1f} % of a core", flush=True)


def recovery(rounds: int, count: int = 0) -> None:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), options=()) as suite:
        suite.up()
        edited(suite, addresses(count))
        times: dict[str, list[float]] = {kind: [] for kind in SERVICES}
        for _ in range(rounds):
            # What dies again and again waits before it is started: here each death is to be the first.
            time.sleep(STABLE)
            for kind in SERVICES:
                component = suite.component(kind)
                began = time.monotonic()
                suite.kill(component)
                suite.wait_ready(60)
                times[kind].append(time.monotonic() - began)
        among = f" among {count:,} addresses" if count else ""
        for kind, found in times.items():
            print(f"ready again after SIGKILL of {kind}{among}: {summary(found, 2)} s", flush=True)


def main(rounds: int = 5) -> None:
    for package in ("enmasse", "services", "spark"):  # as pip does: a process that compiles keeps memory
        compileall.compile_dir(package, quiet=1)
    cold_start(rounds, WITHOUT_MQTT)
    cold_start(rounds)
    recovery(rounds)
    recovery(rounds, 1_000)
    for count in (100, 1_000, 10_000, 100_000):
        grow(count)


if __name__ == "__main__":
    main()
