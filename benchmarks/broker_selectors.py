"""Cost of one user's selectors for the others: the time in which a durable message passes through a queue while another
client has the worst selectors that the broker allows evaluated, as often as it can.

`python -m benchmarks broker_selectors`; SECONDS=10 makes each measurement longer."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from typing import Any

from benchmarks import broker
from benchmarks.manage import create_queue, create_topic
from enmasse.aio.client import Client, connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.message import Message

SECONDS = float(os.environ.get("SECONDS", "5"))
VICTIM, HOSTILE = "victim", "hostile"
PIPELINED = 500

SELECTORS: dict[str, tuple[str, dict[str, Any]]] = {
    "sought": (" OR ".join(f"p LIKE '%{'_' * 7}{'a' * 12}b%'" for _ in range(47)), {"p": "a" * 250}),
    "quotients": ("1 = " + " * ".join(["p"] * 15) + " / " + " / ".join(["3"] * 480), {"p": 1 << 62}),
    "comparisons": (" OR ".join(["p = 1"] * 250), {"p": 2}),
    "190 LIKE": (" OR ".join(f"p LIKE '%{'a' * 60}b{n:03}%'" for n in range(190)), {"p": "a" * 14_000}),
}
"""A selector, and properties for which it takes long. The last one was allowed up to version 0.2."""


async def _topic(client: Client, selector: str, properties: dict[str, Any], subscribers: int) -> None:
    """Messages to a topic, each for `subscribers` selectors."""
    with contextlib.suppress(AmqpError):  # as many as one user may have
        for _ in range(subscribers):
            await client.receiver("topic", credit=10, selector=selector, capabilities=("topic",))
    await _send(client, "topic", properties)


async def _queue(client: Client, selector: str, properties: dict[str, Any], consumers: int) -> None:
    """Messages to a queue that no consumer wants."""
    with contextlib.suppress(AmqpError):
        for _ in range(consumers):
            await client.receiver(HOSTILE, credit=10, selector=selector)
    await _send(client, HOSTILE, properties)


async def _browse(client: Client, selector: str, properties: dict[str, Any], browsers: int) -> None:
    """Browsers, again and again, of a queue in which nothing matches."""
    sender = await client.sender(HOSTILE)
    await asyncio.gather(*(sender.send(Message("x", application_properties=properties)) for _ in range(1000)))

    async def look() -> None:
        while True:
            with contextlib.suppress(AmqpError):
                receiver = await client.receiver(HOSTILE, credit=10, selector=selector, browse=True)
                await receiver.drain(None)
                await receiver.close()

    await asyncio.gather(*(look() for _ in range(browsers)))


async def _attach(client: Client, selector: str, properties: dict[str, Any], links: int) -> None:
    """Attaches with ever new selectors."""

    async def attach(number: int) -> None:
        while True:
            receiver = await client.receiver(HOSTILE, selector=f"{selector} OR x = {time.time_ns()}")
            await receiver.close()

    await asyncio.gather(*(attach(number) for number in range(links)))


async def _send(client: Client, address: str, properties: dict[str, Any]) -> None:
    sender = await client.sender(address)
    message = Message("x", application_properties=properties)
    while True:
        await asyncio.gather(*(sender.send(message, timeout=600) for _ in range(PIPELINED)))


ATTACKS = {"topic": (_topic, 200), "queue": (_queue, 50), "browse": (_browse, 100), "attach": (_attach, 20)}


def _attack(port: int, attack: str, kind: str, said: Connection) -> None:
    work, count = ATTACKS[attack]

    async def run() -> None:
        async with connect(f"amqp://127.0.0.1:{port}") as client:
            said.send("ready")
            await work(client, *SELECTORS[kind], count)

    try:
        asyncio.run(run())
    except (AmqpError, OSError, TimeoutError) as error:
        said.send(f"{error}"[:100])


def _others(port: int, seconds: float) -> list[float]:
    """The times of messages that pass one after the other, sorted."""

    async def run() -> list[float]:
        found: list[float] = []
        async with connect(f"amqp://127.0.0.1:{port}") as client:
            sender = await client.sender(VICTIM, timeout=60)
            receiver = await client.receiver(VICTIM, credit=10, timeout=60)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                began = time.perf_counter()
                await sender.send(Message("x", durable=True), timeout=60)
                delivery = await receiver.receive(60)
                await delivery.accept()
                found.append(time.perf_counter() - began)
        return sorted(found)

    return asyncio.run(run())


def measure(attack: str | None, kind: str) -> None:
    """Print a line for one kind of attack, against a broker of its own."""
    with broker.embedded() as server:
        for name in (VICTIM, HOSTILE):
            create_queue(server.port, name)
        create_topic(server.port, "topic")
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=_attack, args=(server.port, attack, kind, theirs), daemon=True)
        if attack is not None:
            process.start()
            ours.recv()
            time.sleep(1)
        found = _others(server.port, SECONDS)
        note = ours.recv() if ours.poll() else ""
        if attack is not None:
            process.kill()
            process.join()
    p99 = found[len(found) * 99 // 100]
    took = f"p50 {1000 * found[len(found) // 2]:7.1f} p99 {1000 * p99:7.1f} ms, longest {1000 * found[-1]:7.1f} ms"
    print(f"{attack or 'nothing':10} {kind if attack else '':12} others: {len(found):6} messages, {took}  {note}")


def main() -> None:
    """Every attack with every selector."""
    measure(None, "sought")
    for attack in ATTACKS:
        for kind in SELECTORS:
            measure(attack, kind)


if __name__ == "__main__":
    main()
