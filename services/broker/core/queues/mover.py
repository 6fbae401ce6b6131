"""Messages that leave a queue for another broker: held here until it has taken them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from services.broker.core.errors import BrokerError
from services.broker.core.jobs import FILTERED
from services.broker.core.messages.stored_message import StoredMessage
from services.broker.core.queues.dispatcher import ReadFailure
from services.broker.core.queues.queue import Queue
from services.broker.core.queues.rotation import TURN

HELD_BYTES = 4 << 20  # of messages that are held, about


class Exit(Protocol):
    """The sending side of a link (enmasse.amqp's Sender)."""

    @property
    def credit(self) -> int:
        """Number of messages that may be sent."""

    def send(self, payload: Any, token: Any = None, *, tag: bytes | None = None) -> Any:
        """Send a message; `token` is returned with its outcome."""


class Mover:
    """Takes chosen messages out of the order and sends a copy of each. An accepted one is finished; any other, or when
    the link ends, is back in its place, its delivery count unchanged. After the last one `ended` is called: it reaches
    what waits at its start. The queue counts held messages as being delivered."""

    def __init__(
        self,
        queue: Queue,
        outlet: Exit,
        *,
        ids: Iterable[int] | None,
        chosen: Callable[[StoredMessage], bool],
        limit: int | None,
        copy: Callable[[StoredMessage, bytes], bytes],
        tag: Callable[[StoredMessage], bytes],
    ) -> None:
        """`ids` None: all messages that are `chosen`; at most `limit`. `copy`: of a message and its payload; `tag`: by
        which the other broker recognises a second copy."""
        self.queue = queue
        self.outlet = outlet
        self._chosen = chosen
        self._copy = copy
        self._tag = tag
        self._ids = None if ids is None else deque(ids)
        self._cursor = queue.order.start()
        self._left = limit
        self._held: dict[int, StoredMessage] = {}
        self._bytes = 0
        self._over = False

    def again(self) -> None:
        """Call `look` in a later turn: there was more to look at than fits one."""

    def ended(self, error: BrokerError | None) -> None:
        """All were sent and settled; with an error: no further one can be sent."""

    def look(self) -> None:
        """Send copies as far as credit goes."""
        looked, spent = 0, self.queue.broker.share()
        try:
            while not self._over and self.outlet.credit > 0 and self._bytes < HELD_BYTES:
                if looked >= TURN or (looked and spent()):
                    self.again()
                    return
                looked += self._step()
        except BrokerError as error:
            self._over = True
            self.ended(error)
            return
        if self._over and not self._held:
            self.ended(None)

    def _step(self) -> int:
        """Look at some messages and send the chosen ones. Return how many were looked at. Raises BrokerError if one
        cannot be read now."""
        most = min(self.outlet.credit, FILTERED)
        if self._left is not None:
            most = min(most, self._left)
        if self.queue.dispatcher.stalled:
            raise BrokerError(f"a message of queue {self.queue.name} cannot be read now: see the log of the broker")
        looked = 0
        taken: list[StoredMessage] = []
        if most <= 0:
            pass
        elif self._ids is not None:
            looked, taken = self._take_ids(most)
        else:
            portion = self.queue.order.look(self._cursor, most)
            looked = len(portion)
            taken = self.queue.order.take([message for message in portion if self._chosen(message)])
        self._over = not looked
        for at, message in enumerate(taken):
            if not self._send(message):
                self.queue.dispatcher.reinsert(taken[at + 1 :])
                break
        return looked

    def _take_ids(self, most: int) -> tuple[int, list[StoredMessage]]:
        assert self._ids is not None
        looked = 0
        taken: list[StoredMessage] = []
        while self._ids and looked < most:
            looked += 1
            message = self.queue.order.find(self._ids[0])
            if message is not None and self._chosen(message):
                taken += self.queue.order.take([message])
            self._ids.popleft()
        return looked, taken

    def _send(self, message: StoredMessage) -> bool:
        """Return False if the message cannot be read now: it is back in its place."""
        payload = self.queue.dispatcher.read(message)
        if isinstance(payload, ReadFailure):
            return payload is ReadFailure.LOST
        if self._left is not None:
            self._left -= 1
        self._held[message.id] = self.queue.held[message.id] = message
        self._bytes += message.size
        self.outlet.send(self._copy(message, payload), message, tag=self._tag(message))
        return True

    def settle(self, messages: list[StoredMessage], *, accepted: bool) -> None:
        """Handle the outcome of messages: the other broker has them, or has refused them."""
        mine = [message for message in messages if self._held.pop(message.id, None) is not None]
        for message in mine:
            self.queue.held.pop(message.id, None)
            self._bytes -= message.size
        if accepted:
            self.queue.finish_all(mine)
        elif mine:
            self.queue.dispatcher.reinsert(mine)
            self.queue.dispatcher.dispatch()
        self.look()

    def leave(self) -> None:
        """End: the messages that are held go back to their places."""
        self._over = True
        mine, self._held = list(self._held.values()), {}
        if self.queue.deleted:
            return
        for message in mine:
            del self.queue.held[message.id]
        self.queue.dispatcher.reinsert(mine)
        self.queue.dispatcher.settle_mode()
        self.queue.dispatcher.dispatch()
