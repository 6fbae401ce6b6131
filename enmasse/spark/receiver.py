"""The receiver: a process that moves messages from an AMQP address into a spool and accepts them once durable.

The driver-side reader (enmasse.spark.source) starts `python -m enmasse.spark.receiver`. The first line of its standard
input is its settings as JSON: as an argument the URL's password would be in the list of processes. Each further line
is JSON too: a number, before which Spark has committed the records, or "drain": nothing is wanted but what the address
holds now. It ends when its standard input ends, so it never outlives its reader. Each line of its standard output is a
change of state, as JSON: `attached`; `lost` and why, while it tries again; `full` and `room` of the spool; `drained`:
what the address held is in the spool; `failed` and why it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from enmasse.aio.client import Client, ClientReceiver, Delivery
from enmasse.amqp import errors
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.link import FIRST, SECOND
from enmasse.amqp.performatives import ACCEPTED
from enmasse.backoff import ReconnectBackoff
from enmasse.reconnect import keep_connected
from enmasse.spark.errors import QueryError
from enmasse.spark.login import FileError, Login
from enmasse.spark.outage import Outage, Patience, Phase, words
from enmasse.spark.segment import SpoolError
from enmasse.spark.spool import SpoolInUseError, SpoolWriter
from enmasse.spark.unsettled import Unsettled, key_of

RETRY_FIRST, RETRY_LAST = 0.2, 5.0
"""Seconds before the first try again, and between two at most."""
REST_SECONDS = 2.0
SETTLE_SECONDS = 30.0
QUIET_SECONDS = 0.5
"""How long nothing must have come from a peer that may answer a drain before it has asked the broker (Dispatch)."""
DRAINS, SMALL = 3, 16
"""An address is empty after DRAINS drains in a row that each bring less than one in SMALL of the credit."""
ON_THE_WAY = 1000
"""Messages that routers and a broker may hold as unsettled although this link's peer has taken note of them."""


class ReceiverSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings: the address to receive from and the spool to write.

    url: `amqp[s]://[user:password@]host[:port]`. subscription: name of a durable subscription, empty for a plain link.
    container: AMQP container-id; with `subscription` it is the subscription's identity. spool_limit: bytes the spool
    may hold before no more credit is given. patience: how long what is wrong may stay so. user and files: those of
    enmasse.spark.login.
    """

    url: str
    address: str
    spool: str
    container: str
    subscription: str = ""
    credit: int = 1000
    spool_limit: int = 1 << 30
    patience: Patience = Patience()
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def login(self) -> Login:
        """Return where to connect to, and as which user."""
        return Login("source", self.url, self.user, self.password_file, self.ca_file, self.cert_file, self.key_file)


class ReceiverFailed(Exception):
    """Trying again does not help: the text names the option and what to do."""


class Intake:
    """Way of deliveries into the spool, in groups: append, one sync, accept (never the other way round)."""

    def __init__(self, spool: SpoolWriter, unsettled: Unsettled) -> None:
        self.spool, self.unsettled = spool, unsettled
        self.mode = SECOND
        self._settled = asyncio.Event()

    def attached(self, receiver: ClientReceiver) -> None:
        """Take deliveries over this link from now on."""
        self.unsettled.connected(reports=receiver.link.second)
        receiver.on_settled = self.settled

    def take(self, deliveries: list[Delivery]) -> None:
        """Store a group of deliveries, then accept them.

        Raises OSError if the spool cannot be written: then nothing of the group was accepted.
        """
        fresh: list[tuple[int, int, bytes]] = []
        record = self.spool.count
        now = time.time_ns() // 1_000_000
        for delivery in deliveries:
            # Settled messages are not redelivered.
            key = None if delivery.settled else key_of(delivery.payload)
            if key is not None and self.unsettled.is_copy(delivery.id, key):
                continue
            self.spool.append(delivery.payload, now)
            if key is not None:
                fresh.append((delivery.id, record, key))
            record += 1
        try:
            self.spool.sync()
        except OSError as error:
            what = f"the spool cannot be written, {error.strerror}"
            raise OSError(error.errno, what, str(self.spool.folder)) from None
        for one in fresh:
            self.unsettled.add(*one)
        self.unsettled.added()
        for delivery in deliveries:
            delivery.settle(ACCEPTED)

    def settled(self, delivery_ids: Iterable[int]) -> None:
        """Note deliveries that the peer has settled."""
        self.unsettled.settled(delivery_ids)
        self._settled.set()

    async def next(self, receiver: ClientReceiver) -> Delivery:
        """Return the next delivery.

        Raises AmqpError if the link is lost, or if the peer has settled nothing for SETTLE_SECONDS: the next link then
        settles at once (rcv-settle-mode first).
        """
        while True:
            self._settled.clear()
            try:
                return await receiver.receive(timeout=SETTLE_SECONDS)
            except TimeoutError:
                if self.unsettled.awaited() and not self._settled.is_set():
                    self.mode = FIRST
                    what = f"the peer has settled nothing of what was accepted in {SETTLE_SECONDS:g} s"
                    raise AmqpError(errors.ILLEGAL_STATE, what) from None

    async def at_rest(self) -> None:
        """Return when the peer has settled all that was accepted, if it reports that."""
        while self.unsettled.awaited():
            self._settled.clear()
            await self._settled.wait()


def report(event: str, **more: Any) -> None:
    """Write a change of state to standard output, for the reader."""
    print(json.dumps({"event": event, **more}), flush=True)  # noqa: T201 - the protocol with the reader


class Reception:
    """Connections, one after the other, over which messages are received."""

    def __init__(self, settings: ReceiverSettings, intake: Intake, outage: Outage, drain_asked: asyncio.Event) -> None:
        self._settings, self._intake, self._outage = settings, intake, outage
        self._drain_asked = drain_asked
        self._phase = Phase.CONNECT

    def connect(self) -> Client:
        """Return a client for the next attempt, not open yet. Raises FileError."""
        self._phase = Phase.CONNECT
        return self._settings.login().client(container_id=self._settings.container, idle_timeout=30)

    async def session(self, client: Client) -> None:
        """Receive from attach to loss of the link. Raises OSError or AmqpError: why it ended."""
        self._phase = Phase.ATTACH
        receiver = await attached(self._settings, client, self._intake.mode)
        self._phase = Phase.ATTACHED
        self._outage.attached()
        self._intake.attached(receiver)
        report("attached", address=self._settings.address)
        draining = asyncio.create_task(self._drain(receiver))
        try:
            await take_all(self._settings, self._intake, receiver)
        finally:
            draining.cancel()

    async def _drain(self, receiver: ClientReceiver) -> None:
        """Once that is asked for: report `drained` when what the address held is in the spool."""
        await self._drain_asked.wait()
        with contextlib.suppress(AmqpError):  # take_all ends with it, and the next link is drained again
            await drained(receiver, self._settings.credit)
            while receiver.fetched:  # at the limit of the spool
                await asyncio.sleep(0.01)
            report("drained")

    async def failed(self, error: Exception) -> None:
        """Report `lost`. Raises ReceiverFailed if trying again does not help."""
        verdict = self._outage.failed(self._phase, error, asyncio.get_running_loop().time())
        if verdict is not None:
            raise ReceiverFailed(verdict) from None
        report("lost", reason=words(error))
        await keep_doubt(self._intake.unsettled)


async def attached(settings: ReceiverSettings, client: Client, mode: int) -> ClientReceiver:
    """Return the attached link: at most `credit` deliveries are on their way or not settled. Raises AmqpError."""
    durable = settings.subscription or None
    receiver = await client.receiver(
        settings.address,
        credit=0,
        durable_name=durable,
        capabilities=("topic",) if durable else (),
        rcv_settle_mode=mode,
    )
    receiver.link.credit_window = settings.credit
    return receiver


async def take_all(settings: ReceiverSettings, intake: Intake, receiver: ClientReceiver) -> None:
    """Move messages from the address into the spool until the link ends. Raises OSError or AmqpError: why it ended."""
    try:
        while True:
            group = [await intake.next(receiver)]
            while (more := receiver.receive_nowait()) is not None:
                group.append(more)
            intake.take(group)
            await room(settings, intake.spool)
    except asyncio.CancelledError:
        with contextlib.suppress(AmqpError, TimeoutError):  # what is settled by then is not in doubt later
            await asyncio.wait_for(intake.at_rest(), REST_SECONDS)
        raise
    finally:
        if settings.subscription:  # it stays
            with contextlib.suppress(AmqpError, TimeoutError):
                await receiver.detach(timeout=1)


async def drained(receiver: ClientReceiver, window: int) -> None:
    """Return when the address has given what it had; it has no credit then.

    A drain that brings nothing shows that. If others receive from the address, or send to it, the last drain is one of
    several that bring little: so messages that keep coming do not keep it from ending.
    """
    link, little = receiver.link, 0
    if not link.second:
        await quiet(receiver)
    while little < DRAINS:
        wanted = window - link.unsettled - link.credit
        if wanted <= 0 and not link.credit:
            await asyncio.sleep(0.01)  # what has come must be stored first
            continue
        link.grant(max(0, wanted))
        asked, before = link.credit, link.deliveries
        with contextlib.suppress(TimeoutError):
            await receiver.drain(SETTLE_SECONDS)
        came = link.deliveries - before
        if not came:
            return
        little = little + 1 if came * SMALL < asked else 0


async def quiet(receiver: ClientReceiver) -> None:
    """Return when nothing has come for QUIET_SECONDS."""
    before = -1
    while receiver.link.deliveries != before:
        before = receiver.link.deliveries
        await asyncio.sleep(QUIET_SECONDS)


async def room(settings: ReceiverSettings, spool: SpoolWriter) -> None:
    """Return when the spool is under its limit. Meanwhile no message is taken, so the sender runs out of credit."""
    full = False
    while spool.bytes_held() > settings.spool_limit:
        spool.measure()
        if not full:
            full = True
            report("full", bytes=spool.bytes_held())
        await asyncio.sleep(0.2)
    if full:
        report("room", bytes=spool.bytes_held())


async def opened(folder: Path, limit: int) -> SpoolWriter:
    """Return the spool as soon as the receiver of a dead driver has released it, within ten seconds.

    Raises SpoolError.
    """
    for attempt in itertools.count():
        try:
            return SpoolWriter(folder, limit)
        except SpoolInUseError:
            if attempt == 100:
                raise
        except OSError as error:
            raise SpoolError(
                f'amqp source: option "spool": {error.filename or folder}: {error.strerror}. Choose a folder that this '
                "user may write to, on a disk with room"
            ) from None
        await asyncio.sleep(0.1)
    raise AssertionError


async def receive(settings: ReceiverSettings, commits: asyncio.Queue[int], drain_asked: asyncio.Event) -> None:
    """Receive indefinitely, reconnecting with a back-off, until cancelled."""
    spool = await opened(Path(settings.spool), settings.spool_limit)
    unsettled = Unsettled(spool, 2 * settings.credit + ON_THE_WAY)
    forgetting = asyncio.create_task(forget(commits, unsettled))
    intake = Intake(spool, unsettled)
    loop = asyncio.get_running_loop()
    outage = Outage(settings.url, settings.address, settings.patience, loop.time(), settings.user)
    reception = Reception(settings, intake, outage, drain_asked)
    try:
        await keep_connected(
            reception.connect,
            reception.session,
            reception.failed,
            failures=(OSError, AmqpError, UnicodeError, FileError),
            backoff=ReconnectBackoff(loop.time(), first=RETRY_FIRST, short=RETRY_LAST, most=RETRY_LAST),
            now=loop.time,
        )
    finally:
        forgetting.cancel()


async def forget(commits: asyncio.Queue[int], unsettled: Unsettled) -> None:
    """Delete what Spark has committed; if that fails, the next commit tries again."""
    while True:
        end = await commits.get()
        with contextlib.suppress(OSError):
            unsettled.forget_segments(end)


async def keep_doubt(unsettled: Unsettled) -> None:
    """After a connection, return when the messages in doubt are on disk; a failed write is tried again each second."""
    for attempt in itertools.count():
        try:
            unsettled.lost()
            return
        except OSError as error:
            if not attempt:
                report("lost", reason=words(error))
            await asyncio.sleep(1)


async def run() -> None:
    """Receive until standard input ends or trying again does not help.

    Raises ReceiverFailed, SpoolError, OSError, msgspec.DecodeError.
    """
    lines = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    settings = msgspec.json.decode(await lines.readline(), type=ReceiverSettings)
    commits: asyncio.Queue[int] = asyncio.Queue()
    drain_asked = asyncio.Event()
    work = asyncio.create_task(receive(settings, commits, drain_asked))
    watch = asyncio.create_task(read_commands(lines, commits, drain_asked))
    await asyncio.wait([work, watch], return_when=asyncio.FIRST_COMPLETED)
    watch.cancel()
    if not work.done():
        work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def read_commands(lines: asyncio.StreamReader, commits: asyncio.Queue[int], drain_asked: asyncio.Event) -> None:
    """Pass on what the reader writes to standard input; return when that ends."""
    while line := await lines.readline():
        command = json.loads(line)
        if command == "drain":
            drain_asked.set()
        else:
            commits.put_nowait(command)


def main() -> None:
    """Run the receiver; an error is reported as `failed` and ends the process with status 1."""
    argparse.ArgumentParser(
        "python -m enmasse.spark.receiver", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    try:
        asyncio.run(run())
    except (ReceiverFailed, QueryError, OSError, msgspec.DecodeError) as error:
        report("failed", reason=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
