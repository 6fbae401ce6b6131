"""Servers to measure, load to put on them, and ratios with their spread."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from enmasse.testing import UpProcess

ROOT = Path(__file__).resolve().parent.parent


def free_port() -> int:
    """A free loopback port below the range the kernel hands out to clients. Raises RuntimeError if none is free."""
    for port in range(21000 + os.getpid() % 5000, 32000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port between 21000 and 32000")


def await_port(port: int, process: subprocess.Popen[Any] | UpProcess, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with status {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} does not listen on {port} after {seconds:.0f} s")


@dataclass
class Server:
    """A server under test: `name` as printed, `port` to load, its process, whether clients must begin with SASL."""

    name: str
    port: int
    process: subprocess.Popen[Any] | UpProcess
    sasl: bool = False
    scratch: Path | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def rss(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)


def die_with_parent() -> None:
    """PR_SET_PDEATHSIG: a server does not outlive a benchmark that was killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@contextlib.contextmanager
def running(
    name: str, command: Sequence[str], port: int, *, sasl: bool = False, scratch: Path | None = None
) -> Iterator[Server]:
    """Start a server, wait until it listens, stop it and what it started at the end. Raises RuntimeError if it does not
    start. To an error of it, or of what loads it, belong its status and its log.
    """
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed below, once the process has ended
    process = subprocess.Popen(
        list(command),
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    try:
        await_port(port, process)
        yield Server(name, port, process, sasl, scratch)
    except Exception as error:
        state = "runs" if process.poll() is None else f"ended with status {process.returncode}"
        size = os.fstat(log.fileno()).st_size
        written = os.pread(log.fileno(), 2000, max(0, size - 2000)).decode("utf-8", "replace")
        error.add_note(f"{name} {state}, and has logged:\n{written}")
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.close()
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def peer(what: str, server: Server, address: str, tag: str, options: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "enmasse.load.amqp", what, "--port", str(server.port), "--address", address]
    command += ["--tag", tag, *options] + (["--sasl"] if server.sasl else [])
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        raise RuntimeError(f"a load process ended early: {process.args!r}")
    return text.strip()


def load(server: Server, addresses: Sequence[str], options: Sequence[str], count: int) -> dict[str, Any]:
    """Run one sender and one receiver on each address at once. As `load_pairs`."""
    return load_pairs([(server, server, address) for address in addresses], options, count)


def load_pairs(pairs: Sequence[tuple[Server, Server, str]], options: Sequence[str], count: int) -> dict[str, Any]:
    """Run a sender at the first server and a receiver at the second one for each pair, all at once; every message is
    counted at both ends.

    Returns rate (messages a second over all pairs, from the common start to the last message), the processor time of
    the servers for a message, the part of the time in which each of them is busy (of a core, in percent), and the worst
    p50/p99 where asked for. Raises RuntimeError if messages are missing.
    """
    servers = list({id(each): each for pair in pairs for each in pair[:2]}.values())
    share = count // len(pairs)
    common = [*options, "--count", str(share)]
    receivers = [peer("receive", server, a, f"r{i}", common) for i, (_, server, a) in enumerate(pairs)]
    try:
        for process in receivers:
            line(process)
        senders = [peer("send", server, a, f"s{i}", [*common, "--barrier"]) for i, (server, _, a) in enumerate(pairs)]
        receivers += senders
        for process in senders:
            line(process)
        before, began = [each.cpu() for each in servers], time.monotonic()
        for process in senders:
            tell(process)
        got = [json.loads(line(process)) for process in receivers[: len(pairs)]]
        for process in senders:
            line(process)
        seconds = time.monotonic() - began
        used = [each.cpu() - earlier for each, earlier in zip(servers, before, strict=True)]
        for process in senders:
            tell(process)
        sent = [json.loads(line(process)) for process in senders]
    finally:
        for process in receivers:
            process.kill()
            process.wait()
    accepted, received = sum(s["accepted"] for s in sent), sum(r["received"] for r in got)
    if accepted != share * len(pairs) or received != accepted:
        names = ", ".join(each.name for each in servers)
        raise RuntimeError(f"{names}: {accepted} accepted and {received} received of {share * len(pairs)}")
    result = {"rate": received / seconds, "cpu_us": sum(used) / received * 1e6}
    result |= {f"busy_% {each.name}": cpu / seconds * 100 for each, cpu in zip(servers, used, strict=True)}
    for key in ("p50_us", "p99_us"):
        if key in got[0]:
            result[key] = max(r[key] for r in got)
    return result


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def summary(values: Sequence[float], digits: int = 0) -> str:
    """median (lowest-highest)."""
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


def side_by_side(
    title: str,
    rounds: int,
    ours: Callable[[], dict[str, Any]],
    theirs: Callable[[], dict[str, Any]],
    key: str,
    aim: float,
    names: tuple[str, str],
    lower_is_better: bool = False,
) -> float:
    """Run both in turn, `rounds` times each; print rates, the ratio of each round, its median and spread."""
    a: list[dict[str, Any]] = []
    b: list[dict[str, Any]] = []
    for turn in range(rounds):
        for run, into in ((ours, a), (theirs, b)) if turn % 2 == 0 else ((theirs, b), (ours, a)):
            into.append(run())
    ratios = [(y[key] / x[key] if lower_is_better else x[key] / y[key]) for x, y in zip(a, b, strict=True)]
    median = float(statistics.median(ratios))
    print(f"{title}")
    for name, values in zip(names, (a, b), strict=True):
        more = "".join(f"  {k} {summary([v[k] for v in values], 1)}" for k in values[0] if k != key)
        print(f"  {name:<22} {key} {summary([v[key] for v in values])}{more}")
    verdict = "reached" if median >= aim else "MISSED"
    print(f"  ratio                  {summary(ratios, 2)}   aim {aim:g}: {verdict}", flush=True)
    return median
