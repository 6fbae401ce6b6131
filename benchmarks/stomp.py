"""STOMP clients of a suite beside the same at Artemis, and durable transactions of ten messages beside it.

`python -m benchmarks.stomp`. At the suite a message passes gateway, router and broker; Artemis has a listener for
STOMP itself. The client is the same for both: one connection that sends messages of 1 KiB with `persistent` and a
receipt, WINDOW of them under way, and one that acknowledges each (`client-individual`). Transactions: of STOMP, with a
receipt of COMMIT, on CONNECTIONS connections; of AMQP, by one blocking client of Proton, at the broker's own port.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from proton import Message
from proton.utils import BlockingConnection

from benchmarks.artemis import artemis
from benchmarks.broker import embedded
from benchmarks.harness import Server, side_by_side
from benchmarks.manage import create_queue
from benchmarks.mqtt_users import cpu_of
from enmasse.testing import Suite, running
from enmasse.wire_formats.stomp_frames import StompFrame, StompParser, encoded
from tests.kit.transactions import Transacted

WINDOW: Final = 256
CONNECTIONS: Final = 16
EACH: Final = 10
BODY: Final = bytes(1024)
QUEUE: Final = "bench"
VERSION: Final = "1.2"


class Place:
    """Port of STOMP, and the processes that a message passes through."""

    def __init__(self, name: str, port: int, pids: list[int]) -> None:
        self.name = name
        self.port = port
        self.pids = pids

    def cpu(self) -> float:
        """Return seconds of processor time so far."""
        return sum(map(cpu_of, self.pids))


class Client(asyncio.Protocol):
    """A connection. `frames`: those that came and were not taken."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[StompFrame] = asyncio.Queue()
        self._parser = StompParser(1 << 20)
        self._parser.version = VERSION

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        while (found := self._parser.next()) is not None:
            self.frames.put_nowait(found)

    def send(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        self.transport.write(encoded(command, [(k.replace("_", "-"), v) for k, v in headers.items()], body, VERSION))

    async def expect(self, command: str) -> StompFrame:
        """Return the next frame. Raises RuntimeError if it is another one."""
        found = await asyncio.wait_for(self.frames.get(), 60)
        if found.command != command:
            raise RuntimeError(f"{found.command} instead of {command}: {found.headers} {found.body!r}")
        return found


@contextlib.asynccontextmanager
async def connected(port: int) -> Any:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    client.send("CONNECT", accept_version=VERSION, host="/")  # RabbitMQ: its virtual host
    await client.expect("CONNECTED")
    try:
        yield client
    finally:
        client.transport.close()


async def stream(port: int, count: int, destination: str = QUEUE) -> None:
    """Send messages and acknowledge them, each end with its own connection."""
    async with connected(port) as sender, connected(port) as receiver:
        receiver.send("SUBSCRIBE", id="0", destination=destination, ack="client-individual")

        async def send() -> None:
            for number in range(count + WINDOW):
                if number >= WINDOW:
                    await sender.expect("RECEIPT")
                if number < count:
                    sender.send("SEND", BODY, destination=destination, persistent="true", receipt="r")

        async def receive() -> None:
            for _ in range(count):
                receiver.send("ACK", id=(await receiver.expect("MESSAGE")).headers["ack"])
            receiver.send("UNSUBSCRIBE", id="0", receipt="end")
            await receiver.expect("RECEIPT")

        await asyncio.gather(send(), receive())


async def transactions(port: int, count: int) -> None:
    """Make `count` transactions that send, one after the other on each connection."""

    async def work(number: int) -> None:
        async with connected(port) as client:
            for turn in range(count // CONNECTIONS):
                name = f"{number}-{turn}"
                client.send("BEGIN", transaction=name)
                for _ in range(EACH):
                    client.send("SEND", BODY, destination=QUEUE, persistent="true", transaction=name)
                client.send("COMMIT", transaction=name, receipt="r")
                await client.expect("RECEIPT")

    await asyncio.gather(*map(work, range(CONNECTIONS)))


async def drain(port: int, count: int, destination: str = QUEUE) -> None:
    async with connected(port) as client:
        client.send("SUBSCRIBE", id="0", destination=destination, ack="auto")
        for _ in range(count):
            await client.expect("MESSAGE")


def measured(place: Place, what: Any, count: int, messages: int) -> dict[str, Any]:
    cpu, begun = place.cpu(), time.perf_counter()
    asyncio.run(what(place.port, count))
    seconds = time.perf_counter() - begun
    result = {"rate": count / seconds, "cpu_us": (place.cpu() - cpu) / messages * 1e6}
    if what is transactions:
        asyncio.run(drain(place.port, messages))
    return result


def amqp_transactions(server: Server, count: int) -> dict[str, Any]:
    """Make transactions of messages that are sent and, in the next one, received."""
    connection = BlockingConnection(f"amqp://127.0.0.1:{server.port}", timeout=60, allowed_mechs="ANONYMOUS")
    sender = connection.create_sender(QUEUE)
    receiver = connection.create_receiver(QUEUE, credit=EACH * 4)
    transacted = Transacted(connection)
    message = Message(BODY, durable=True)
    cpu, begun = server.cpu(), time.perf_counter()
    for _ in range(count):
        transacted.begin()
        sent = [transacted.send_later(sender, message) for _ in range(EACH)]
        transacted.commit()
        for delivery in sent:
            delivery.settle()
        for _ in range(EACH):
            receiver.receive(timeout=60)
            receiver.accept()
    seconds = time.perf_counter() - begun
    connection.close()
    return {"rate": count / seconds, "cpu_us": (server.cpu() - cpu) / count / EACH * 1e6}


@contextlib.contextmanager
def our_suite(*doors: str) -> Iterator[Place]:
    """Run a suite with the gateway of STOMP, and others."""
    queue = {QUEUE: {"type": "queue", "flavor": "small-persisted-queue"}}
    options = [word for door in ("stomp", *doors) for word in ("--with", door)]
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), queue, options=options) as suite:
        suite.up()
        yield Place("suite", 61613 + suite.offset, _pids(suite))
        suite.down()


def _pids(suite: Suite) -> list[int]:
    kinds = ("stomp_gateway", "http_gateway", "router", "broker")
    return [each["pid"] for each in suite.status()["components"] if each["kind"] in kinds]


def main(rounds: int = int(os.environ.get("ROUNDS", "5"))) -> None:
    with embedded() as ours, artemis(protocols="AMQP,STOMP") as theirs, our_suite() as suite:
        other = Place(theirs.name, theirs.port, [theirs.process.pid])
        for server in (ours, theirs):
            create_queue(server.port, QUEUE)
        for place in (suite, other):  # Java compiles while it runs
            asyncio.run(stream(place.port, 20_000))
            measured(place, transactions, 800, 8_000)
        names = suite.name, other.name
        for title, what, count, messages, aim in (
            ("STOMP, persistent 1 KiB, one producer and one consumer", stream, 20_000, 20_000, 1.5),
            (f"STOMP, transactions of ten, {CONNECTIONS} connections", transactions, 800, 8_000, 1.0),
        ):
            side_by_side(
                title,
                rounds,
                partial(measured, suite, what, count, messages),
                partial(measured, other, what, count, messages),
                "rate",
                aim,
                names,
            )
        side_by_side(
            "AMQP, transactions of ten, one outstanding, at the broker's own port",
            rounds,
            lambda: amqp_transactions(ours, 500),
            lambda: amqp_transactions(theirs, 500),
            "rate",
            1.0,
            (ours.name, theirs.name),
        )
    print(f"load average after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
