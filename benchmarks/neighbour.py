"""Latency and rate of one address space while another exceeds a limit of its plan threefold, beside the same alone.

`python -m benchmarks neighbour`: two embedded routers, a configuration service and an authentication service as
processes. Both spaces use the first router. The flood is a process of its own, so on two cores a part of what the
neighbour loses is the processor.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, line, summary
from enmasse.aio.client import Client, connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.message import Message
from tests.kit.waiting import wait_for
from tests.router.tenants import Installation

ROUNDS, SECONDS = 5, 1.5
CONNECTIONS, MESSAGES, BYTES, SIZE = 100, 1000, 1_000_000, 10_000
ONE_LIMIT = {
    "connections": {"connections": CONNECTIONS},
    "messages": {"messagesPerSecond": MESSAGES},
    "bytes": {"bytesPerSecond": BYTES},
    "sizes": {"maxMessageSize": SIZE},
    "links": {"linksPerConnection": 10},
    "1000 connections": {},
}
"""Dimension → the plan of the flooding space."""


def space(name: str, port: int) -> contextlib.AbstractAsyncContextManager[Client]:
    return connect(host="127.0.0.1", port=port, user=f"alice@{name}", password="pw", timeout=60.0)


async def neighbour(port: int) -> dict[str, float]:
    """Send one message after the other, each when the one before was received; return p99 in ms and the rate."""
    times: list[float] = []
    async with space("two", port) as client:
        receiver = await client.receiver("own", credit=10)
        sender = await client.sender("own")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            begun = time.perf_counter()
            outcome = sender.send_nowait(Message("x"))
            delivery = await receiver.receive()
            times.append(time.perf_counter() - begun)
            await delivery.accept()
            if outcome is not None:
                await outcome
    return {"p99": statistics.quantiles(times, n=100)[98] * 1000, "rate": len(times) / SECONDS}


async def flood(kind: str, port: int) -> None:
    """Exceed one limit threefold until the process is ended; without a limit, send on many connections."""
    if kind == "connections":
        async with contextlib.AsyncExitStack() as stack:
            print("ready", flush=True)
            while True:
                await asyncio.gather(*(_refused(stack, port) for _ in range(3)), asyncio.sleep(0.01))
    many = 1000 if kind == "1000 connections" else 1
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(space("three", port)) for _ in range(many)]
        print("ready", flush=True)
        pause, size = {"messages": (1 / 300, 10), "bytes": (0.01, 3000)}.get(kind, (0.01, 10))
        await asyncio.gather(*(_send(client, kind, pause, size) for client in clients))


async def _refused(stack: contextlib.AsyncExitStack, port: int) -> None:
    with contextlib.suppress(AmqpError, OSError, TimeoutError):
        await stack.enter_async_context(space("three", port))


async def _send(client: Client, kind: str, pause: float, size: int) -> None:
    receiver = await client.receiver("flooded", credit=1000)
    sender = await client.sender("flooded")
    while True:
        with contextlib.suppress(AmqpError):
            if kind == "links":
                await client.sender("further")
            elif kind == "sizes":
                other = await client.sender("flooded")
                await other.send(b"\x00Sw\xb0" + (3 * SIZE).to_bytes(4, "big") + bytes(3 * SIZE))
        for _ in range(10):
            if sender.credit:
                sender.send_nowait(Message("x" * size), settled=True)
        for delivery in receiver.receive_all(1000):
            await delivery.accept()
        await asyncio.sleep(pause)


@contextlib.contextmanager
def flooded(kind: str, port: int) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.neighbour", kind, str(port)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        line(process)
        yield
    finally:
        process.kill()
        process.wait()


def measured(installation: Installation, kind: str) -> None:
    port = installation.fronts[0].users
    installation.plans(**ONE_LIMIT[kind])
    wait_for(lambda: installation.space("three").get("limits", {}) == ONE_LIMIT[kind], "the plan is in force")
    alone: list[dict[str, Any]] = []
    beside: list[dict[str, Any]] = []
    for _ in range(ROUNDS):
        alone.append(asyncio.run(neighbour(port)))
        with flooded(kind, port):
            beside.append(asyncio.run(neighbour(port)))
        wait_for(lambda: installation.space("three")["used"].get("connections", 0) == 0, "the flood has gone")
    p99 = [after["p99"] / before["p99"] for before, after in zip(alone, beside, strict=True)]
    rate = [after["rate"] / before["rate"] for before, after in zip(alone, beside, strict=True)]
    print(
        f"{kind:<18} p99 alone {summary([each['p99'] for each in alone], 2)} ms, beside "
        f"{summary([each['p99'] for each in beside], 2)} ms, ratio {summary(p99, 2)}; rate ratio {summary(rate, 2)}",
        flush=True,
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Installation(Path(folder)) as installation:
        for kind in ONE_LIMIT:
            measured(installation, kind)


if __name__ == "__main__":
    asyncio.run(flood(sys.argv[1], int(sys.argv[2])))
