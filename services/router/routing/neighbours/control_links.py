"""The two links of a connection between routers on which control messages go."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import Link, Receiver, Sender
from services.router.routing.connection import LinkRecord, RouterConnection

CONTROL: Final = Symbol("qd.router")
"""Capability of both termini of a control link."""
WINDOW: Final = 250
MAX_CONTROL: Final = 64 * 1024 * 1024
"""Bytes of a control message: one with all addresses of a router may be large."""
MAX_WAITING: Final = 1000
"""Most control messages that wait for credit; then the peer takes none, and its HELLOs end soon."""


def has_capability(link: Link, capability: str) -> bool:
    """Return True if the peer's attach has this capability."""
    for terminus in (link.remote_source, link.remote_target):
        if terminus is not None and capability in (terminus.capabilities or ()):
            return True
    return False


def termini(capability: Symbol) -> tuple[Source, Target]:
    """Return source and target of a link between routers. Dispatch finds a capability only if it is no array."""
    single: Any = capability
    return Source(capabilities=single), Target(capabilities=single)


class MeshControlLink(LinkRecord):
    """One direction. `lost` is called when the link has ended."""

    counted = faces_client = False
    link_type = "router-control"

    def __init__(
        self,
        connection: RouterConnection,
        link: Sender | Receiver,
        attached: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self.identity = connection.owner.next_identity()
        self.connection = connection
        self.name = link.name
        self.capacity = 0
        self.zero_since = None
        self.delayed1 = self.delayed10 = self.slow = self.stuck = 0
        self._link = link
        self._attached = attached
        self._lost = lost

    @property
    def link(self) -> Sender | Receiver:
        return self._link

    @property
    def direction(self) -> str:
        return "out" if isinstance(self._link, Sender) else "in"

    def attached(self) -> None:
        self._attached()

    def detached(self, error: AmqpError | None, closed: bool, lost: bool) -> None:
        super().detached(error, closed, lost)
        self._lost()


class ControlOut(MeshControlLink):
    """Sends control messages, settled. They wait for credit."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING)

    def send(self, payload: bytes) -> None:
        """Send a control message, or keep it until there is credit."""
        self._waiting.append(payload)
        self.flow()

    def flow(self) -> None:
        sender = self._link
        assert isinstance(sender, Sender)
        while self._waiting and sender.credit > 0:
            sender.send(self._waiting.popleft(), None, settled=True)
        if sender.drain:
            sender.answer_drain(not self._waiting)
        self.connection.amqp.wake()


class ControlIn(MeshControlLink):
    """Receives control messages."""

    def receive(self, received: Callable[[bytes], None]) -> None:
        """Grant credit; `received` gets each message."""
        link = self._link
        assert isinstance(link, Receiver)

        def deliver(
            _: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
        ) -> None:
            if not settled:
                link.session.settle(delivery_id)
            received(bytes(payload))

        link.on_delivery = deliver
        link.max_message_size = MAX_CONTROL
        link.credit_window = WINDOW
