"""Messages that go back to their queue, with a store from which one is missing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from enmasse.amqp.messages.sections import Sections
from enmasse.control import Outcome
from enmasse.control.link import ACCEPTED
from enmasse.stores import Change, SqliteSettings
from services.subserv import records
from services.subserv.sessions.qos2_owners import Qos2Owners
from services.subserv.sessions.requeue import Requeue
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.stores.opened import opened

BODY = b"\x00\x53\x75\xa0\x01x"


class _Queue:
    """The router's end: accepts each message."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def sender(self, address: str) -> _Queue:
        return self

    async def opened(self) -> None: ...

    def send(self, message: bytes, done: Any) -> None:
        self.messages.append(message)
        done(Outcome(ACCEPTED))

    def close(self) -> None: ...


@asyncio_test
async def test_a_message_that_the_store_lost_is_released_and_not_sent_as_an_empty_one(tmp_path: Path) -> None:
    async with opened(SqliteSettings(path=str(tmp_path / "store"))) as store:
        given, queue = Qos2Owners(), _Queue()
        lost, kept = ("jobs", "01"), ("jobs", "02")
        given.returning.update({lost: None, kept: None})
        await store.write([Change(records.RETURNED, records.ended_key(*kept), BODY)])
        returning = asyncio.create_task(Requeue(given, store, lambda _: True, str).run(cast(Any, queue)))
        await until(lambda: not given.returning)
        returning.cancel()
        assert [Sections(each).body()[1] for each in queue.messages] == [[b"x"]]
        assert [key async for key, _ in store.scan(records.RETURNED)] == []
