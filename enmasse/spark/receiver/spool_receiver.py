"""The receiver: a process that moves messages from an AMQP address into a spool and accepts them once durable.

The driver-side reader (enmasse.spark.source.source) starts `python -m enmasse.spark.receiver.spool_receiver`. The first
line of its standard input is its settings as JSON: as an argument the URL's password would be in the list of processes.
Each further line is JSON too: `[partition, end]`, Spark has committed the records of a partition before `end`; or
"drain": nothing is wanted but what the address holds now. It ends when its standard input ends, so it never outlives
its reader.

Each line of its standard output is a change of state, as JSON: `attached`; `lost` and why, while it tries again; `full`
and `room` of the spool; `drained`: what the address held is in the spool; `available`: how many messages wait at the
address, as the peer has stated; `without-id`: how many have come without a message-id; `failed` and why it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Container, Coroutine, Iterable
from pathlib import Path
from typing import Any, TextIO

import msgspec

from enmasse.aio.client import Client, ClientReceiver, Delivery
from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import RELEASED as RELEASED_OUTCOME
from enmasse.amqp.link import FIRST, SECOND, Receiver
from enmasse.network.backoff import ReconnectBackoff
from enmasse.network.reconnect import keep_connected
from enmasse.process import runner
from enmasse.spark.errors import QueryError
from enmasse.spark.receiver.account import Account, OwnAccount, SharedAccount, SocketFrames, serve_all
from enmasse.spark.receiver.missing_ids import MissingIds
from enmasse.spark.receiver.outage import Outage, Patience, Phase, words
from enmasse.spark.receiver.unsettled import FRESH, LATER, RELEASED, UNREAD, Unsettled, key_of
from enmasse.spark.server_options import FileError, ServerLogin, space_of
from enmasse.spark.spool.bucket import bucket_of, mirror_partitions
from enmasse.spark.spool.origin import Origin
from enmasse.spark.spool.segment import SpoolError, partition_folder, partitions_of
from enmasse.spark.spool.spool import SpoolInUseError, SpoolWriter

REST_SECONDS = 2.0
SETTLE_SECONDS = 30.0
ASK_SECONDS = 1.0
"""How often the peer is asked how many messages wait."""
UNSTATED = 10
"""Questions in a row after which nothing has come and no number is stated: then the address may be gone."""
QUIET_SECONDS = 0.5
"""How long nothing must have come from a peer that may answer a drain before it has asked the broker (Dispatch)."""
DRAINS, SMALL = 3, 16
"""An address is empty after DRAINS drains in a row that each bring less than one in SMALL of the credit, or of what may
be on the way if that is less."""
GROUP_BYTES = 8 << 20
"""Messages are stored together if they are here, up to this many bytes. While the next group has as many, large
messages stay with the peer."""
FRAME_BYTES = 16 << 10
"""Larger messages come in several frames, so that GROUP_BYTES bound them; of others there are as many as credit."""
ON_THE_WAY = 1000
"""Messages that routers and a broker may hold as unsettled although this link's peer has taken note of them."""


class ReceiverSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings: the address to receive from and the spool to write.

    url: `amqp[s]://[user:password@]host[:port]`. subscription: name of a durable subscription, empty for a plain link.
    container: AMQP container-id; with `subscription` it is the subscription's identity. spool_limit: bytes the spool
    may hold before no more credit is given. patience: how long what is wrong may stay so. user and files: those of
    enmasse.spark.server_options.

    partition: of the spool, which this receiver writes, from 0. account: sockets that were inherited: in receiver 0 one
    to each other receiver of the query, in these the one to receiver 0 (enmasse.spark.receiver.account). shared: the
    subscription is a shared one.

    bucket: URL of the object store that is the spool; then `spool` is the folder of its copy. gather: seconds for which
    messages are gathered before they are put there together.
    """

    url: str
    address: str
    spool: str
    container: str
    subscription: str = ""
    credit: int = 1000
    spool_limit: int = 1 << 30
    bucket: str = ""
    gather: float = 0.0
    partition: int = 0
    account: tuple[int, ...] = ()
    shared: bool = False
    patience: Patience = Patience()
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    space: str = ""

    def login(self) -> ServerLogin:
        """Return where to connect to, and as which user."""
        return ServerLogin(
            "source",
            self.url,
            self.user,
            self.password_file,
            self.ca_file,
            self.cert_file,
            self.key_file,
            self.space,
        )

    def origin(self) -> Origin:
        """Return of what the spool has messages."""
        return Origin(self.address, space_of(self.login()))


class ReceiverFailed(Exception):
    """Trying again does not help: the text names the option and what to do."""


class SpoolIntake:
    """Way of deliveries into the spool, in groups: claim, append, one sync, accept (never in another order)."""

    def __init__(self, spool: SpoolWriter, account: Account) -> None:
        self.spool, self.account = spool, account
        self.mode = SECOND
        self.held: dict[int, Delivery] = {}
        """Deliveries that the account decides about later, by id."""
        self._taking = False
        self._writing = asyncio.Lock()  # the spool takes one group at a time
        self._late: list[tuple[Delivery, int]] = []  # decided, and not stored yet
        self._storing_late: asyncio.Task[None] | None = None
        self._reports = True
        self._awaited: set[int] = set()  # accepted, and not settled by the peer
        self._settled = asyncio.Event()
        self._failure: Exception | None = None
        self._missing_ids, self._told = MissingIds(), 0
        account.decided = self._decided

    def attached(self, receiver: ClientReceiver) -> None:
        """Take deliveries over this link from now on."""
        self.connected(receiver.link.second)
        receiver.on_settled = self.settled
        receiver.take_runs()

    def connected(self, reports: bool) -> None:
        """Note a new connection; reports: its peer settles in a second step."""
        self._reports = reports
        self._failure = None
        self._awaited.clear()
        self.account.connected(reports)

    @property
    def busy(self) -> bool:
        """Whether deliveries that were taken are not stored yet."""
        return bool(self._taking or self.held or self._late or self._writing.locked())

    async def gather(self, receiver: ClientReceiver, seconds: float) -> list[Delivery]:
        """Return a group of deliveries: those that are here, or that come within `seconds` of the first one, before
        GROUP_BYTES are full or all credit is used. Raises AmqpError, OSError, SpoolTakenError as `next` does."""
        group = [await self.next(receiver)]
        self._taking = True
        size, until = len(group[0].payload), asyncio.get_running_loop().time() + seconds
        while size < GROUP_BYTES:
            more = receiver.receive_all(GROUP_BYTES - size)
            if not more:
                left = until - asyncio.get_running_loop().time() if seconds else 0.0
                if left <= 0 or not receiver.link.credit:
                    break
                try:
                    more = [await receiver.receive(timeout=left)]
                except TimeoutError:
                    break
            group += more
            size += sum(len(one.payload) for one in more)
        return group

    async def take(self, deliveries: list[Delivery]) -> None:
        """Store a group of deliveries, then accept them.

        Raises OSError if the spool cannot be written: then nothing of the group was accepted. SpoolTakenError.
        """
        open = [delivery for delivery in deliveries if not delivery.settled]  # settled ones are not redelivered
        if self.account.compares:
            claims = [(one.id, key) for one in open if (key := key_of(one.payload)) is not None]
        else:
            claims = [(one.id, UNREAD) for one in open]
        claimed = dict(claims)
        self._taking = True
        answers = iter(await self.account.claim(claims)) if claims else iter(())
        verdicts = [next(answers) if delivery.id in claimed else FRESH for delivery in deliveries]
        for delivery, verdict in zip(deliveries, verdicts, strict=True):
            if verdict == LATER:  # noted before anything is waited for: the decision may come at once
                self.held[delivery.id] = delivery
        async with self._writing:
            await self._store(deliveries, verdicts, claimed)
        self._taking = False

    async def _store(self, deliveries: list[Delivery], verdicts: list[int], claimed: Container[int]) -> None:
        """Append what is FRESH, sync it, and only then settle. Raises OSError, SpoolError."""
        fresh = self._append(deliveries, verdicts, claimed)
        try:
            await self.spool.synced()
        except OSError as error:
            raise self._unwritable(error) from None
        self._accept(deliveries, verdicts, claimed, fresh)

    def _append(
        self, deliveries: list[Delivery], verdicts: list[int], claimed: Container[int]
    ) -> list[tuple[int, int]]:
        """Append those that are FRESH; return delivery-id and record of each that was claimed."""
        kept = [one for one, verdict in zip(deliveries, verdicts, strict=True) if verdict == FRESH]
        payloads = [one.payload for one in kept]
        self.spool.extend(payloads, time.time_ns() // 1_000_000)
        self._missing_ids.add(payloads)
        return [(one.id, record) for record, one in enumerate(kept, self.spool.count) if one.id in claimed]

    def _accept(
        self, deliveries: list[Delivery], verdicts: list[int], claimed: Container[int], fresh: list[tuple[int, int]]
    ) -> None:
        """Settle deliveries that are stored, or give them back."""
        self.account.stored(fresh, self.spool.count)
        settled = [one for one, verdict in zip(deliveries, verdicts, strict=True) if verdict != LATER]
        if self._reports:
            self._awaited.update(one.id for one in settled if one.id in claimed)
        if RELEASED in verdicts:
            for one, verdict in zip(deliveries, verdicts, strict=True):
                if verdict == RELEASED:
                    one.settle(RELEASED_OUTCOME)
        if settled:  # none if the link was lost meanwhile
            settled[0].receiver.accept_all(settled)

    def _decided(self, delivery_id: int, verdict: int) -> None:
        """Store, accept or give back what was held."""
        delivery = self.held.pop(delivery_id, None)
        if delivery is None:  # of a connection that is gone
            return
        self._late.append((delivery, verdict))
        if self._storing_late is None or self._storing_late.done():
            self._storing_late = asyncio.create_task(self._store_late())

    async def _store_late(self) -> None:
        """Store what was decided about deliveries that were held, those of the same time together."""
        while self._late:
            async with self._writing:
                late, self._late = self._late, []
                deliveries = [delivery for delivery, _ in late]
                try:
                    await self._store(deliveries, [verdict for _, verdict in late], {one.id for one in deliveries})
                except Exception as error:  # nothing was accepted; `next` raises this
                    self.fail(deliveries[0].receiver.link, error)
                    return

    def fail(self, link: Receiver, error: Exception) -> None:
        """End the link: `next` raises this error."""
        self._failure = error
        link.detach()

    def settled(self, delivery_ids: Iterable[int]) -> None:
        """Note deliveries that the peer has settled."""
        ids = list(delivery_ids)
        self._awaited.difference_update(ids)
        self.account.settled(ids)
        self._settled.set()

    def report_missing_ids(self) -> None:
        """Report how many messages have come without a message-id, if that is another number than before."""
        if self._missing_ids.count != self._told:
            self._told = self._missing_ids.count
            report("without-id", messages=self._told)

    async def lost(self) -> None:
        """Note that the link is gone: what it left unsettled is in doubt. Raises OSError if that cannot be stored."""
        self.held.clear()
        self._taking = False
        self._late.clear()
        try:
            async with self._writing:  # what is being stored is a record before it is in doubt
                await self.account.lost()
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> OSError:
        return OSError(error.errno, f"the spool cannot be written, {error.strerror}", str(self.spool.folder))

    async def next(self, receiver: ClientReceiver) -> Delivery:
        """Return the next delivery.

        Raises AmqpError if the link is lost, or if the peer has settled nothing for SETTLE_SECONDS: the next link then
        settles at once (rcv-settle-mode first). Raises OSError and SpoolTakenError as `take` does.
        """
        while True:
            self._settled.clear()
            try:
                return await receiver.receive(timeout=SETTLE_SECONDS)
            except TimeoutError:
                if self._awaited and not self._settled.is_set():
                    self.mode = FIRST
                    what = f"the peer has settled nothing of what was accepted in {SETTLE_SECONDS:g} s"
                    raise AmqpError(errors.ILLEGAL_STATE, what) from None
            except AmqpError:
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise failure from None
                raise

    async def at_rest(self) -> None:
        """Return when the peer has settled all that was accepted, if it reports that."""
        while self._awaited:
            self._settled.clear()
            await self._settled.wait()


def report(event: str, **more: Any) -> None:
    """Write a change of state to standard output, for the reader."""
    print(json.dumps({"event": event, **more}), file=_events, flush=True)


_events: TextIO | None = None
"""Standard output of the process, which has nothing but changes of state; None: not separated from that of others."""


def separate() -> None:
    """Have what libraries write to standard output go to standard error."""
    global _events
    _events = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


class Reception:
    """Connections, one after the other, over which messages are received."""

    def __init__(
        self, settings: ReceiverSettings, intake: SpoolIntake, outage: Outage, drain_asked: asyncio.Event
    ) -> None:
        self._settings, self._intake, self._outage = settings, intake, outage
        self._drain_asked = drain_asked
        self._phase = Phase.CONNECT

    def connect(self) -> Client:
        """Return a client for the next attempt, not open yet. Raises FileError."""
        self._phase = Phase.CONNECT
        return self._settings.login().client(
            container_id=self._settings.container, idle_timeout=30, max_frame_size=FRAME_BYTES
        )

    async def session(self, client: Client) -> None:
        """Receive from attach to loss of the link. Raises OSError or AmqpError: why it ended."""
        self._phase = Phase.ATTACH
        receiver = await attached(self._settings, client, self._intake.mode)
        self._phase = Phase.ATTACHED
        self._outage.attached()
        if not self._settings.partition:
            with contextlib.suppress(OSError):  # the next link tries again; messages need the same room
                await asyncio.to_thread(self._intake.spool.note_origin, self._settings.origin().encoded())
        self._intake.attached(receiver)
        report("attached", address=self._settings.address)
        beside = [asyncio.create_task(one) for one in (self._drain(receiver), self._report_counts(client, receiver))]
        try:
            await take_all(self._settings, self._intake, receiver)
        finally:
            for each in beside:
                each.cancel()

    async def _drain(self, receiver: ClientReceiver) -> None:
        """Once that is asked for: report `drained` when what the address held is in the spool."""
        await self._drain_asked.wait()
        with contextlib.suppress(AmqpError):  # take_all ends with it, and the next link is drained again
            await drained(receiver, self._settings.credit)
            while receiver.fetched or self._intake.busy:  # at the limit of the spool, or held
                await asyncio.sleep(0.01)
            self._intake.report_missing_ids()
            report("drained")

    async def _report_counts(self, client: Client, receiver: ClientReceiver) -> None:
        """Report how many messages wait at the address, and how many have come without an id: once a second, if that
        has changed. End the link if the address is gone."""
        told, unstated, link = None, 0, receiver.link
        while True:
            before = link.deliveries
            link.ask_queued()
            await asyncio.sleep(ASK_SECONDS)
            self._intake.report_missing_ids()
            unstated = unstated + 1 if link.queued is None and link.deliveries == before else 0
            if link.queued != told:
                told = link.queued
                report("available", messages=told)
            if unstated == UNSTATED:
                unstated = 0
                await self._look(client, link)

    async def _look(self, client: Client, link: Receiver) -> None:
        """End the link if a second one is refused because there is no such address: a router keeps those that it has.
        The link of a subscription is detached with it."""
        if self._settings.subscription:
            return
        try:
            await (await client.receiver(self._settings.address, credit=0)).close()
        except AmqpError as error:
            if error.condition == errors.NOT_FOUND:
                self._intake.fail(link, error)
        except TimeoutError:
            pass  # it is asked again

    async def failed(self, error: Exception) -> None:
        """Report `lost`. Raises ReceiverFailed if trying again does not help."""
        new = self._phase is Phase.CONNECT and not self._outage.had
        if new and (wrong := await self._settings.login().port_fault(error)):
            raise ReceiverFailed(f"amqp source: {wrong}") from None
        verdict = self._outage.failed(self._phase, error, asyncio.get_running_loop().time())
        if verdict is not None:
            raise ReceiverFailed(verdict) from None
        report("lost", reason=words(error))
        await keep_doubt(self._intake)


async def attached(settings: ReceiverSettings, client: Client, mode: int) -> ClientReceiver:
    """Return the attached link: at most `credit` deliveries are on their way or not settled. Raises AmqpError."""
    durable = settings.subscription or None
    kinds: tuple[str, ...] = ()
    several = bool(settings.account)
    if durable:
        kinds = ("topic", "shared") if settings.shared else ("topic",)
    elif several:
        kinds = ("queue",)  # each receiver of a topic would get every message
    try:
        receiver = await client.receiver(
            settings.address,
            credit=0,
            durable_name=f"{durable}|{settings.partition + 1}" if durable and settings.shared else durable,
            capabilities=kinds,
            most_waiting=GROUP_BYTES,
            rcv_settle_mode=mode,
        )
    except AmqpError as error:
        if kinds == ("queue",) and error.condition == errors.ILLEGAL_STATE:
            raise ReceiverFailed(
                f'amqp source: option "receivers": {settings.address!r} gives each receiver every message '
                f'({error.description}). Write the option "subscription", for a subscription that they share, or leave '
                '"receivers" out'
            ) from None
        if durable and error.condition == errors.ILLEGAL_STATE and "not configured for" in (error.description or ""):
            raise ReceiverFailed(
                f'amqp source: option "subscription": {settings.address!r} is no topic ({error.description}). Leave '
                '"subscription" out, or name a topic'
            ) from None
        raise
    receiver.link.credit_window = settings.credit
    return receiver


async def take_all(settings: ReceiverSettings, intake: SpoolIntake, receiver: ClientReceiver) -> None:
    """Move messages from the address into the spool until the link ends. Raises OSError or AmqpError: why it ended."""
    try:
        await take_groups(settings, intake, receiver)
    except asyncio.CancelledError:
        with contextlib.suppress(AmqpError, TimeoutError):  # what is settled by then is not in doubt later
            async with asyncio.timeout(REST_SECONDS):
                await intake.at_rest()
        raise
    finally:
        if settings.subscription:  # it stays
            with contextlib.suppress(AmqpError, TimeoutError):
                await receiver.detach(timeout=1)


async def take_groups(settings: ReceiverSettings, intake: SpoolIntake, receiver: ClientReceiver) -> None:
    """Store what comes, in groups, until the link ends. Raises OSError or AmqpError."""
    try:
        while True:
            await intake.take(await intake.gather(receiver, settings.gather))
            await room(settings, intake.spool)
    finally:
        receiver.give_back()  # with large messages the socket may not be read, neither for what ends the connection


async def drained(receiver: ClientReceiver, window: int) -> None:
    """Return when the address has given what it had; it has no credit then.

    A drain that brings nothing shows that, if nothing is unsettled: a router brings no more than it may hold as
    unsettled, however much credit it has. If others receive from the address, or send to it, the last drain is one of
    several that bring little: so messages that keep coming do not keep it from ending.
    """
    link, little, settled = receiver.link, 0, True
    if not link.second:
        await quiet(receiver)
    while little < DRAINS:
        wanted = window - link.unsettled - link.credit
        if (link.unsettled and not settled) or (wanted <= 0 and not link.credit):
            await asyncio.sleep(0.01)  # what has come must be stored first
            continue
        link.grant(max(0, wanted))
        asked, before, settled = link.credit, link.deliveries, not link.unsettled
        try:
            await receiver.drain(SETTLE_SECONDS)
        except TimeoutError:
            if receiver.fetched:
                continue  # the spool is full: the answer may not be read yet
        came = link.deliveries - before
        if came * SMALL >= min(asked, ON_THE_WAY):
            little, settled = 0, True
        elif settled:
            if not came:
                return
            little += 1


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
        with contextlib.suppress(OSError):
            spool.end_segment()  # which a full disk may have kept from it: an ended one can be deleted
        spool.measure()
        if not full:
            full = True
            report("full", bytes=spool.bytes_held())
        await asyncio.sleep(0.2)
    if full:
        report("room", bytes=spool.bytes_held())


async def opened(settings: ReceiverSettings, partition: int) -> SpoolWriter:
    """Return a partition of the spool as soon as the receiver of a dead driver has released it, within ten seconds.

    Raises SpoolError, OptionError.
    """
    folder = partition_folder(Path(settings.spool), partition)
    for attempt in itertools.count():
        try:
            return SpoolWriter(folder, settings.spool_limit, bucket_of(settings.bucket, partition))
        except SpoolInUseError:
            if attempt == 100:
                raise
        except OSError as error:
            raise unusable(settings, error, folder) from None
        await asyncio.sleep(0.1)
    raise AssertionError


def unusable(settings: ReceiverSettings, error: OSError, folder: Path) -> SpoolError:
    """Return what to do if the spool cannot be opened."""
    if settings.bucket and error.filename is None:
        return SpoolError(
            f'amqp source: option "spool": {settings.bucket}: {error.strerror}. Credentials, region and endpoint are '
            "those of the driver's environment (AWS_ACCESS_KEY_ID …); they must allow to list, get, put and delete"
        )
    return SpoolError(
        f'amqp source: option "spool": {error.filename or folder}: {error.strerror}. Choose a folder that this user '
        "may write to, on a disk with room"
    )


class Partitions:
    """The partitions of a spool that this process writes: that of its receiver, and in receiver 0 also those that are
    left from receivers which the query no longer has, to be read to their end."""

    def __init__(self, own: int, writers: dict[int, SpoolWriter]) -> None:
        self.own, self.writers = own, writers

    async def forget(self, commits: asyncio.Queue[tuple[int, int]], account: Account) -> None:
        """Delete what Spark has committed; if that fails, the next commit tries again."""
        while True:
            partition, end = await commits.get()
            writer = self.writers[partition]
            with contextlib.suppress(OSError):
                gone = writer.forgettable(end)
                if gone and partition == self.own:
                    await account.keep(gone[-1].end)
                if writer.bucket is not None:
                    await asyncio.to_thread(writer.bucket.delete, [int(each.path.stem) for each in gone])
                writer.forget(gone)


async def opened_all(settings: ReceiverSettings) -> tuple[Partitions, Account, list[Coroutine[Any, Any, None]]]:
    """Return the partitions, once all receivers of the query have opened theirs; the account; and what has to run
    beside the receiver. Raises SpoolError, AccountError."""
    folder, own = Path(settings.spool), settings.partition
    if settings.bucket and not own:
        try:
            mirror_partitions(settings.bucket, folder, 1 + len(settings.account))
        except OSError as error:
            raise unusable(settings, error, folder) from None
    writers = {own: await opened(settings, own)}
    sockets = [await SocketFrames.over(file) for file in settings.account]
    if own:
        shared = SharedAccount(sockets[0])
        await shared.opened(writers[own].count)
        return Partitions(own, writers), shared, [shared.run()]
    for n in range(1 + len(sockets), partitions_of(folder)):
        writers[n] = await opened(settings, n)
    counts = [writers[0].count, *[(await frames.next())[1] for frames in sockets]]
    counts += [writers[n].count for n in range(1 + len(sockets), partitions_of(folder))]
    if any(counts):
        place = settings.bucket or str(folder)
        try:
            settings.origin().check(await asyncio.to_thread(writers[0].origin), place)
        except OSError as error:
            raise unusable(settings, error, folder) from None
    unsettled = Unsettled(folder, counts, 2 * settings.credit + ON_THE_WAY, 1 + len(sockets), writers[0].keep)
    account = OwnAccount(unsettled)
    if not sockets:
        return Partitions(own, writers), account, []
    return Partitions(own, writers), account, [serve_all(unsettled, account, sockets)]


async def receive(
    settings: ReceiverSettings, commits: asyncio.Queue[tuple[int, int]], drain_asked: asyncio.Event
) -> None:
    """Receive indefinitely, reconnecting with a back-off, until cancelled. Raises AccountError if another receiver of
    the query has ended."""
    partitions, account, beside = await opened_all(settings)
    report("opened")
    intake = SpoolIntake(partitions.writers[settings.partition], account)
    loop = asyncio.get_running_loop()
    outage = Outage(settings.url, settings.address, settings.patience, loop.time(), settings.user)
    reception = Reception(settings, intake, outage, drain_asked)
    connected = keep_connected(
        reception.connect,
        reception.session,
        reception.failed,
        failures=(OSError, AmqpError, UnicodeError, FileError),
        backoff=ReconnectBackoff(loop.time()),
        now=loop.time,
    )
    work = asyncio.create_task(connected)
    others = [asyncio.create_task(one) for one in (partitions.forget(commits, account), *beside)]
    stopped = True
    try:
        await asyncio.wait([work, *others], return_when=asyncio.FIRST_COMPLETED)
        stopped = False
    finally:
        await ended(work)  # before the account, which notes what is settled until then
        if stopped and isinstance(account, SharedAccount):
            await account.end()
        elif stopped and beside:
            await asyncio.wait(others[1:], timeout=REST_SECONDS + 1)
        for other in others:
            other.cancel()
        if stopped and settings.bucket and not settings.partition:
            shutil.rmtree(settings.spool, ignore_errors=True)  # a copy
    for each in (work, *others):
        if each.done() and not each.cancelled():
            each.result()


async def ended(work: asyncio.Task[None]) -> None:
    """End a task, whatever becomes of it."""
    work.cancel()
    await asyncio.wait([work])


async def keep_doubt(intake: SpoolIntake) -> None:
    """After a connection, return when the messages in doubt are on disk, and there is room for those that could not be
    written; both are tried again each second. Without room a next connection would only count up redeliveries."""
    kept, told = False, False
    while True:
        try:
            if not kept:
                await intake.lost()
                kept = True
            intake.spool.check_room()
            return
        except OSError as error:
            if not kept and not told:
                told = True
                report("lost", reason=words(error))
            await asyncio.sleep(1)


async def run() -> None:
    """Receive until standard input ends or trying again does not help.

    Raises ReceiverFailed, SpoolError, OSError, msgspec.DecodeError.
    """
    lines = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    settings = msgspec.json.decode(await lines.readline(), type=ReceiverSettings)
    commits: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
    drain_asked = asyncio.Event()
    work = asyncio.create_task(receive(settings, commits, drain_asked))
    watch = asyncio.create_task(read_commands(lines, commits, drain_asked))
    await asyncio.wait([work, watch], return_when=asyncio.FIRST_COMPLETED)
    watch.cancel()
    if not work.done():
        work.cancel()
    await runner.join(work)


async def read_commands(
    lines: asyncio.StreamReader, commits: asyncio.Queue[tuple[int, int]], drain_asked: asyncio.Event
) -> None:
    """Pass on what the reader writes to standard input; return when that ends."""
    while line := await lines.readline():
        command = json.loads(line)
        if command == "drain":
            drain_asked.set()
        else:
            commits.put_nowait((int(command[0]), int(command[1])))


def main() -> None:
    """Run the receiver; an error is reported as `failed` and ends the process with status 1."""
    argparse.ArgumentParser(
        "python -m enmasse.spark.receiver.spool_receiver",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    separate()
    try:
        asyncio.run(run())
    except (ReceiverFailed, QueryError, OSError, msgspec.DecodeError) as error:
        report("failed", reason=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
