"""Looking at a queue without taking anything out (distribution-mode copy)."""

from __future__ import annotations

from services.broker.core.choice import SLICE
from services.broker.core.consumer import Outlet
from services.broker.core.message import DURABLE, PRIORITY_SHIFT, Message, outgoing
from services.broker.core.properties import property_lookup
from services.broker.core.queue import Queue
from services.broker.selector import Selector


class Browser:
    """Sends copies of what waits, in order. It works on a list of references taken when it starts, and again at its end
    for what has come since. With nothing left a drain is answered, which is how a client knows the end."""

    def __init__(self, queue: Queue, outlet: Outlet, selector: Selector | None) -> None:
        self.queue = queue
        self.outlet = outlet
        self.selector = selector
        self._list: list[Message] = []
        self._at = 0
        self._last = 0

    def closed(self, condition: str, description: str) -> None:
        """The queue is gone: the link is to be detached with this error."""

    def again(self) -> None:
        """`flow` is to be called in a later turn: there was more than fits one."""

    def flow(self) -> None:
        looked = 0
        while self.outlet.credit > 0:
            if self._at >= len(self._list) and not self._refill():
                break
            if looked >= SLICE:
                self.again()
                return
            looked += 1
            message = self._list[self._at]
            self._at += 1
            if message.refs > 0:
                self._show(message)
        if self.outlet.drain and (self.outlet.credit <= 0 or self._at >= len(self._list)):
            self.outlet.drained()

    def _refill(self) -> bool:
        self._list = [message for message in self.queue.messages() if message.id > self._last]
        self._at = 0
        if self._list:
            self._last = max(message.id for message in self._list)
        return bool(self._list)

    def _show(self, message: Message) -> None:
        broker = self.queue.broker
        payload = broker.load(message)
        if payload is None:
            return
        if self.selector is not None and not self.selector.matches(property_lookup(payload, message, self.queue)):
            return
        ttl = max(0, message.expires - broker.now) if message.expires else -1
        attempts = self.queue.attempts.get(message.id, 0)
        durable = bool(message.flags & DURABLE)
        self.outlet.send(outgoing(payload, durable, message.flags >> PRIORITY_SHIFT, ttl, attempts), None)
