"""Cost of one message inside the engine: bytes in, bytes out, no sockets.

    python benchmarks/engine_micro.py [--messages N] [--size BYTES] [--profile]

A forwarder is fed by a producer and drains into a consumer, all three in this process, but only the forwarder's work
is timed: receive -> on_delivery -> Sender.send -> output, then outcomes -> settle -> output. Reads are of 64 KiB.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import statistics
import time
from typing import Any

from enmasse.amqp.codec.performatives import ACCEPTED, Source, Target
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Link, Receiver, Sender

READ = 65536


class Forwarder(Handler):
    """The shortest possible router: one producer's deliveries go to one consumer."""

    def __init__(self) -> None:
        self.sender: Sender | None = None
        self.incoming: Receiver | None = None

    def on_attach(self, link: Link) -> None:
        link.accept()
        if isinstance(link, Sender):
            self.sender = link
        elif isinstance(link, Receiver):
            self.incoming = link
            link.credit_window = 250

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        sender = self.sender
        assert sender is not None
        if sender.credit:
            sender.send(payload, (link.session, delivery_id))

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        for session, delivery_id in tokens:
            session.settle(delivery_id, state)


class Producer(Handler):
    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.done = 0

    def on_open(self, c: Connection) -> None:
        session = c.begin()
        session.attach_sender("p", Source(), Target(address="a"))

    def on_flow(self, link: Sender) -> None:
        while link.credit:
            link.send(self.payload, 1)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        assert state is ACCEPTED and settled
        self.done += len(tokens)


class Consumer(Handler):
    def on_open(self, c: Connection) -> None:
        session = c.begin()
        receiver = session.attach_receiver("c", Source(address="a"), Target())
        receiver.credit_window = 1000

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        link.session.settle(delivery_id)


def run(messages: int, size: int, profile: bool) -> float:
    """Microseconds per message in the forwarder."""
    forwarder = Forwarder()
    limits = Limits()
    a = Connection(forwarder, container_id="f", is_client=False, limits=limits)
    b = Connection(forwarder, container_id="f", is_client=False, limits=limits)
    producer = Producer(b"\x00Su\xa0" + bytes((min(size, 255),)) + b"x" * size)
    consumer = Consumer()
    p = Connection(producer, container_id="p", is_client=True)
    c = Connection(consumer, container_id="c", is_client=True)
    for client, server, turns in ((c, b, 3), (p, a, 2)):
        client.open()
        for _ in range(turns):  # until attached and granted, the consumer first
            server.receive(client.take_output())
            client.receive(server.take_output())
    spent = 0
    clock = time.thread_time_ns  # what others do on this machine does not count
    profiler = cProfile.Profile() if profile else None
    gc.collect()
    gc.freeze()
    while producer.done < messages:
        for client, server in ((p, a), (c, b)):
            data = client.take_output()
            for start in range(0, len(data), READ):
                chunk = data[start : start + READ]
                if profiler:
                    profiler.enable()
                begin = clock()
                server.receive(chunk)
                for connection in (a, b):
                    if connection.output.dirty:
                        output = connection.take_output()
                        spent += clock() - begin
                        if profiler:
                            profiler.disable()
                        (p if connection is a else c).receive(output)
                        if profiler:
                            profiler.enable()
                        begin = clock()
                spent += clock() - begin
                if profiler:
                    profiler.disable()
    if profiler:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(18)
    return spent / producer.done / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.profile:
        run(options.messages, options.size, True)
        return
    took = [run(options.messages, options.size, False) for _ in range(options.runs)]
    print(
        f"{options.size} bytes: {statistics.median(took):.2f} µs a message "
        f"(from {min(took):.2f} to {max(took):.2f}), {1e6 / statistics.median(took):,.0f} a second"
    )


if __name__ == "__main__":
    main()
