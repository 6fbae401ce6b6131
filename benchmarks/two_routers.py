"""Two routers that are neighbours: the cost of a hop, and pairs of clients at one router and at two; embedded ones
beside two of Dispatch, if there is one on PATH. Memory of an address that the other router knows, and how long messages
stay away after a router between was killed.

`python -m benchmarks.two_routers`, with ROUNDS, COUNT (messages) and PAIRS in the environment. Where fewer
cores are free than there are processes (two routers, and a sender and a receiver for each pair), the rates say little;
the processor time of the routers for a message says what they cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Server, load_pairs, running, side_by_side
from enmasse.aio.client import Client, connect
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from enmasse.testing import free_port

ROUNDS, COUNT = int(os.environ.get("ROUNDS", "5")), int(os.environ.get("COUNT", "100000"))
PAIRS = int(os.environ.get("PAIRS", "4"))
ADDRESSES, LINKS = 10_000, 1_000
"""Addresses with a receiver at one of the routers, and links of a connection."""
KILLS = 5
AIM = 1.2

Entities = list[tuple[str, dict[str, Any]]]
Make = Callable[[str, Entities], contextlib.AbstractContextManager[Server]]
"""Runs a router of a name with further entities."""


@contextlib.contextmanager
def ours(name: str, more: Entities) -> Iterator[Server]:
    """Run an embedded router."""
    port, scratch = free_port(), Path(tempfile.mkdtemp())
    entities = [("router", {"mode": "interior", "id": name}), _clients(port), *more]
    settings = {"name": name, "health": f"127.0.0.1:{free_port()}", "entities": entities}
    (scratch / "router.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "services.router", "--config", str(scratch / "router.json")]
    with running(f"embedded {name}", command, port, scratch=scratch) as server:
        yield server


def theirs(program: str) -> Make:
    """Return what runs a router of Dispatch."""

    @contextlib.contextmanager
    def run(name: str, more: Entities) -> Iterator[Server]:
        port, scratch = free_port(), Path(tempfile.mkdtemp())
        own = {"mode": "interior", "id": name, "workerThreads": 2}
        entities = [("router", own), _clients(port), ("log", {"module": "DEFAULT", "enable": "error+"}), *more]
        (scratch / "qdrouterd.json").write_text(json.dumps(entities))
        command = [program, "-c", str(scratch / "qdrouterd.json")]
        with running(f"qdrouterd {name}", command, port, scratch=scratch) as server:
            yield server

    return run


def _clients(port: int) -> tuple[str, dict[str, Any]]:
    return ("listener", {"host": "127.0.0.1", "port": str(port), "role": "normal", "saslMechanisms": "ANONYMOUS"})


def _neighbour(kind: str, port: int, cost: int = 1) -> tuple[str, dict[str, Any]]:
    more = {"saslMechanisms": "ANONYMOUS"}
    return (kind, {"host": "127.0.0.1", "port": str(port), "role": "inter-router", "cost": cost, **more})


@contextlib.contextmanager
def neighbours(make: Make) -> Iterator[tuple[Server, Server]]:
    """Run two routers that are connected."""
    mesh = free_port()
    with make("a", [_neighbour("listener", mesh)]) as a, make("b", [_neighbour("connector", mesh)]) as b:
        asyncio.run(_passes(a, b))
        yield a, b


async def _client(server: Server) -> Client:
    return await connect(f"amqp://127.0.0.1:{server.port}", timeout=60).open(60)


async def _passes(sending: Server, receiving: Server) -> None:
    """Wait until a message to a receiver at the other router is accepted."""
    there, here = await _client(receiving), await _client(sending)
    receiver = await there.receiver("ready", timeout=60)
    taking = asyncio.create_task(_take(receiver))
    sender = await here.sender("ready", timeout=60)
    while await sender.send(Message("ready"), timeout=60) != ACCEPTED:
        await asyncio.sleep(0.1)
    taking.cancel()
    await asyncio.gather(here.close(), there.close())


async def _take(receiver: Any) -> None:
    async for delivery in receiver:
        await delivery.accept()


def cases(a: Server, b: Server) -> dict[str, list[tuple[Server, Server, str]]]:
    """Return name → pairs of clients: router of the sender, of the receiver, address."""
    names = [f"bench{number}" for number in range(PAIRS)]
    return {
        "1 pair, both clients at one router": [(a, a, "bench0")],
        "1 pair, a hop between them": [(a, b, "bench0")],
        f"{PAIRS} pairs at one router": [(a, a, name) for name in names],
        f"{PAIRS} pairs at two routers, no hop": [
            (here, here, name) for here, name in zip((a, b) * PAIRS, names, strict=False)
        ],
        f"{PAIRS} pairs at two routers, a hop for each second one": [
            (a if number % 2 else b, a if number // 2 % 2 else b, name) for number, name in enumerate(names)
        ],
    }


def memory(servers: Sequence[Server]) -> str:
    """Attach receivers to many addresses at the second router. Return what each address takes at each router."""
    return asyncio.run(_memory(*servers))


async def _memory(here: Server, there: Server) -> str:
    clients = [await _client(there) for _ in range(ADDRESSES // LINKS)]
    before = [server.rss() for server in (here, there)]
    for first, client in enumerate(clients):
        some = range(first * LINKS, (first + 1) * LINKS)
        await asyncio.gather(*(client.receiver(f"many/{number}", timeout=60) for number in some))
    await asyncio.sleep(5)  # the other router has learnt them
    grown = [(server.rss() - size) / ADDRESSES for server, size in zip((here, there), before, strict=True)]
    await asyncio.gather(*(client.close() for client in clients))
    return f"{grown[0]:,.0f} bytes at the other router, {grown[1]:,.0f} with the link of its receiver"


def convergence(make: Make) -> list[float]:
    """Kill the router between two others, which know a dearer way. Return the longest times between two messages."""
    found = []
    for _ in range(KILLS):
        dear, first, second = free_port(), free_port(), free_port()
        with (
            make("a", [_neighbour("listener", dear, 10), _neighbour("listener", first)]) as a,
            make("c", [_neighbour("connector", dear, 10), _neighbour("listener", second)]) as c,
            make("m", [_neighbour("connector", first), _neighbour("connector", second)]) as middle,
        ):
            asyncio.run(_passes(a, c))
            found.append(asyncio.run(_longest(a, c, middle)))
    return found


async def _longest(sending: Server, receiving: Server, victim: Server) -> float:
    there, here = await _client(receiving), await _client(sending)
    taking = asyncio.create_task(_take(await there.receiver("paced", timeout=60)))
    sender = await here.sender("paced", timeout=60)
    begin = last = time.monotonic()
    longest, killed = 0.0, False
    while (now := time.monotonic()) < begin + 15:
        if now > begin + 5 and not killed:
            victim.process.kill()
            killed, longest = True, 0.0
        try:
            accepted = await sender.send(Message("paced"), timeout=30) == ACCEPTED
        except TimeoutError:
            accepted = False
        if accepted:
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        else:
            await asyncio.sleep(0.01)
    taking.cancel()
    await asyncio.gather(here.close(), there.close())
    return longest


def main() -> None:
    program = shutil.which("qdrouterd")
    with contextlib.ExitStack() as stack:
        a, b = stack.enter_context(neighbours(ours))
        print(f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
        own = cases(a, b)
        if program is None:
            print("qdrouterd is not on PATH: not compared with it")
            for case, pairs in own.items():
                print(case, [load_pairs(pairs, ["--size", "100"], COUNT) for _ in range(ROUNDS)], flush=True)
        else:
            c, d = stack.enter_context(neighbours(theirs(program)))
            for (case, pairs), peers in zip(own.items(), cases(c, d).values(), strict=True):
                side_by_side(
                    case, ROUNDS,
                    lambda pairs=pairs: load_pairs(pairs, ["--size", "100"], COUNT),  # type: ignore[misc]  # its default has no type
                    lambda pairs=peers: load_pairs(pairs, ["--size", "100"], COUNT),  # type: ignore[misc]  # its default has no type
                    "rate", AIM, ("embedded", "qdrouterd"),
                )  # fmt: skip
            print(f"memory of an address, qdrouterd: {memory((c, d))}", flush=True)
        print(f"memory of an address, embedded: {memory((a, b))}", flush=True)
    for name, make in (("embedded", ours), *((("qdrouterd", theirs(program)),) if program else ())):
        times = ", ".join(f"{seconds:.2f}" for seconds in convergence(make))
        print(f"longest time between two messages when the router between is killed, {name}: {times} s", flush=True)
    print(f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)


if __name__ == "__main__":
    main()
