"""Prepared placements: before messages of a topic go to a broker, all that lead to subscribers are bound there.

Then it is reported (docs/contracts.md, "configserv"); until then messages go to the old broker, or nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

from enmasse.control.reports import BoundReporter
from enmasse.logs import log
from enmasse.model.feeds import Placements
from enmasse.model.names import AddressName
from enmasse.model.sessions import BindDefault, Done
from enmasse.process import runner
from services.subserv.brokers.broker_requests import ERRORS
from services.subserv.brokers.brokers import Brokers
from services.subserv.brokers.conversation import BrokerConversation, Refused
from services.subserv.brokers.slices import portions
from services.subserv.sessions.clients import UNSPECIFIED, Refusal
from services.subserv.subscription_placement import Desired, Subscriber

ROLE = "subserv"
LOOK, AGAIN = 0.05, 1.0
"""Seconds between two looks whether a broker can be asked; until work is tried again that a broker has refused."""
LONGEST = 4.0
"""Seconds that a gateway waits for an answer whether a new default is bound; then it asks again."""


class Owner(Protocol):
    """Interface of the owner of the subscribers."""

    @property
    def complete(self) -> bool:
        """True if all subscribers are known."""

    def subscribers(self) -> Iterable[Subscriber]:
        """Return all subscribers."""


class Preparing:
    """Binds at each broker for which a placement is prepared, and reports."""

    def __init__(self, owner: Owner, desired: Desired, brokers: Brokers) -> None:
        self.reporter = BoundReporter(ROLE)
        self._owner = owner
        self._desired = desired
        self._brokers = brokers
        self._epochs: dict[tuple[AddressName, str], int] = {}
        """(address, broker) → epoch of each prepared placement."""
        self._work: dict[str, asyncio.Task[None]] = {}
        self._todo: dict[str, dict[AddressName, int]] = {}
        """Broker → address → epoch that is to be bound there."""

    def follow(self, placements: Placements) -> None:
        """Take the placements."""
        now = {
            (name, each.broker): each.epoch
            for name, places in placements.addresses.items()
            for each in places
            if each.state == "prepared" and isinstance(each.epoch, int)
        }
        before, self._epochs = self._epochs, now
        for name, broker in before.keys() - now.keys():
            self._todo.get(broker, {}).pop(name, None)
            self.reporter.forget(name, broker)
        for (name, broker), epoch in now.items():
            if before.get((name, broker)) != epoch:
                self._todo.setdefault(broker, {})[name] = epoch
                if broker not in self._work:
                    self._work[broker] = runner.spawn(self._prepare(broker), f"subscriptions on broker {broker}")

    async def _prepare(self, broker: str) -> None:
        try:
            while todo := dict(self._todo.get(broker, {})):
                try:
                    if not await self._bind(broker, todo):
                        continue
                except Exception as error:  # whatever it is, the topic must not be left unprepared
                    expected = isinstance(error, (*ERRORS, Refused))
                    log.get(broker=broker).warning(
                        "subserv.preparation.postponed",
                        reason=str(error)[:300] if expected else repr(error)[:300],
                        exc_info=None if expected else error,
                    )
                    await asyncio.sleep(AGAIN)
                    continue
                left = self._todo.get(broker, {})
                for name, epoch in todo.items():
                    if left.get(name) == epoch:
                        del left[name]
                        self.reporter.bound(name, broker, epoch)
        finally:
            del self._work[broker]
            self._todo.pop(broker, None)

    async def _bind(self, name: str, todo: Mapping[AddressName, int]) -> bool:
        """Bind all that these topics have to do with on a broker; return False if others are prepared meanwhile. Raises
        Refused, ControlError."""
        while True:
            broker = self._brokers.get(name)
            if self._owner.complete and broker is not None and (broker.is_unasked or broker.conversation.connected):
                break
            if self._todo.get(name) != todo:
                return False
            await asyncio.sleep(LOOK)
        if broker.is_unasked:
            return True
        conversation = broker.conversation
        for address in todo:
            self._desired.open(address, name)
        # The last reading may be of a process that has ended.
        await conversation.read_now()
        await self._bind_all(conversation)
        # What it has retained of an earlier time is older than what the other broker has: it is read before messages
        # come here again.
        await conversation.feed.mark()
        return True

    async def _bind_all(self, conversation: BrokerConversation) -> None:
        async for some in portions(list(self._owner.subscribers())):
            ids = [each.id for each in some if self._desired.is_bound(conversation.broker, each)]
            await asyncio.gather(*(conversation.bound(id) for id in conversation.differing(ids)))

    async def bind_default(self, request: BindDefault) -> Done:
        """Return once all that a new default of MQTT has to do with is bound where it is. Raises Refusal."""
        try:
            async with asyncio.timeout(LONGEST):
                while not (self._owner.complete and self._desired.default(request.space) == request.name):
                    await asyncio.sleep(LOOK)
                places = self._desired.placements.addresses.get(request.name, ())
                brokers = [broker for each in places if (broker := self._brokers.get(each.broker)) is not None]
                for broker in brokers:
                    if not broker.is_unasked:
                        await self._bind_all(broker.conversation)
        except TimeoutError:
            raise Refusal("amqp:not-found", f"{request.name} is not bound yet", UNSPECIFIED) from None
        except (*ERRORS, Refused) as error:
            raise Refusal("amqp:not-found", f"{request.name} cannot be bound: {error}", UNSPECIFIED) from None
        return Done(count=len(brokers))

    def close(self) -> None:
        """End all work."""
        for task in list(self._work.values()):
            task.cancel()
