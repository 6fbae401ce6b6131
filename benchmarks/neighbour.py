"""Latency and rate of one address space while another one floods, beside the same alone.

`python -m benchmarks.neighbour [DIMENSION …]`: first at a router, where a limit of the plan is exceeded threefold or
connections are many (two embedded routers, a configuration service and an authentication service as processes), then in
a suite with a broker, where both spaces have queues on it. ROUNDS, SECONDS and CONNECTIONS change the measures.

The flood is a process of its own, so on two cores a part of what the neighbour loses is the processor. `net` is the
time of a message without that in which neighbour, router and broker could run and had no processor (Linux counts it
for each process): the time for which the flood's work inside router and broker holds it up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.broker_selectors import SELECTORS
from benchmarks.harness import ROOT, line, summary
from enmasse.aio import mqtt
from enmasse.aio.client import Client, connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.message import Message
from enmasse.amqp.sasl.layer import PlainClient, SaslClient
from enmasse.testing import wait_for as wait_up
from tests.kit.spaces import running_with_spaces
from tests.kit.waiting import wait_for
from tests.router.tenants import Installation
from tests.system.conftest import QUEUE, TOPIC
from tests.system.users import allow, entry

ROUNDS, SECONDS = int(os.environ.get("ROUNDS", "5")), float(os.environ.get("SECONDS", "1.5"))
MANY = int(os.environ.get("CONNECTIONS", "10000"))
RETAINED = int(os.environ.get("RETAINED", "100000"))
CONNECTIONS, MESSAGES, BYTES, SIZE = 100, 1000, 1_000_000, 10_000
ONE_LIMIT: dict[str, dict[str, int]] = {
    "connections": {"connections": CONNECTIONS},
    "messages": {"messagesPerSecond": MESSAGES},
    "bytes": {"bytesPerSecond": BYTES},
    "sizes": {"maxMessageSize": SIZE},
    "links": {"linksPerConnection": 10},
    "connecting": {},
    "1000 senders": {},
    "idle": {},
}
"""Dimension → the plan of the flooding space, at a router."""
AT_BROKER = ("selectors", "full queue", "backlog", "retained")


class Place(NamedTuple):
    """Port for AMQP clients, port for MQTT clients (0: none), and the processes that a message passes through."""

    port: int
    mqtt: int
    pids: Sequence[int]


def space(name: str, port: int) -> contextlib.AbstractAsyncContextManager[Client]:
    return connect(host="127.0.0.1", port=port, user=f"alice@{name}", password="pw", timeout=60.0)


def waited(pids: Sequence[int]) -> float:
    """Return the seconds in which these processes could run and had no processor, since they began."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) for pid in pids) / 1e9


async def neighbour(place: Place) -> dict[str, float]:
    """Send one message after the other, each when the one before was received; return p99 in ms and the rate."""
    times: list[float] = []
    net: list[float] = []
    pids = (os.getpid(), *place.pids)
    async with space("two", place.port) as client:
        receiver = await client.receiver("own", credit=10)
        sender = await client.sender("own")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            before, begun = waited(pids), time.perf_counter()
            outcome = sender.send_nowait(Message("x", durable=os.environ.get("DURABLE") == "1"))
            delivery = await receiver.receive()
            times.append(time.perf_counter() - begun)
            net.append(times[-1] - waited(pids) + before)
            await delivery.accept()
            if outcome is not None:
                await outcome
    return {"p99": _p99(times), "net": _p99(net), "median": statistics.median(net) * 1000, "rate": len(times) / SECONDS}


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98] * 1000


async def flood(kind: str, port: int, mqtt_port: int) -> None:
    """Flood until the process is ended; where there is a limit, exceed it threefold."""
    async with contextlib.AsyncExitStack() as stack:
        if kind == "connections":
            print("ready", flush=True)
            while True:
                await asyncio.gather(*(_connect(stack, port) for _ in range(3)), asyncio.sleep(0.01))
        elif kind == "connecting":
            print("ready", flush=True)
            await asyncio.gather(*(_again(port) for _ in range(50)))
        elif kind == "idle":
            for _ in range(0, MANY, 20):
                await asyncio.gather(*(_idle(stack, port) for _ in range(20)))
            print("ready", flush=True)
            await asyncio.Event().wait()
        elif kind in AT_BROKER:
            await _at_broker(kind, stack, port, mqtt_port)
        else:
            many = 1000 if kind == "1000 senders" else 1
            clients = [await stack.enter_async_context(space("three", port)) for _ in range(many)]
            print("ready", flush=True)
            pause, size = {"messages": (1 / 300, 10), "bytes": (0.01, 3000)}.get(kind, (0.01, 10))
            await asyncio.gather(*(_send(client, kind, pause, size) for client in clients))


async def _connect(stack: contextlib.AsyncExitStack, port: int) -> None:
    with contextlib.suppress(AmqpError, OSError, TimeoutError):
        await stack.enter_async_context(space("three", port))


async def _idle(stack: contextlib.AsyncExitStack, port: int) -> None:
    """Log in by PLAIN: the proof of SCRAM takes a client 20 ms each time."""
    sasl = SaslClient([PlainClient("alice@three", "pw")], "127.0.0.1")
    settings = {"container_id": str(uuid.uuid4()), "hostname": "127.0.0.1", "sasl": sasl, "idle_timeout_ms": 600_000}
    await stack.enter_async_context(Client("127.0.0.1", port, settings, None))


async def _again(port: int) -> None:
    while True:
        with contextlib.suppress(AmqpError, OSError, TimeoutError):
            async with space("three", port):
                pass


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


async def _at_broker(kind: str, stack: contextlib.AsyncExitStack, port: int, mqtt_port: int) -> None:
    client = await stack.enter_async_context(space("three", port))
    if kind == "retained":
        async with mqtt.connect("127.0.0.1", mqtt_port, user="alice@three", password="pw") as device:
            for number in range(0, RETAINED, 200):
                some = range(number, min(number + 200, RETAINED))
                await asyncio.gather(*(device.publish(f"news/{n}", b"x" * 100, 1, retain=True) for n in some))
        print("ready", flush=True)
        while True:
            async with mqtt.connect("127.0.0.1", mqtt_port, user="alice@three", password="pw") as device:
                await device.subscribe("news/#")
                for _ in range(RETAINED):
                    device.ack(await device.message())
    selector, properties = SELECTORS["sought"]
    queue = "full" if kind == "full queue" else "flooded"
    if kind == "selectors":
        with contextlib.suppress(AmqpError):  # as many as one user may have
            for _ in range(20):
                await client.receiver(queue, credit=10, selector=selector)
    senders = [await client.sender(queue) for _ in range(20)]
    receivers = [await client.receiver(queue, credit=100) for _ in range(20)] if kind == "backlog" else []
    message = Message("x" * 1000, durable=True, application_properties=properties)
    print("ready", flush=True)

    async def send(sender: Any) -> None:
        while True:
            with contextlib.suppress(AmqpError):
                await sender.send(message)

    async def receive(receiver: Any) -> None:
        while True:
            await (await receiver.receive(timeout=None)).release()  # so that it is delivered again

    await asyncio.gather(*map(send, senders), *map(receive, receivers))


@contextlib.contextmanager
def flooded(kind: str, place: Place) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.neighbour", "flood", kind, str(place.port), str(place.mqtt)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        line(process)
        yield
    finally:
        process.kill()
        process.wait()


def measured(kind: str, place: Place, over: Callable[[], None]) -> None:
    """Measure alone and beside the flood in turn. `over` waits until the flood has gone."""
    alone: list[dict[str, float]] = []
    beside: list[dict[str, float]] = []
    rounds = min(2, ROUNDS) if kind in ("idle", "retained") else ROUNDS
    for _ in range(rounds):
        alone.append(asyncio.run(neighbour(place)))
        with flooded(kind, place):
            beside.append(asyncio.run(neighbour(place)))
        over()
    ratios = {
        what: summary([after[what] / before[what] for before, after in zip(alone, beside, strict=True)], 2)
        for what in ("p99", "net", "rate")
    }
    times = {what: [summary([each[what] for each in found], 2) for found in (alone, beside)] for what in ("p99", "net")}
    print(
        f"{kind:<14} p99 ms {' -> '.join(times['p99'])}, ratio {ratios['p99']}; net {' -> '.join(times['net'])}, ratio "
        f"{ratios['net']}; rate ratio {ratios['rate']}",
        flush=True,
    )


def at_router(kinds: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, Installation(Path(folder)) as installation:
        front = installation.fronts[0]
        place = Place(front.users, 0, [front.process.pid])
        for kind in kinds:
            limits = ONE_LIMIT[kind]
            installation.plans(**limits)

            def in_force(limits: Any = limits) -> bool:
                return bool(installation.space("three").get("limits", {}) == limits)

            def over() -> None:
                wait_for(lambda: installation.space("three")["used"].get("connections", 0) == 0, "the flood has gone")

            wait_for(in_force, "the plan is in force")
            measured(kind, place, over)


def at_broker(kinds: Sequence[str]) -> None:
    queue = {"type": "queue", "flavor": QUEUE}
    addresses = {
        "own": queue, "flooded": queue, "full": {**queue, "maxSize": "64Ki"},
        "news": {"type": "topic", "flavor": TOPIC},
    }  # fmt: skip
    users = {"alice": entry("pw", allow("#"))}
    files: dict[str, Any] = {"spaces.json": {"two": {}, "three": {}}, "users.json": users}
    for name in ("two", "three"):
        files[f"spaces/{name}/addresses.json"] = addresses
        files[f"spaces/{name}/users.json"] = users
    options = () if "retained" in kinds else ("--without", "mqtt")
    with (
        tempfile.TemporaryDirectory() as folder,
        running_with_spaces(Path(folder), files, addresses={}, options=options) as suite,
    ):
        for file in suite.config.rglob("users.json"):
            file.chmod(0o600)
        suite.up()
        port = int(suite.url.rpartition(":")[2].strip("/"))
        wait_up("the queues", lambda: asyncio.run(_reached(port)))
        pids = [each["pid"] for each in suite.status()["components"] if each["kind"] in ("router", "broker")]
        for kind in kinds:
            measured(kind, Place(port, suite.mqtt_port, pids), lambda: None)
        suite.down()


async def _reached(port: int) -> bool:
    with contextlib.suppress(AmqpError, OSError, TimeoutError):
        for name, address in (("two", "own"), ("three", "flooded"), ("three", "full")):
            async with space(name, port) as client:
                await (await client.sender(address)).send(Message("x"))
        async with space("two", port) as client:
            await (await (await client.receiver("own", credit=1)).receive()).accept()
        return True
    return False


def main(kinds: Sequence[str] = ()) -> None:
    """Run the dimensions, all by default."""
    kinds = kinds or (*ONE_LIMIT, *AT_BROKER)
    if routed := [kind for kind in kinds if kind in ONE_LIMIT]:
        at_router(routed)
    if stored := [kind for kind in kinds if kind in AT_BROKER]:
        at_broker(stored)


if __name__ == "__main__":
    if sys.argv[1:2] == ["flood"]:
        asyncio.run(flood(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    else:
        main(sys.argv[1:])
