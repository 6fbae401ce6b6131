"""Creation of a subscription: patterns lead to the subscriber's queues, which have the retained messages first.

On each broker that carries a part of what the filter covers: pause the queue if it exists, send a marker
through the broker's feed of retained messages, bind, send a second marker, wait for both, put copies of the retained
messages that came before into the queue, resume it. What came after the second marker has come to the queue by itself;
of what came between the two (next to nothing) the broker is asked whether it is there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from enmasse.control import ControlError
from enmasse.identity.owned import space_of_queue
from enmasse.logs import log
from enmasse.model.names import DEFAULT_SPACE, space_of, space_prefix
from enmasse.model.topic_map import wire_form
from enmasse.mqtt.topics import matches
from enmasse.stores import StoreError, StoreFull
from services.subserv.broker_names import queue_name
from services.subserv.brokers.brokers import Broker, Brokers
from services.subserv.brokers.conversation import Bound, Refused
from services.subserv.permits import Permits
from services.subserv.request_bodies import STORE_AWAY, STORE_FULL
from services.subserv.retained.retained_messages import NotRetained, RetainedMessages
from services.subserv.retained.tree import Retained
from services.subserv.subscription_placement import Desired

PATIENCE = 5.0
"""Seconds a broker may say nothing at all meanwhile; then the subscription is refused."""
LONGEST = 30.0
"""Seconds it may take in all, however busy the broker is."""
T = TypeVar("T")


class Wanted(NamedTuple):
    """A filter for a subscriber. `name`: the filter as the client gave it (`$share/…`). `retained`: whether the
    subscriber is to get the retained messages. `amqp`, `space`: see Subscriber."""

    name: str
    filter: str
    id: str
    retained: bool
    amqp: bool = False
    space: str = DEFAULT_SPACE


class Binder:
    """Brings about on brokers what was put into memory before."""

    def __init__(self, desired: Desired, brokers: Brokers, retained: RetainedMessages, permits: Permits) -> None:
        self.withheld = 0
        """Copies that were not given, because the user that published the message may no longer send there."""
        self._desired = desired
        self._brokers = brokers
        self._retained = retained
        self._permits = permits

    async def bind(self, wanted: Sequence[Wanted], number: str) -> dict[str, str]:
        """Return name → why it could not be made, of those that could not. `number`: see RetainedMessages.give."""
        places: dict[tuple[str, str], list[Wanted]] = {}
        refused: dict[str, str] = {}
        for each in wanted:
            brokers = self._desired.where(each.filter, amqp=each.amqp, space=each.space)
            if not brokers:
                refused[each.name] = self._desired.nowhere(each.filter, amqp=each.amqp, space=each.space)
            for broker in brokers:
                places.setdefault((broker, each.id), []).append(each)
        work = [self._bind_one(broker, id, filters, number) for (broker, id), filters in places.items()]
        results = await asyncio.gather(*work)
        for filters, reason in zip(places.values(), results, strict=True):
            if reason:
                refused.update((each.name, reason) for each in filters)
        return refused

    async def applied(self, id: str) -> str:
        """Wait until every broker that holds anything of a subscriber has its desired state. Return the reason if
        one has not."""
        holding = [broker for broker in self._brokers if id in broker.conversation.held]
        results = await asyncio.gather(*(self._bind_one(broker.name, id, (), "") for broker in holding))
        return next(filter(None, results), "")

    async def _bind_one(self, name: str, id: str, filters: Sequence[Wanted], number: str) -> str:
        broker = self._brokers.get(name)
        if broker is None:
            return f"broker {name} is not known"
        giving = [each for each in filters if each.retained]
        pausing = bool(giving) and id in broker.conversation.held

        async def work() -> None:
            if pausing:
                await broker.conversation.pause(id)
            bound = await broker.conversation.bound(id)
            if giving:
                await self._give(broker, id, giving, bound, number)

        try:
            await while_it_answers(broker, work())
        except TimeoutError:
            return f"broker {name} does not answer"
        except (Refused, NotRetained) as error:
            return str(error)
        except StoreError as error:
            log.get(broker=name, space=space_of_queue(queue_name(name, id))).info(
                "subserv.write.refused", id=id[:200], reason=str(error)
            )
            return STORE_FULL if isinstance(error, StoreFull) else STORE_AWAY
        except ControlError as error:
            return f"broker {name}: {error}"
        finally:
            if pausing:
                await self._resume(broker, id)
        return ""

    async def _resume(self, broker: Broker, id: str) -> None:
        try:
            await while_it_answers(broker, broker.conversation.resume(id))
        except (ControlError, TimeoutError) as error:
            log.get(broker=broker.name, space=space_of_queue(queue_name(broker.name, id))).warning(
                "subserv.queue.resumption-postponed", id=id[:200], reason=str(error)[:200]
            )
            broker.conversation.leave_paused(id)

    async def _give(self, broker: Broker, id: str, giving: Iterable[Wanted], bound: Bound, number: str) -> None:
        before, after = await bound.before, await bound.after
        for each in giving:
            entries: list[Retained] = []
            for entry in await self.matching(each, broker.name):
                came_live = entry.broker == broker.name and (
                    entry.arrival > after
                    or (entry.arrival > before and await broker.conversation.has_live(id, entry.name))
                )
                if not came_live:
                    entries.append(entry)
            entries = await self._permitted(entries)
            if entries:
                assert broker.connection is not None
                await self._retained.give(broker.connection, broker.name, id, entries, each.filter, number)

    async def _permitted(self, entries: list[Retained]) -> list[Retained]:
        """Return the messages whose author, if stated, may send there now. Raises NotRetained if that is unknown."""
        if all(entry.author is None for entry in entries):
            return entries
        try:
            async with asyncio.timeout(PATIENCE):
                await self._permits.known.wait()
        except TimeoutError:
            raise NotRetained("the permissions are not known yet: try again later") from None
        now = time.time_ns() // 1_000_000
        found = [entry for entry in entries if not self._permits.refusal(entry, now)]
        self.withheld += len(entries) - len(found)
        return found

    async def matching(self, wanted: Wanted, broker: str) -> list[Retained]:
        """Return the retained messages that a filter covers, of the addresses that a broker carries, in their order. Of
        an address that moves they come by one of its brokers."""
        retained = self._retained
        patterns = self._desired.source(wanted.filter, broker, amqp=wanted.amqp, space=wanted.space)
        found: dict[str, Retained] = {}
        for pattern in [*patterns, *self._earlier(wanted, patterns)]:
            for entry in retained.index.looks(pattern):
                if entry is None:
                    await asyncio.sleep(0)  # a pattern may have every name looked at, and cover none
                    continue
                if space_of(entry.name) != wanted.space:
                    continue
                name = entry.name if wanted.amqp else retained.present(entry)
                if name == entry.name:
                    here = pattern in patterns
                else:
                    here = self._desired.main(name) == broker and matches(wanted.filter, retained.topic(entry))
                if here and ((other := found.get(name)) is None or other.number < entry.number):
                    found[name] = entry
        entries = sorted(found.values(), key=lambda entry: entry.number)
        if wanted.filter[:1] in ("+", "#"):  # [MQTT-4.7.2-1] (v3.1.1, v5)
            entries = [entry for entry in entries if not retained.topic(entry).startswith("$")]
        return entries

    def _earlier(self, wanted: Wanted, patterns: Collection[str]) -> list[str]:
        """Return patterns of the names that topics of the filter had by other addresses than there are now."""
        if wanted.amqp:
            return []
        own, form = space_prefix(wanted.space), wire_form(wanted.filter)
        prefixes = [own, *(each for each in self._retained.index.prefixes if space_of(each) == wanted.space)]
        return [pattern for prefix in prefixes if (pattern := prefix + form) not in patterns]


async def while_it_answers(broker: Broker, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. Raises TimeoutError if the broker is silent for PATIENCE, or LONGEST has passed: a
    broker that has much to do, or a busy machine, is waited for."""
    task = asyncio.ensure_future(work)
    try:
        async with asyncio.timeout(LONGEST):
            while True:
                heard = broker.heard
                await asyncio.wait((task,), timeout=PATIENCE)
                if task.done():
                    return task.result()
                if broker.heard == heard:
                    raise TimeoutError
    finally:
        task.cancel()
