"""Transactions of a blocking Proton client (AMQP 1.0, part 4)."""

from __future__ import annotations

from typing import Any

from proton import Delivery, Described, Message, Terminus, symbol, ulong
from proton.reactor import SenderOption
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from tests.kit.waiting import DEADLINE

STATE = 0x34  # transactional-state


class _ToCoordinator(SenderOption):
    def apply(self, sender: Any) -> None:
        sender.target.type = Terminus.COORDINATOR
        sender.target.capabilities.put_object(symbol("amqp:local-transactions"))


class Refused(Exception):
    """The coordinator has rejected a request."""

    def __init__(self, condition: Any) -> None:
        super().__init__(condition.description)
        self.condition = condition.name


class Transacted:
    """A link to the coordinator."""

    def __init__(self, connection: BlockingConnection) -> None:
        self.connection = connection
        self.link = connection.create_sender(None, name="coordinator", options=_ToCoordinator()).link
        self.id = b""

    def begin(self) -> bytes:
        delivery = self._ask("amqp:declare:list", [None])
        self.id = bytes(delivery.remote.data[0])
        return self.id

    def commit(self, id: bytes | None = None) -> None:
        self._ask("amqp:discharge:list", [self.id if id is None else id, False])

    def roll_back(self, id: bytes | None = None) -> None:
        self._ask("amqp:discharge:list", [self.id if id is None else id, True])

    def discharge_later(self, *, fail: bool = False) -> Any:
        """Send the discharge; wait for nothing."""
        return self._send(self.link, Message(body=Described(symbol("amqp:discharge:list"), [self.id, fail])))

    def _ask(self, what: str, fields: list[Any]) -> Any:
        self.connection.wait(lambda: self.link.credit, timeout=DEADLINE)
        delivery = self._send(self.link, Message(body=Described(symbol(what), fields)))
        self.connection.wait(lambda: delivery.remote_state, timeout=DEADLINE)
        if delivery.remote_state == Delivery.REJECTED:
            raise Refused(delivery.remote.condition)
        delivery.settle()
        return delivery

    def _send(self, link: Any, message: Message, *, work: bool = False) -> Any:
        delivery = link.delivery(link.delivery_tag())
        if work:
            delivery.local.data = [self.id]
            delivery.update(STATE)
        link.stream(message.encode())
        link.advance()
        return delivery

    def send_later(self, sender: BlockingSender, message: Message) -> Any:
        """Send a message in the transaction; wait for nothing but credit."""
        self.connection.wait(lambda: sender.link.credit, timeout=DEADLINE)
        return self._send(sender.link, message, work=True)

    def send(self, sender: BlockingSender, message: Message) -> str:
        """Send a message in the transaction; return the descriptor of the outcome in the state."""
        delivery = self.send_later(sender, message)
        return self.outcome(delivery)

    def outcome(self, delivery: Any) -> str:
        self.connection.wait(lambda: delivery.remote_state, timeout=DEADLINE)
        assert delivery.remote_state == STATE
        id, outcome = delivery.remote.data
        assert bytes(id) == self.id
        delivery.settle()
        return {0x24: "accepted", 0x25: "rejected", 0x26: "released"}[int(outcome.descriptor)]

    def settle(
        self, receiver: BlockingReceiver, outcome: int = Delivery.ACCEPTED, fields: Any = (), *, settled: bool = True
    ) -> Any:
        """State an outcome of the oldest unsettled message in the transaction."""
        delivery = receiver.fetcher.unsettled.popleft()
        delivery.local.data = [self.id, Described(ulong(outcome), list(fields))]
        delivery.update(STATE)
        if settled:
            delivery.settle()
        return delivery
