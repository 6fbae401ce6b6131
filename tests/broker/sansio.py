"""A broker core without sockets and disk: a clock set by hand, outlets that remember, messages made by Proton."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from proton import Message as ProtonMessage

from enmasse.amqp.connection import Connection
from enmasse.identity.processes.peer_check import PeerCheck
from services.broker.connection import BrokerConnection
from services.broker.core.broker import Broker
from services.broker.core.connections import Connections
from services.broker.core.jobs import Work
from services.broker.core.limits.broker_limits import BrokerLimits
from services.broker.core.publisher import publish
from services.broker.core.publishing.verdict import Verdict
from services.broker.core.queues.consumer import Consumer
from services.broker.core.queues.queue import Queue
from services.broker.management import queue_control
from services.broker.management.calls import CallContext
from services.broker.selector import compile_selector
from services.broker.storage.journal.file_operations import Files
from services.broker.storage.journal.journal import SEGMENT_SIZE
from services.broker.storage.store import Store

T = TypeVar("T")


class Outlet:
    """The sending side of a link: credit is counted down, what was sent is kept."""

    def __init__(self, credit: int = 0) -> None:
        self.credit = credit
        self.drain = False
        self.sent: list[tuple[bytes, Any]] = []

    def send(self, payload: bytes, token: Any = None, *, settled: bool = False) -> int:
        assert self.credit > 0, "sent without credit"
        self.credit -= 1
        self.sent.append((payload, token))
        return len(self.sent)

    def send_run(self, payloads: Sequence[bytes], tokens: Sequence[Any]) -> int:
        sent = min(self.credit, len(payloads))
        for payload, token in zip(payloads[:sent], tokens, strict=False):
            self.send(payload, token)
        return sent

    def drained(self) -> None:
        self.credit = 0
        self.drain = False

    def take(self) -> list[tuple[bytes, Any]]:
        taken, self.sent = self.sent, []
        return taken


class QueueConsumer(Consumer):
    """A consumer that knows its queue."""

    def __init__(self, queue: Queue, credit: int, **options: Any) -> None:
        super().__init__("c", Outlet(credit), **options)
        self.queue = queue


class Core:
    """A Broker and shortcuts. `now` is the time in milliseconds."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        segment_size: int = SEGMENT_SIZE,
        files: Files | None = None,
        **options: Any,
    ) -> None:
        self.now = 1_000_000
        self.skew = 0  # milliseconds that the wall clock is before it
        self.directory = directory
        self.segment_size = segment_size
        self.options = options
        self.files = files
        self.store = Store.open(directory, segment_size=segment_size, files=files) if directory is not None else None
        self.broker = self._broker()
        self.accepted: list[int] = []
        self.failed: list[int] = []
        self.refused: list[tuple[int, Exception | None]] = []
        self._sent = 0

    # answers to a producer
    def stored(self, first: int, count: int) -> None:
        self.accepted += range(first, first + count)

    def not_stored(self, first: int, count: int) -> None:
        self.failed += range(first, first + count)

    def not_taken(self, delivery_id: int, error: Exception | None) -> None:
        self.refused.append((delivery_id, error))

    def queue(self, name: str = "q", **options: Any) -> Queue:
        return self.broker.catalogue.create_queue(
            name, name, "ANYCAST", **{"durable": True, "auto_create_address": True, **options}
        )

    def send(self, body: Any, to: str = "q", *, sender: bytes = b"", **fields: Any) -> Verdict:
        self._sent += 1
        route = self.broker.catalogue.route(to, None)
        assert route is not None
        return publish(self.broker, route, encoded(body, **fields), self, self._sent, sender=sender)

    def consumer(self, queue: Queue, credit: int = 0, selector: str | None = None, **options: Any) -> QueueConsumer:
        compiled = compile_selector(selector) if selector else None
        consumer = QueueConsumer(queue, credit, selector=compiled, **options)
        queue.dispatcher.attach(consumer)
        queue.flow(consumer)
        return consumer

    def tick(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.broker.tick()

    def commit(self) -> None:
        self.broker.commit()
        if self.store is not None:
            self.store.flush()

    def ask(self, queue: Queue, operation: str, *parameters: Any) -> Any:
        """The result of an operation of management on the queue, work over many messages run to its end."""
        function = queue_control.one.find(operation, list(parameters))
        result = function(CallContext(self.broker, Connections()), queue, *parameters)
        return finished(result) if isinstance(result, Generator) else result

    def restart(self) -> None:
        """As after the end of the process: what is committed comes back."""
        assert self.store is not None
        assert self.directory is not None
        self.store.close()
        self.store = Store.open(self.directory, segment_size=self.segment_size, files=self.files)
        self.broker = self._broker()

    def _broker(self) -> Broker:
        limits = {name: self.options[name] for name in BrokerLimits.__struct_fields__ if name in self.options}
        options = {name: value for name, value in self.options.items() if name not in limits}
        return Broker(
            "b",
            clock=lambda: self.now,
            wall=lambda: self.now + self.skew,
            store=self.store,
            limits=BrokerLimits(**limits),
            **options,
        )


def broker_connection(
    broker: Broker,
    later: Callable[[Callable[[], None], str], object],
    *,
    clients: Connections | None = None,
    admission: PeerCheck | None = None,
    followers: set[Any] | None = None,
    **options: Any,
) -> tuple[BrokerConnection, Connection]:
    """Return what the broker knows of a connection, and its end of that. `later`, `admission` and `followers`: see
    BrokerConnection; `options`: of the end."""
    handler = BrokerConnection(
        broker, Connections() if clients is None else clients, "127.0.0.1:1", admission, manage=lambda *_: None,
        followers=set() if followers is None else followers, later=later, gone=lambda _: None,
    )  # fmt: skip
    handler.connection = end = Connection(handler, container_id="b", **options)
    return handler, end


def finished(work: Work[T]) -> T:
    """The result of work over many messages."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast(T, end.value)


def encoded(body: Any, **fields: Any) -> bytes:
    return bytes(ProtonMessage(body=body, **fields).encode())


def decoded(payload: bytes) -> ProtonMessage:
    message = ProtonMessage()
    message.decode(payload)
    return message


def outlet(consumer: Consumer) -> Outlet:
    assert isinstance(consumer.outlet, Outlet)
    return consumer.outlet


def taken(consumer: Consumer) -> list[Any]:
    """Bodies of what was sent to the consumer since the last call."""
    return [decoded(payload).body for payload, _ in outlet(consumer).take()]


def more(consumer: QueueConsumer, credit: int) -> None:
    outlet(consumer).credit += credit
    consumer.queue.flow(consumer)
