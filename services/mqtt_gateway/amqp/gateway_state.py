"""State that the sessions of a gateway in one address space share: addresses, lanes, the connections' sessions,
counters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from enmasse.amqp.connection import Connection
from enmasse.amqp.session import Session as AmqpSession
from enmasse.bridge.client_access import ClientAccess
from enmasse.bridge.lanes import Counters
from enmasse.bridge.publishing import Publishing
from enmasse.identity.refused import Refusals
from enmasse.logs import log
from enmasse.model.names import DEFAULT_SPACE, full_name
from enmasse.model.sessions import BindDefault, Done
from enmasse.model.topic_map import TopicMap
from services.mqtt_gateway.address_use import AddressUse
from services.mqtt_gateway.amqp.mapping import MessageReader, TopicRoute
from services.mqtt_gateway.amqp.session_service import Control, RequestFailed

AGAIN = 1.0
"""Seconds until the subscription service is asked again whether a new default is bound."""


class Shared:
    """`receiving`: on which sessions attach their links, None without a connection; `control`: the conversation with
    the subscription service; `access`: permissions; `drops_unauthorized`: messages of clients of 3.1.1 that are
    not allowed are dropped. `space`: whose topics these are; `counters`: of the messages from clients of all.
    `attach` has the sessions of the space attach their links."""

    def __init__(
        self,
        control: Control,
        access: ClientAccess,
        *,
        drops_unauthorized: bool = False,
        refusals: Refusals | None = None,
        space: str = DEFAULT_SPACE,
        counters: Counters | None = None,
        attach: Callable[[str], None] = lambda space: None,
    ) -> None:
        self._attach = attach
        self.space = space
        self.control = control
        self.access = access
        self.drops_unauthorized = drops_unauthorized
        self.refusals = refusals or Refusals(time.monotonic)
        self.topics = TopicMap({}, space=space)
        self.reader = MessageReader(self.topics)
        self.use = AddressUse(self.topics)
        self.publishing = Publishing(self.topics, TopicRoute.find, counters)
        self.receiving: AmqpSession | None = None
        self.reached = asyncio.Event()
        """The router was reached once."""
        self.rejected = 0
        """Messages that MQTT cannot hold."""
        self.expired = 0
        self.unmatched = 0
        """Messages that no subscription matched."""
        self.delivered = 0
        self.tasks: set[asyncio.Future[Any]] = set()
        self._configured = False
        self._default_moves = False

    def in_space(self, space: str) -> Shared:
        """Return the state of the sessions of another address space."""
        found = Shared(
            self.control,
            self.access,
            drops_unauthorized=self.drops_unauthorized,
            refusals=self.refusals,
            space=space,
            counters=self.publishing.counters,
            attach=self._attach,
        )
        found.tasks = self.tasks
        return found

    def up(self, connection: Connection) -> None:
        """There is a new connection to the router."""
        self.publishing.up(connection)
        self.receiving = connection.begin()
        self.reached.set()
        self._attach(self.space)

    def set_topics(self, topics: TopicMap) -> None:
        """Other addresses are configured. If they have another default, messages go to the one before until all that
        leads to subscribers is bound at the new one."""
        self.topics = topics
        self.reader = MessageReader(topics)
        self.use.set_topics(topics)
        default = self.publishing.topics.default
        if not self._configured or topics.default in (None, default):
            self._configured = True
            self.publishing.set_topics(topics)
            return
        self.publishing.set_topics(topics.with_default(default))
        if not self._default_moves:
            self._default_moves = True
            self.spawn(self._move_default())

    async def _move_default(self) -> None:
        try:
            while (name := self.topics.default) not in (None, self.publishing.topics.default):
                assert name is not None
                request = BindDefault(space=self.space, name=full_name(self.space, name))
                try:
                    await self.control.request("bind_default", request, Done)
                except RequestFailed as failed:
                    log.get().info("gateway.default.waits", name=name, reason=failed.text, space=self.space)
                    await asyncio.sleep(AGAIN)
                    continue
                if self.topics.default == name:
                    self.publishing.set_topics(self.topics)
        finally:
            self._default_moves = False

    def wall(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call this after so many seconds."""
        asyncio.get_running_loop().call_later(seconds, call)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this in a task of its own; an error is logged."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.get().error("gateway.request.failed", exc_info=task.exception())
