"""Packet ids, stored: what comes while a transaction is being committed goes into the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from enmasse.logs import log
from enmasse.model.sessions import Outgoing, PacketChange, PacketsReply, is_contended
from enmasse.process import runner
from enmasse.stores import Change, Store, StoreError
from services.subserv import records
from services.subserv.sessions.qos2_owners import Message, Undo
from services.subserv.sessions.sessions import Session, Sessions, undone

_Waiting = tuple[Sequence[PacketChange], asyncio.Future[PacketsReply]]


class Packets:
    """Stores changes of packet ids in the order in which they come. One transaction at a time, so that what a failed
    one has changed in memory can be undone."""

    def __init__(self, sessions: Sessions, store: Store) -> None:
        self._sessions = sessions
        self._store = store
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None
        self.failures = 0
        """Unexpected errors; each has refused one request."""

    async def change(self, changes: Sequence[PacketChange]) -> PacketsReply:
        """Return when they are durable, with those that were not made, or not as asked.

        Raises StoreError if the store fails, and any other exception after an unexpected error: none of them was made.
        """
        done: asyncio.Future[PacketsReply] = asyncio.get_running_loop().create_future()
        self._waiting.append((changes, done))
        if self._writer is None:
            self._writer = runner.spawn(self._write(), "packet ids")
        return await done

    async def settled(self) -> None:
        """Wait until the earlier changes are stored, or have failed."""
        if self._writer is not None:
            await self.change(())

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._store_batch(batch)
        finally:
            self._writer = None

    async def _store_batch(self, batch: list[_Waiting]) -> None:
        """Make and store the changes of some requests, and answer each.

        After an unexpected error each request is tried alone, so that the others are not refused with it.
        """
        undo: list[Undo] = []
        try:
            made, replies = self._made(batch, undo)
            await self._store.write(made)
        except BaseException as error:
            undone(undo)
            if not isinstance(error, Exception):
                self._refuse(batch + self._waiting, StoreError("the service ends"))
                raise
            if isinstance(error, StoreError):
                self._refuse(batch, error)
            elif len(batch) > 1:
                for each in batch:
                    await self._store_batch([each])
            else:
                self.failures += 1
                log.get().error("subserv.packets.refused", exc_info=error)
                self._refuse(batch, error)
            return
        for (_, done), reply in zip(batch, replies, strict=True):
            if not done.done():
                done.set_result(reply)

    def _refuse(self, batch: list[_Waiting], error: Exception) -> None:
        for _, done in batch:
            if not done.done():
                done.set_exception(error)
                done.exception()  # retrieved: the caller may be gone

    def _made(self, batch: list[_Waiting], undo: list[Undo]) -> tuple[list[Change], list[PacketsReply]]:
        """Make the changes in memory; return the changes to store, and a reply to each request."""
        made: list[Change] = []
        replies: list[PacketsReply] = []
        by_client = self._sessions.by_client
        for changes, _ in batch:
            stale: dict[str, None] = {}
            reply = PacketsReply()
            for change in changes:
                session = by_client.get(change.client)
                if session is None or session.record.epoch != change.epoch or not session.record.connected:
                    stale[change.client] = None
                elif change.op == "out" and is_contended(change.source):
                    made += self._given(session, change, reply, undo)
                else:
                    made += session.packets.change(change.client, change, undo)
            reply.stale.extend(stale)
            replies.append(reply)
        return made, replies

    def _given(self, session: Session, change: PacketChange, reply: PacketsReply, undo: list[Undo]) -> list[Change]:
        """Record a message of a contended source as this session's, unless another session has it."""
        given, client = self._sessions.given, change.client
        if given.is_taken(client, change.source, change.key):
            reply.taken.append((client, change.pid))
            return []
        old = session.packets.sent.get(change.pid)  # the same, if the gateway repeats what was not answered
        if change.late and (old is None or (old.message.source, old.message.identity) != (change.source, change.key)):
            reply.late.append((client, change.pid))
            return []
        if change.message and not given.has_room(client, len(change.message) - (old.held if old is not None else 0)):
            reply.left.append((client, change.pid))
            change = msgspec.structs.replace(change, message=b"")
        return session.packets.change(client, change, undo)

    async def sent(self, session: Session) -> list[Outgoing]:
        """Return the messages under way to the client, including the held ones. Raises StoreError."""
        client, table = session.record.client, session.packets
        held = table.held()
        found = await self._store.get_many(records.HELD, [records.held_key(client, pid) for pid in held])
        messages = dict(zip(held, found, strict=True))
        return [msgspec.structs.replace(each, message=messages.get(each.pid) or b"") for each in table.messages()]

    async def returned(self, session: Session) -> list[Change]:
        """Return what stores the messages that go back to their queues when the session ends. Raises StoreError."""
        client, unconfirmed = session.record.client, session.packets.unconfirmed()
        found = await self._store.get_many(records.HELD, [records.held_key(client, pid) for pid in unconfirmed])
        return [
            Change(records.RETURNED, records.ended_key(*message), data)
            for message, data in zip(unconfirmed.values(), found, strict=True)
        ]

    async def forget(self, messages: Sequence[Message]) -> None:
        """Forget messages that the brokers cannot deliver again, once that is stored. Raises StoreError."""
        given = self._sessions.given
        await self._store.write(
            [records.remove(records.ENDED, records.ended_key(*each)) for each in messages if each in given.ended]
        )
        given.forget(messages)
