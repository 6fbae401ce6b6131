"""Messages of queue addresses that go back to their queue, because their session ended before PUBREC.

The gateway has accepted such a message at its broker already, so it is sent to the queue as a new one. Its duplicate
id is made of its identity in the queue: if it is sent twice because of a crash, the broker keeps one copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from enmasse.amqp.codec.errors import AmqpError
from enmasse.control import ControlConnection, ControlError, Outcome
from enmasse.logs import log
from enmasse.model.names import space_of
from enmasse.stores import Store, StoreError
from services.subserv import records
from services.subserv.retained import message_forms
from services.subserv.sessions.qos2_owners import Message, Qos2Owners

AGAIN = 0.5
"""Seconds between two attempts to return messages."""
PATIENCE = 30.0
"""Seconds until a queue that gives no credit is left for the next attempt."""
PORTION = 50
"""Messages that are read from the store at a time; each has 1 MiB at most."""


class Requeue:
    """Sends the messages of `Qos2Owners.returning` over the router; each is stored until its queue has accepted it."""

    def __init__(
        self, given: Qos2Owners, store: Store, is_queue: Callable[[str], bool], duplicate_id: Callable[[str], str]
    ) -> None:
        """`is_queue(address)` returns False only if the address is certainly not a queue any longer: its messages
        are dropped. `duplicate_id(identity)`: under which a message is sent, however often."""
        self._given = given
        self._store = store
        self._is_queue = is_queue
        self._duplicate_id = duplicate_id

    async def run(self, connection: ControlConnection) -> None:
        """Return messages while `connection` to the router lasts; ends by being cancelled."""
        while True:
            for source, messages in self._given.to_return().items():
                try:
                    await self._to_queue(connection, source, messages)
                except (AmqpError, ControlError, StoreError, TimeoutError, TypeError, ValueError) as error:
                    log.get(address=source, space=space_of(source)).info(
                        "subserv.return.failed", count=len(messages), reason=str(error)
                    )
            await asyncio.sleep(AGAIN)

    async def _to_queue(self, connection: ControlConnection, source: str, messages: Sequence[Message]) -> None:
        if not self._is_queue(source):
            log.get().warning("subserv.return.dropped", address=source, count=len(messages), space=space_of(source))
            await self._forget(messages)
            return
        sender = connection.sender(source)
        try:
            async with asyncio.timeout(PATIENCE):
                await sender.opened()
                for at in range(0, len(messages), PORTION):
                    some = messages[at : at + PORTION]
                    stored = await self._store.get_many(records.RETURNED, [records.ended_key(*each) for each in some])
                    outcomes: list[asyncio.Future[Outcome]] = []
                    present = {each: data for each, data in zip(some, stored, strict=True) if data}
                    if missing := [each for each in some if each not in present]:
                        log.get(address=source, space=space_of(source)).error(
                            "subserv.return.missing", count=len(missing)
                        )
                        await self._forget(missing)
                    for (_, identity), data in present.items():
                        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
                        outcomes.append(done)
                        new = message_forms.as_new(data, self._duplicate_id(identity))
                        sender.send(new, partial(_settled, done))
                    found = await asyncio.gather(*outcomes)
                    accepted = [each for each, outcome in zip(present, found, strict=True) if outcome.accepted]
                    await self._forget(accepted)
                    if len(accepted) < len(present):
                        return  # the queue is full, say: the others are tried at the next look
        finally:
            sender.close()

    async def _forget(self, messages: Sequence[Message]) -> None:
        await self._store.write([records.remove(records.RETURNED, records.ended_key(*each)) for each in messages])
        self._given.returned(messages)


def _settled(done: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not done.done():
        done.set_result(outcome)
