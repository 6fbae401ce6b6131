"""Nothing is held of a connection that has ended, however it did, at the engine, the router and the broker."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from enmasse.aio.transport import Hub
from enmasse.amqp.codec.performatives import Begin, Close, Detach, End, Flow, Open
from services.broker.core.broker import Broker
from services.broker.server import BrokerServer, steady_clock
from services.router import config
from services.router.app import LoopClock
from services.router.management.assembly import all_tables
from services.router.network.maker import ConnectionMaker
from services.router.network.sockets import Sockets
from tests.amqp.engine_kit import AMQP, SASL, attach, frame, init
from tests.amqp.server_kit import ONE_SOON, Store, run, start
from tests.kit.waiting import until
from tests.router.test_logins import USERS, front

OPEN = AMQP + frame(0, Open(container_id="c", max_frame_size=65536))
BEGIN = frame(0, Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100))
CREDIT = frame(
    0,
    Flow(
        next_incoming_id=0,
        incoming_window=100,
        next_outgoing_id=0,
        outgoing_window=100,
        handle=1,
        delivery_count=0,
        link_credit=10,
    ),
)
LINKS = BEGIN + frame(0, attach("s", 0, sending=True)) + frame(0, attach("r", 1, sending=False)) + CREDIT
REFUSED = BEGIN + frame(0, attach("s", 0, sending=True, target=None))
CLOSE = frame(0, Close())
CLIENTS = {
    "nothing": b"",
    "half a header": AMQP[:4],
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "half a SASL exchange": SASL,
    "SASL, and no more": SASL + init("ANONYMOUS", b""),
    "SASL that is refused": SASL + init("PLAIN", b"\0a\0b"),
    "SASL, open and close": SASL + init("ANONYMOUS", b"") + OPEN + CLOSE,
    "open and close": OPEN + CLOSE,
    "open": OPEN,
    "half a frame": OPEN + BEGIN[:-3],
    "links": OPEN + LINKS,
    "links and close": OPEN + LINKS + CLOSE,
    "links that are detached": OPEN + LINKS + frame(0, Detach(handle=0)) + frame(0, Detach(handle=1)),
    "a session that is ended": OPEN + LINKS + frame(0, End()) + CLOSE,
    "an attach that is refused": OPEN + REFUSED,
    "a broken rule": OPEN + frame(9, End()),
}


@asynccontextmanager
async def engine() -> AsyncIterator[tuple[Hub, int]]:
    class Forgetful(Store):
        """Keeps nothing of its connections."""

        def make(self, peer: Any, **fields: Any) -> Any:
            connection = super().make(peer, **fields)
            self.connections.clear()
            return connection

        def on_attach(self, link: Any) -> None:
            super().on_attach(link)
            self.links.clear()

        def on_close(self, c: Any, error: Any) -> None:
            pass

    server = await start(Forgetful())
    yield server.hub, server.port
    server.close()


@asynccontextmanager
async def router(*more: Any) -> AsyncIterator[tuple[Hub, int]]:
    """`more`: further entities."""
    loop = asyncio.get_running_loop()
    entities: Any = [("router", {"id": "r"}), ("listener", {"name": "l", "host": "127.0.0.1", "port": "0"}), *more]
    settings = config.RouterSettings(name="r", health="127.0.0.1:0", entities=entities)
    attributes = config.router_attributes(settings)
    made = config.make_router(attributes, LoopClock(loop))
    hub = Hub(loop)
    sockets = Sockets(ConnectionMaker(made, hub))
    await config.load(settings, all_tables(made, sockets, attributes))
    (listener,) = sockets.listeners
    assert listener.port
    yield hub, listener.port
    await listener.close()


@asynccontextmanager
async def broker() -> AsyncIterator[tuple[Hub, int]]:
    server = BrokerServer(Broker("b", clock=steady_clock()), asyncio.get_running_loop())
    server.broker.catalogue.create_queue("a", "a", "ANYCAST", durable=False, auto_create_address=True)
    port = await server.listen("127.0.0.1", 0)
    yield server.hub, port
    await server.close()


@asynccontextmanager
async def routed() -> AsyncIterator[tuple[Hub, int]]:
    """A router that passes the links on to a broker."""
    routes = [("linkRoute", {"prefix": "a", "direction": way, "containerId": "b"}) for way in ("in", "out")]
    async with broker() as (_, at):
        dialled = {"name": "b", "role": "route-container", "host": "127.0.0.1", "port": str(at)}
        async with router(("connector", dialled), *routes) as (hub, port):
            await until(lambda: any(each.state == "open" for each in hub.connections), "the broker")
            yield hub, port


@asynccontextmanager
async def logins() -> AsyncIterator[tuple[Hub, int]]:
    """A router whose clients log in by a service, which lets them wait."""

    async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    service = await asyncio.start_server(wait, "127.0.0.1", 0)
    async with service, front(service.sockets[0].getsockname()[1]) as there:
        there.feed(USERS)
        yield there.logins.hub, there.port


SERVERS: dict[str, Callable[[], Any]] = {
    "engine": engine,
    "router": router,
    "routed": routed,
    "logins": logins,
    "broker": broker,
}


def living() -> Counter[str]:
    """Objects of ours, by class. A few deadlines that count no more may wait for their time."""
    kinds = [type(each) for each in gc.get_objects()]
    names = Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
    return Counter({name: n for name, n in names.items() if name.startswith(("enmasse.", "services."))})


async def visit(port: int, data: bytes) -> None:
    """Say something and wait for an answer, or for the other end to close; then go away."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    if len(data) >= 8:
        await reader.read(1)
    writer.transport.abort() if len(data) % 2 else writer.close()


@ONE_SOON
@pytest.mark.parametrize("where", SERVERS)
def test_nothing_is_held_of_a_connection_that_has_ended(loop: str, where: str) -> None:
    async def main() -> None:
        async with SERVERS[where]() as (hub, port):
            own = len(hub.wires)

            async def all_of_them(times: int) -> None:
                for _ in range(times):
                    for data in CLIENTS.values():
                        await visit(port, data)
                await until(lambda: len(hub.wires) == own, "the connections to go")
                await asyncio.sleep(0)

            await all_of_them(8)  # what is made once is there now, sessions to the broker too
            gc.collect()
            before = living()
            gc.disable()
            try:
                await all_of_them(30)
                for _ in range(10):  # turns in which the loop lets go
                    await asyncio.sleep(0)
                held = living() - before
            finally:
                gc.enable()
            del held["enmasse.aio.transport._Deadline"]
            assert not held, f"{where}: held after 480 connections: {held}"
            assert hub.deadlines <= 200

    run(loop, main)
