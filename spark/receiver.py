"""The receiver: a process that moves messages from an AMQP address into a spool and accepts them once durable.

`python -m spark.receiver` with the options as one line of JSON on standard input (not as an argument: everybody on the
machine would see the URL's password in the list of processes). It ends when its standard input ends, so it never
outlives the reader that started it, however that reader died. One line on standard output per change of state:
`attached`; `lost` and why, while it tries again; `full` and `room` of the spool; `failed` and why it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from enmasse.amqp.client import Client, ClientReceiver, Delivery, connect
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.message import Sections
from enmasse.amqp.performatives import ACCEPTED
from spark.outage import Outage, Patience, Phase, words
from spark.spool import SeenIds, SpoolError, SpoolInUse, SpoolWriter, read_segment, segments

RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to receive from and where to put it.

    url: `amqp[s]://[user:password@]host[:port]`. subscription: name of a durable subscription, empty for a plain link.
    container: AMQP container-id; with `subscription` it is the subscription's identity. spool_limit: bytes the spool
    may hold before no more credit is given. patience: how long what is wrong may stay so.
    """

    url: str
    address: str
    spool: str
    container: str
    subscription: str = ""
    credit: int = 1000
    spool_limit: int = 1 << 30
    patience: Patience = Patience()


def identity(payload: bytes) -> str | None:
    """The message-id as text that keeps its type apart (`1` the number is not `"1"`), or None.

    A message that does not decode has none: it is not ours to judge, Spark sees it as it is.
    """
    try:
        properties = Sections(payload).properties
    except AmqpError:
        return None
    message_id = properties.message_id if properties is not None else None
    return None if message_id is None else f"{type(message_id).__name__}:{message_id!r}"


class ReceiverFailed(Exception):
    """There is no sense in trying again: the text says which option is wrong and what to do."""


class Intake:
    """From deliveries to accepted, in groups: append, one sync, accept (never the other way round)."""

    def __init__(self, spool: SpoolWriter, seen: SeenIds) -> None:
        self.spool, self.seen = spool, seen

    def take(self, deliveries: list[Delivery]) -> None:
        """Raises OSError where the spool cannot be written: then nothing of the group was accepted."""
        fresh: list[str] = []
        now = time.time_ns() // 1_000_000
        for delivery in deliveries:
            message_id = identity(delivery.payload)
            if message_id is not None:
                if message_id in self.seen:
                    continue
                self.seen.add(message_id)
                fresh.append(message_id)
            self.spool.append(delivery.payload, now)
        try:
            self.spool.sync()
        except OSError as error:
            self.seen.discard(fresh)
            what = f"the spool cannot be written, {error.strerror}"
            raise OSError(error.errno, what, str(self.spool.folder)) from None
        for delivery in deliveries:
            delivery.settle(ACCEPTED)


def say(event: str, **more: Any) -> None:
    print(json.dumps({"event": event, **more}), flush=True)  # noqa: T201 - the protocol with the reader


async def receive_once(options: Options, intake: Intake, outage: Outage) -> None:
    """One connection from dial to loss; says `lost` and returns. Raises ReceiverFailed where trying again is no use."""
    phase = Phase.CONNECT
    try:
        async with connect(options.url, container_id=options.container, idle_timeout=30) as client:
            phase = Phase.ATTACH
            receiver = await attached(options, client)
            phase = Phase.ATTACHED
            outage.attached()
            say("attached", address=options.address)
            await take_all(options, intake, receiver)
    except (OSError, AmqpError, TimeoutError, UnicodeError) as error:
        verdict = outage.failed(phase, error, asyncio.get_running_loop().time())
        if verdict is not None:
            raise ReceiverFailed(verdict) from None
        say("lost", reason=words(error))


async def attached(options: Options, client: Client) -> ClientReceiver:
    durable = options.subscription or None
    return await client.receiver(
        options.address, credit=options.credit, durable_name=durable, capabilities=("topic",) if durable else ()
    )


async def take_all(options: Options, intake: Intake, receiver: ClientReceiver) -> None:
    """From the address into the spool. Raises OSError or AmqpError: why it ended."""
    try:
        while True:
            group = [await receiver.receive()]
            while (more := receiver.receive_nowait()) is not None:
                group.append(more)
            intake.take(group)
            await room(options, intake.spool)
    finally:
        if options.subscription:  # it stays
            with contextlib.suppress(AmqpError, TimeoutError):
                await receiver.detach(timeout=1)


async def room(options: Options, spool: SpoolWriter) -> None:
    """Returns when the spool is under its limit. Meanwhile nothing is taken, so the sender runs out of credit."""
    told = False
    while spool.bytes_held() > options.spool_limit:
        if not told:
            told = True
            say("full", bytes=spool.bytes_held())
        await asyncio.sleep(0.2)
    if told:
        say("room", bytes=spool.bytes_held())


async def opened(folder: Path, limit: int) -> SpoolWriter:
    """The spool, as soon as the receiver of a driver that has just died lets go of it; else SpoolError."""
    for attempt in itertools.count():
        try:
            return SpoolWriter(folder, limit)
        except SpoolInUse:
            if attempt == 100:
                raise
        except OSError as error:
            raise SpoolError(
                f'amqp source: option "spool": {error.filename or folder}: {error.strerror}. Choose a folder that this '
                "user may write to, on a disk with room"
            ) from None
        await asyncio.sleep(0.1)
    raise AssertionError


async def receive(options: Options) -> None:
    """Receive for ever, reconnecting with a back-off, until standard input ends."""
    spool = await opened(Path(options.spool), options.spool_limit)
    seen = SeenIds(spool.remembered())
    for first, path in segments(spool.folder):
        for record in read_segment(path, first, first, 1 << 63):
            message_id = identity(record.message)
            if message_id is not None:
                seen.add(message_id)
    intake = Intake(spool, seen)
    loop = asyncio.get_running_loop()
    outage = Outage(options.url, options.address, options.patience, loop.time())
    attempt = 0
    while True:
        began = loop.time()
        await receive_once(options, intake, outage)
        attempt = 0 if loop.time() - began > 10 else attempt + 1
        await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS)) - 1])


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
        asyncio.run(run(msgspec.json.decode(sys.stdin.buffer.readline(), type=Options)))
    except (ReceiverFailed, SpoolError, OSError, msgspec.DecodeError) as error:
        say("failed", reason=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
