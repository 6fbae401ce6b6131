"""The receiver: a process that moves messages from an AMQP address into a spool and accepts them once durable.

`python -m spark.receiver '<options as JSON>'`; it ends when its standard input ends, so it never outlives the reader
that started it, however that reader died. One line on standard output per change of state: `attached`, or what is
wrong.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from enmasse.amqp.connection import Connection, Handler
from enmasse.amqp.sasl import client_sasl
from enmasse.amqp.transport import Hub, client_context, dial

from enmasse.amqp.errors import AmqpError
from enmasse.amqp.link import Link, Receiver
from enmasse.amqp.message import Sections
from enmasse.amqp.performatives import ACCEPTED, Source
from enmasse.amqp.types import Symbol
from spark.spool import SeenIds, SpoolError, SpoolWriter, read_segment, segments

RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
DURABLE, NEVER, SESSION_END = 2, Symbol("never"), Symbol("session-end")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to receive from and where to put it.

    url: `amqp[s]://[user:password@]host[:port]`. subscription: name of a durable subscription, empty for a plain link.
    container: AMQP container-id; with `subscription` it is the subscription's identity. spool_limit: bytes the spool
    may hold before no more credit is given.
    """

    url: str
    address: str
    spool: str
    container: str
    subscription: str = ""
    credit: int = 1000
    spool_limit: int = 1 << 30


def identity(payload: bytes) -> str | None:
    """The message-id as text that keeps its type apart (`1` the number is not `"1"`), or None."""
    properties = Sections(payload).properties
    message_id = properties.message_id if properties is not None else None
    return None if message_id is None else f"{type(message_id).__name__}:{message_id!r}"


class Receiving(Handler):
    """One connection's receiver: append, sync once per turn of the loop, accept."""

    def __init__(self, options: Options, spool: SpoolWriter, seen: SeenIds) -> None:
        self.options, self.spool, self.seen = options, spool, seen
        self.link: Receiver | None = None
        self.waiting: list[int] = []
        self.fresh: list[str] = []  # ids of records that are appended but not yet durable
        self.scheduled = False
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.full = False

    def on_open(self, c: Connection) -> None:
        if self.link is not None:
            return
        o = self.options
        durable = bool(o.subscription)
        self.link = c.begin().attach_receiver(
            o.subscription or f"{o.container}-{o.address}",
            Source(
                address=o.address,
                durable=DURABLE if durable else 0,
                expiry_policy=NEVER if durable else SESSION_END,
                capabilities=(Symbol("topic"),) if durable else (),
            ),
            None,
        )
        self.link.credit_window = o.credit

    def on_attached(self, link: Link) -> None:
        if link.remote_source is not None:
            say("attached", address=self.options.address)

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        try:
            message_id = identity(payload)
        except AmqpError:
            message_id = None  # not ours to judge: Spark sees it as it is
        if message_id is None or message_id not in self.seen:
            if message_id is not None:
                self.seen.add(message_id)
                self.fresh.append(message_id)
            self.spool.append(payload, time.time_ns() // 1_000_000)
        if not settled:
            self.waiting.append(delivery_id)
        if not self.scheduled:
            self.scheduled = True
            asyncio.get_running_loop().call_soon(self.make_durable)

    def make_durable(self) -> None:
        """One fdatasync for all that has gathered, then accept it (never the other way round)."""
        link, waiting, fresh = self.link, self.waiting, self.fresh
        self.waiting, self.fresh, self.scheduled = [], [], False
        try:
            self.spool.sync()
        except OSError as error:
            # nothing was accepted: the sender has it all still, and delivers it again when we come back
            self.seen.discard(fresh)
            self.finish(f"{self.spool.folder}: {error.strerror or error}")
            return
        if link is None:
            return
        for delivery_id in waiting:
            link.session.settle(delivery_id, ACCEPTED)
        link.session.connection.wake()

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        self.finish(str(error) if error else f"{self.options.address}: the link was detached")

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        self.finish(str(error or c.transport_error or "the connection was closed"))

    def finish(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_result(why)


def say(event: str, **more: Any) -> None:
    print(json.dumps({"event": event, **more}), flush=True)  # noqa: T201 - the protocol with the reader


async def receive_once(options: Options, spool: SpoolWriter, seen: SeenIds, hub: Hub) -> str:
    """One connection from dial to loss; returns why it ended."""
    url = urlsplit(options.url)
    tls = url.scheme == "amqps"
    handler = Receiving(options, spool, seen)
    host, port = url.hostname or "127.0.0.1", url.port or (5671 if tls else 5672)
    user, password = unquote(url.username or ""), unquote(url.password or "")
    connection = Connection(
        handler,
        container_id=options.container,
        is_client=True,
        hostname=host,
        idle_timeout_ms=30_000,
        sasl=client_sasl(user or None, password or None),
    )
    try:
        await dial(hub, host, port, connection, ssl=client_context() if tls else None)
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    try:
        while not handler.ended.done():
            await asyncio.wait([handler.ended], timeout=0.5)
            hold_back(options, spool, handler)
        return handler.ended.result()
    finally:
        handler.finish("stopping")
        connection.close()


def hold_back(options: Options, spool: SpoolWriter, handler: Receiving) -> None:
    """Stop giving credit while the spool is over its limit; Spark's commits make room again."""
    if handler.link is None:
        return
    full = spool.bytes_held() > options.spool_limit
    if full != handler.full:
        handler.full = full
        handler.link.credit_window = 0 if full else options.credit
        say("full" if full else "room", bytes=spool.bytes_held())


async def receive(options: Options) -> None:
    """Receive for ever, reconnecting with a back-off, until standard input ends."""
    spool = SpoolWriter(Path(options.spool))
    seen = SeenIds(spool.remembered())
    for first, path in segments(spool.folder):
        for record in read_segment(path, first, first, 1 << 63):
            try:
                message_id = identity(record.message)
            except AmqpError:
                continue
            if message_id is not None:
                seen.add(message_id)
    loop = asyncio.get_running_loop()
    hub = Hub(loop)
    attempt = 0
    while True:
        began = loop.time()
        why = await receive_once(options, spool, seen, hub)
        attempt = 0 if loop.time() - began > 10 else attempt + 1
        say("lost", reason=why)
        await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])


async def until_abandoned() -> None:
    """Returns when standard input ends: whoever started us is gone or wants us gone."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(4096):
        pass


async def run(options: Options) -> None:
    work = asyncio.create_task(receive(options))
    watch = asyncio.create_task(until_abandoned())
    done, _ = await asyncio.wait([work, watch], return_when=asyncio.FIRST_COMPLETED)
    work.cancel()
    if work in done:
        work.result()


def main() -> None:
    try:
        asyncio.run(run(msgspec.json.decode(sys.argv[1].encode(), type=Options)))
    except (SpoolError, msgspec.ValidationError) as error:
        say("failed", reason=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
