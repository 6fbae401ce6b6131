"""HTTP and STOMP clients of a suite beside the same at RabbitMQ, which Debian's package rabbitmq-server installs.

`python -m benchmarks.rabbitmq`. Of HTTP, RabbitMQ's nearest is `POST /api/exchanges/…/publish` of its management
plug-in: it answers once the queue has confirmed the message, as 201 of a suite does, and opens a channel for each
request; Artemis takes no messages over HTTP. CONNECTIONS connections have a request under way each; a message is
durable, with 1 KiB. Of STOMP it is the client of benchmarks.stomp, at RabbitMQ's STOMP plug-in. Queues are emptied
between the rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from benchmarks.harness import await_port, free_port, running, side_by_side
from benchmarks.stomp import BODY, QUEUE, Place, drain, measured, our_suite, stream

SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
CONNECTIONS: Final = 32
MESSAGES: Final = 6_000
LOGIN: Final = "authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
DESTINATION: Final = f"/queue/{QUEUE}"


class HttpPeer(NamedTuple):
    """`request`: a whole request that sends the message, `good` the status of its answer."""

    place: Place
    stomp: int
    request: bytes
    good: bytes


def request(path: str, body: bytes, headers: str = "", method: str = "POST") -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body
    )


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    """Send a request; return the status of its answer, which was read."""
    writer.write(data)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if (at := head.find(b"content-length:")) >= 0:
        await reader.readexactly(int(head[at + 15 : head.index(b"\r\n", at)]))
    return head[9:12]


async def post(peer: HttpPeer, count: int) -> None:
    """Send messages. Raises RuntimeError if one of them is not accepted."""
    left = iter(range(count))

    async def work() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", peer.place.port)
        for _ in left:
            if (status := await ask(reader, writer, peer.request)) != peer.good:
                raise RuntimeError(f"{peer.place.name} answers {status.decode()}")
        writer.close()

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))


def posted(peer: HttpPeer, count: int) -> dict[str, Any]:
    cpu, begun = peer.place.cpu(), time.perf_counter()
    asyncio.run(post(peer, count))
    seconds = time.perf_counter() - begun
    result = {"rate": count / seconds, "cpu_us": (peer.place.cpu() - cpu) / count * 1e6}
    asyncio.run(drain(peer.stomp, count, DESTINATION))
    return result


@contextlib.contextmanager
def rabbitmq() -> Iterator[HttpPeer]:
    """Run RabbitMQ with its plug-ins of management and STOMP."""
    scratch = Path(tempfile.mkdtemp())
    first = free_port()
    amqp, dist, epmd, web, stomp = range(first, first + 5)
    (scratch / "plugins").write_text("[rabbitmq_management,rabbitmq_stomp].")
    (scratch / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{amqp}\nmanagement.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {web}\n"
        f"stomp.listeners.tcp.1 = 127.0.0.1:{stomp}\nstomp.default_user = guest\nstomp.default_pass = guest\n"
        "stomp.implicit_connect = true\nlog.console = true\nlog.console.level = error\n"
    )
    environment = {
        "HOME": str(scratch),
        "ERL_EPMD_PORT": str(epmd),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_DIST_PORT": str(dist),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": str(scratch / "mnesia"),
        "RABBITMQ_LOG_BASE": str(scratch / "log"),
        "RABBITMQ_CONFIG_FILE": str(scratch / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(scratch / "plugins"),
    }
    command = ["env", *(f"{name}={value}" for name, value in environment.items()), str(SERVER)]
    try:
        with running("RabbitMQ", command, stomp, scratch=scratch) as server:
            await_port(web, server.process)
            pids = [each.pid for each in psutil.Process(server.process.pid).children(recursive=True)]
            body = json.dumps(
                {
                    "properties": {"delivery_mode": 2},
                    "routing_key": QUEUE,
                    "payload": BODY.decode(),
                    "payload_encoding": "string",
                }
            ).encode()
            asyncio.run(_declare(web))
            path = "/api/exchanges/%2f/amq.default/publish"
            yield HttpPeer(Place("RabbitMQ 3.10", web, pids), stomp, request(path, body, LOGIN), b"200")
    finally:
        if epmd_program := shutil.which("epmd"):  # a server starts it, and leaves it
            subprocess.run([epmd_program, "-port", str(epmd), "-kill"], capture_output=True)


async def _declare(web: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", web)
    status = await ask(reader, writer, request(f"/api/queues/%2f/{QUEUE}", b'{"durable":true}', LOGIN, "PUT"))
    if status != b"201":
        raise RuntimeError(f"RabbitMQ declares no queue: {status.decode()}")
    writer.close()


def main(rounds: int = int(os.environ.get("ROUNDS", "5"))) -> None:
    if not SERVER.exists():
        print(f"left out: {SERVER} is missing; install it (Debian: rabbitmq-server), do not start its service")
        return
    with rabbitmq() as theirs, our_suite("http") as suite:
        web = Place(suite.name, suite.port - 61613 + 8088, suite.pids)
        ours = HttpPeer(web, suite.port, request(f"/v1/{QUEUE}/messages", BODY), b"201")
        other = Place(theirs.place.name, theirs.stomp, theirs.place.pids)
        for peer in (ours, theirs):
            posted(peer, 1_000)
        names = suite.name, other.name
        side_by_side(
            f"HTTP, durable 1 KiB, {CONNECTIONS} connections with a request each",
            rounds,
            partial(posted, ours, MESSAGES),
            partial(posted, theirs, MESSAGES),
            "rate",
            1.0,
            names,
        )
        what = partial(stream, destination=DESTINATION)
        side_by_side(
            "STOMP, persistent 1 KiB, one producer and one consumer",
            rounds,
            partial(measured, suite, what, 20_000, 20_000),
            partial(measured, other, what, 20_000, 20_000),
            "rate",
            1.0,
            names,
        )
    print(f"load average after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
