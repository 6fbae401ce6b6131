"""A small server on our engine, for tests of the skin and of the client: addresses are queues in memory."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from enmasse.aio.transport import Hub, Server, serve
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Source
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.messages.message import Message
from tests.kit.marks import first_soon
from tests.kit.waiting import DEADLINE

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
BOTH = pytest.mark.parametrize("loop", LOOPS)
ONE_SOON = pytest.mark.parametrize("loop", first_soon(["uvloop", "asyncio"]))
"""For tests that take long: `make test` has them on the loop that services have."""


def run(loop: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test's coroutine on one kind of loop; what a task or callback raised unseen fails it."""
    unseen: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: unseen.append(context))
        runner.run(asyncio.wait_for(main(), 2 * DEADLINE))  # after a wait inside has failed, and named its condition
    assert not unseen, unseen


class Store(Handler):
    """Queues by address. "missing" is not found, "full" rejects, "silent" never settles; dynamic ones are made up."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[bytes]] = {}
        self.consumers: dict[str, list[Sender]] = {}
        self.outcomes: list[Any] = []
        self.connections: list[Connection] = []
        self.detached: list[tuple[str, str | None, bool]] = []
        self.closed: list[AmqpError | None] = []
        self.links: dict[str, Link] = {}
        self.window = 100

    def make(self, peer: Any, **fields: Any) -> Connection:
        connection = Connection(self, container_id="store", is_client=False, **fields)
        connection.context = peer
        self.connections.append(connection)
        return connection

    def on_attach(self, link: Link) -> None:
        self.links[link.name] = link
        terminus = link.remote_source if link.is_sender else link.remote_target
        if terminus is None or terminus.address == "missing":
            raise AmqpError("amqp:not-found", "no such address")
        if isinstance(link, Receiver):
            link.accept()
            link.credit_window = self.window
            return
        address = f"dynamic-{len(self.queues)}" if terminus.dynamic else terminus.address
        self.queues.setdefault(address, deque())
        self.consumers.setdefault(address, []).append(link)  # type: ignore[arg-type]  # links with a source are senders
        link.accept(source=Source(address=address, dynamic=terminus.dynamic, filter=terminus.filter))

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        address = str(link.remote_target.address or Message.decode(payload).to)
        if address == "silent":
            return
        if address == "full":
            from enmasse.amqp.codec.performatives import Error, Rejected
            from enmasse.amqp.codec.types import Symbol

            error = Error(condition=Symbol("amqp:resource-limit-exceeded"), description="full")
            link.session.settle(delivery_id, Rejected(error=error))
            return
        self.queues.setdefault(address, deque()).append(payload)
        if not settled:
            link.session.settle(delivery_id)
        self.dispatch(address)

    def dispatch(self, address: str) -> None:
        queue = self.queues[address]
        for link in self.consumers.get(address, []):
            while queue and link.credit:
                payload = queue.popleft()
                link.send(payload, payload)

    def on_flow(self, link: Sender) -> None:
        self.dispatch(link.source.address)
        super().on_flow(link)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        self.outcomes += [state] * len(tokens)
        if not settled:
            link.settle(tokens)
        if state is not ACCEPTED:
            self.queues[link.source.address].extendleft(reversed(tokens))
            self.dispatch(link.source.address)

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        self.detached.append((link.name, str(error.condition) if error else None, closed))
        for consumers in self.consumers.values():
            if link in consumers:
                consumers.remove(link)

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        self.closed.append(error)


async def start(store: Store, tls: ssl.SSLContext | None = None, **fields: Any) -> Server:
    return await serve(Hub(), "127.0.0.1", 0, lambda peer: store.make(peer, **fields), ssl=tls)


class Watched(asyncio.Protocol):
    """Stands before a transport's protocol: `seen` is called with what has been read, then it goes on as before."""

    def __init__(self, transport: asyncio.Transport, seen: Callable[[bytes], None]) -> None:
        self._seen = seen
        self._inner: Any = transport.get_protocol()
        transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        self._seen(data)
        self._inner.data_received(data)

    def eof_received(self) -> bool:
        return bool(self._inner.eof_received())

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)
