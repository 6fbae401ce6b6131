"""What brokers made by hand hold. Nobody else looks after them, so the agent asks their management, and makes nothing
(docs/decisions/0006): what is missing there is told to people, with what they have to make.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from enmasse import log, process
from enmasse.control import Artemis, ControlConnection, ControlError, keep_connected

LOOK_EVERY, LOOK_LAST = 1.0, 5.0
"""Seconds between two looks at a broker; COST times as long as a look takes, in between."""
COST = 100
RETRY = 2.0
"""Seconds until a broker is asked again that did not say what it holds."""
_ALL = json.dumps({"field": "", "operation": "", "value": "", "sortOrder": "", "sortBy": "", "sortColumn": ""})
_EVERYTHING = (_ALL, 1, 2147483647)

Where = tuple[str, int]


class _Queue(msgspec.Struct):
    """What is used of a row of listQueues; Artemis gives every value as a string."""

    name: str
    address: str = ""
    routingType: str = ""
    temporary: str = "false"


class _Address(msgspec.Struct):
    """What is used of a row of listAddresses; `routingTypes` is JSON in a string: `["ANYCAST"]`."""

    name: str
    routingTypes: str = ""


class _Queues(msgspec.Struct):
    data: list[_Queue]


class _Addresses(msgspec.Struct):
    data: list[_Address]


class View(NamedTuple):
    """One look at a broker: addresses with an ANYCAST queue, and MULTICAST addresses."""

    queues: frozenset[str]
    topics: frozenset[str]


def view(queues: str, addresses: str) -> View:
    """From the JSON texts of listQueues and listAddresses. Raises ValueError."""
    return View(
        frozenset(
            row.address
            for row in msgspec.json.decode(queues, type=_Queues).data
            if row.routingType == "ANYCAST" and row.temporary != "true"
        ),
        frozenset(
            row.name for row in msgspec.json.decode(addresses, type=_Addresses).data if "MULTICAST" in row.routingTypes
        ),
    )


def missing(broker: str, name: str, kind: str, seen: View) -> str:
    """What keeps the address from working on the broker, and what to make there; empty where nothing does.

    That a broker may make it by itself when a client comes does not count: not all do for a client behind a router.
    """
    if kind == "queue":
        if name in seen.queues:
            return ""
        found = " (only a topic of this name)" if name in seen.topics else ""
        return f"broker {broker} has no queue {name!r}{found}: make an address with an ANYCAST queue of this name there"
    if name in seen.topics:
        return ""
    found = " (only a queue of this name)" if name in seen.queues else ""
    return f"broker {broker} has no topic {name!r}{found}: make an address of this name with MULTICAST there"


class ByHand:
    """The conversations with the brokers made by hand. `changed(names)`: what lies there is news; None: all of it."""

    def __init__(self, container: str, changed: Callable[[Iterable[str] | None], None]) -> None:
        self._container = container
        self._changed = changed
        self._brokers: dict[str, _Broker] = {}

    def follow(self, brokers: Mapping[str, Where]) -> None:
        """These are the brokers made by hand now."""
        before = {name: broker.where for name, broker in self._brokers.items()}
        if brokers == before:
            return
        for name, where in before.items():
            if brokers.get(name) != where:
                self._brokers.pop(name).close()
        for name, where in brokers.items():
            if name not in self._brokers:
                self._brokers[name] = _Broker(name, where, self._container, self._changed)
        self._changed(None)

    def problem(self, broker: str, name: str, kind: str) -> str:
        """What keeps the address from working on the broker, as last read; empty also for a broker of somebody else."""
        found = self._brokers.get(broker)
        if found is None:
            return ""
        if found.view is None:
            return f"broker {broker} {found.detail}"
        return missing(broker, name, kind, found.view)

    def close(self) -> None:
        """Ends the conversations."""
        self.follow({})


class _Broker:
    """One broker. `view` is None while it does not say what it holds; `detail` says why."""

    def __init__(
        self, name: str, where: Where, container: str, changed: Callable[[Iterable[str] | None], None]
    ) -> None:
        self.where = where
        self.view: View | None = None
        self.detail = f"cannot be reached at {where[0]}:{where[1]}"
        self._changed = changed
        self._log = log.get(broker=name)
        self._seen: tuple[int, ...] = ()
        self._work = process.spawn(keep_connected(*where, self._session, container=container), f"broker {name}")

    def close(self) -> None:
        self._work.cancel()

    async def _session(self, connection: ControlConnection) -> None:
        try:
            node = Artemis(connection)
            await node.opened()
            while True:
                await asyncio.sleep(await self._look(node))
        except (ControlError, ValueError) as error:
            if not connection.is_gone:
                self._log.warning("a broker made by hand does not say what it holds", reason=str(error)[:300])
                self._lost(f"does not say what it holds: {str(error)[:200]}")
                await asyncio.sleep(RETRY)
        finally:
            self._lost(f"cannot be reached at {self.where[0]}:{self.where[1]}")

    def _lost(self, detail: str) -> None:
        self.view, self.detail, self._seen = None, detail, ()
        self._changed(None)

    async def _look(self, node: Artemis) -> float:
        """Reads everything, tells what is news; gives the seconds until the next look."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        replies = await asyncio.gather(
            node.ask("broker", "listQueues", *_EVERYTHING), node.ask("broker", "listAddresses", *_EVERYTHING)
        )
        seen = tuple(map(node.digest, replies))
        if seen != self._seen:
            old, self.view = self.view, view(*(_text(node.result(reply)) for reply in replies))
            self._seen = seen
            new = self.view
            self._changed(None if old is None else (old.queues ^ new.queues) | (old.topics ^ new.topics))
        return max(LOOK_EVERY, min(LOOK_LAST, COST * (loop.time() - began)))


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise ValueError("its management does not answer as Artemis' does")
    return found
