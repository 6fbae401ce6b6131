"""A router closes its surplus of clients after another one came."""

from __future__ import annotations

import asyncio

from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from services.router.client_share import ClientShare
from services.router.routing.connection import RouterConnection
from services.router.routing.handler import RouterHandler
from services.router.routing.router import Router
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.router.world import Clock


class FastClock(Clock):
    """Twenty seconds are one: clients that send nothing are waited for."""

    def time(self) -> float:
        return 20 * asyncio.get_running_loop().time()


def connected(router: Router, *, by_gateway: bool = False) -> None:
    record = RouterConnection(router, name=None, role="normal", direction="in", host="127.0.0.1:1", capacity=250)
    record.by_gateway = by_gateway
    server = Connection(RouterHandler(router), container_id="r", is_client=False)
    server.context, record.amqp = record, server
    client = Connection(Handler(), container_id="c", is_client=True)
    client.open()
    for _ in range(4):
        server.receive(client.take_output())
        client.receive(server.take_output())


@asyncio_test
async def test_a_router_closes_its_surplus_after_another_one_came() -> None:
    router = Router("r", FastClock())
    for number in range(24):
        connected(router, by_gateway=number < 4)
    share = ClientShare(router)
    assert share.take(0, 0) == {"clients": 20, "leaving": False}
    share.take(1, 20)
    assert len(router.connections) == 24
    share.take(2, 20)
    share.take(2, 20)  # while they are closed nothing further is
    await until(lambda: len(router.connections) <= 24 - 9)
    share.leaving = True
    assert share.take(3, 11) == {"clients": 11, "leaving": True}
    by_gateway = [each for each in router.connections.values() if each.by_gateway]
    assert len(router.connections) == 15 and len(by_gateway) == 4
