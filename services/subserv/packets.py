"""Packet ids, stored: what comes while a transaction is being committed goes into the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from enmasse import process
from enmasse.model.sessions import PacketChange
from enmasse.stores import Change, Store, StoreError
from services.subserv.sessions import Sessions, Undo, undone


class Packets:
    """Stores changes of packet ids in the order in which they come. One transaction at a time, so that what a failed
    one has changed in memory can be undone."""

    def __init__(self, sessions: Sessions, store: Store) -> None:
        self._sessions = sessions
        self._store = store
        self._waiting: list[tuple[Sequence[PacketChange], asyncio.Future[list[str]]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def change(self, changes: Sequence[PacketChange]) -> list[str]:
        """Returns when they are durable: the clients whose changes were not made, because the epoch is not theirs any
        more. Raises StoreError: none of them was made."""
        done: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._waiting.append((changes, done))
        if self._writer is None:
            self._writer = process.spawn(self._write(), "packet ids")
        return await done

    async def settled(self) -> None:
        """Waits until what was asked for before is stored, or has failed."""
        if self._writer is not None:
            await self.change(())

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._store_batch(batch)
        finally:
            self._writer = None

    async def _store_batch(self, batch: list[tuple[Sequence[PacketChange], asyncio.Future[list[str]]]]) -> None:
        made: list[Change] = []
        undo: list[Undo] = []
        stale: list[list[str]] = []
        by_client = self._sessions.by_client
        for changes, _ in batch:
            old: dict[str, None] = {}
            for change in changes:
                session = by_client.get(change.client)
                if session is None or session.record.epoch != change.epoch or not session.record.connected:
                    old[change.client] = None
                elif (stored := session.packets.change(change.client, change, undo)) is not None:
                    made.append(stored)
            stale.append(list(old))
        try:
            await self._store.write(made)
        except (StoreError, ValueError) as error:
            undone(undo)
            for _, done in batch:
                if not done.done():
                    done.set_exception(StoreError(str(error)))
            return
        for (_, done), clients in zip(batch, stale, strict=True):
            if not done.done():
                done.set_result(clients)
