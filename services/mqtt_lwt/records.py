"""Stores the book: a table of wills with their messages, and one of wills whose clients are known to be lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

import msgspec

from enmasse.identity import authors
from enmasse.identity.authors import NOT_STATED
from enmasse.logs import log
from enmasse.storage.decoding import unpack
from enmasse.stores import Change, Store
from services.mqtt_lwt.requests import not_retained, readdressed, retains
from services.mqtt_lwt.wills import State, Turned, Will, WillBook

WILLS, LOST = "wills", "lost"


class WillRecord(msgspec.Struct, frozen=True, array_like=True):
    """A stored will, under its id. `message`: the message to publish; `user` (full name), `groups`: its author;
    `epoch`, `topic`: as in the book. Earlier versions did not write these four."""

    key: str
    to: str
    qos: int
    delay: float
    message: bytes
    user: str = NOT_STATED.user
    groups: tuple[str, ...] | None = None
    epoch: int = 0
    topic: str = ""


class LostRecord(msgspec.Struct, frozen=True, array_like=True):
    """Record, under a will's id, that its client is lost. `due`: time of publication in seconds since 1970 (UTC);
    `delay`: in force since the loss; `superseded`: as in the book. Earlier versions did not write these two."""

    due: float
    delay: float | None = None
    superseded: bool = False


_encode = msgspec.msgpack.Encoder().encode

Done = asyncio.Future[None]
"""Completed when the change is durable. Its exception, if any, is StoreError."""


class Records:
    """Writes the book's changes, in the order of the calls."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, will: Will, message: bytes, replaced: Will | None) -> Done:
        """Store a will and its message; the replaced will is deleted in the same write."""
        record = WillRecord(
            will.key, will.to, will.qos, will.delay, message, will.author.full_name, will.author.groups, will.epoch,
            will.topic,
        )  # fmt: skip
        gone = [] if replaced is None else _removal(replaced)
        return self._store.write([Change(WILLS, will.id, _encode(record)), *gone])

    def remove(self, wills: Iterable[Will]) -> Done:
        """Remove wills; `Done` is done when that is durable."""
        return self._store.write([change for will in wills for change in _removal(will)])

    def turned(self, turned: Turned, now: float) -> Done:
        """Store the wills of lost clients; `now` by the book's clock."""
        wall = time.time()
        changes = [Change(LOST, will.id, _encode(LostRecord(wall, will.delay))) for will in turned.due]
        for will in turned.delayed:
            assert will.at is not None
            changes.append(Change(LOST, will.id, _encode(LostRecord(wall + will.at - now, will.delay))))
        return self._store.write(changes)

    def superseded(self, wills: Iterable[Will]) -> Done:
        """Store that these due wills are not to be retained."""
        wall = time.time()
        return self._store.write([Change(LOST, will.id, _encode(LostRecord(wall, will.delay, True))) for will in wills])

    async def messages(self, wills: Sequence[Will]) -> list[bytes | None]:
        """Return the messages to publish; None for one that is missing or invalid. Raises StoreError."""
        found = await self._store.get_many(WILLS, [will.id for will in wills])
        return [_message(will, record) for will, record in zip(wills, found, strict=True)]

    async def load(self, book: WillBook, now: float) -> None:
        """Load everything stored into an empty book. Raises StoreError."""
        lost: dict[str, LostRecord] = {}
        async for id, value in self._store.scan(LOST):
            lost[id] = unpack(value, LostRecord)
        wall = time.time()
        seen: set[str] = set()
        async for id, value in self._store.scan(WILLS):
            if id in seen:
                continue
            seen.add(id)
            try:
                record = unpack(value, WillRecord)
            except msgspec.DecodeError as error:
                log.get().error("mqtt-lwt.will.unreadable", will=id, reason=str(error))
                continue
            author = NOT_STATED if record.user == NOT_STATED.user else authors.author(record.user, record.groups)
            will = Will(
                id, record.key, record.to, record.qos, record.delay, len(value), author,
                retain=retains(record.message), epoch=record.epoch, topic=record.topic,
            )  # fmt: skip
            due_in = None
            if (found := lost.get(id)) is not None:
                will.delay = record.delay if found.delay is None else found.delay
                will.superseded = found.superseded
                due_in = min(found.due - wall, will.delay)  # bounded, because the clock may have been changed
            book.restore(will, due_in, now)


def _message(will: Will, record: bytes | None) -> bytes | None:
    try:
        if record is None:
            return None
        stored = unpack(record, WillRecord)
        message = stored.message if will.to == stored.to else readdressed(stored.message, will.to)
        return not_retained(message) if will.superseded else message
    except msgspec.DecodeError as error:
        log.get(client=will.key).error(
            "mqtt-lwt.will.unreadable", will=will.id, reason=str(error), space=will.author.space
        )
        return None


def _removal(will: Will) -> Sequence[Change]:
    gone = Change(WILLS, will.id, None)
    if will.state is State.HELD or will.state is State.ORPHANED:
        return [gone]
    return [gone, Change(LOST, will.id, None)]
