"""A network that is cut is noticed, and a peer that does not read is not taken for cut off."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from enmasse import control
from enmasse.aio.transport import Hub, dial
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.network.cut_links import CUT_OFF, LOOK, CutLink, link_of
from tests.kit.network import Network, Node, network
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until, wait_for

pytestmark = pytest.mark.needs("ip")
CUTS: dict[str, Callable[[Network, Node, Node], None]] = {
    "the peer is unplugged": lambda net, here, there: there.unplug(),
    "nothing arrives there": lambda net, here, there: net.cut(here, there),
    "nothing arrives here": lambda net, here, there: net.cut(there, here),
}


class Ends:
    """Two connected sockets at two nodes."""

    def __init__(self, net: Network) -> None:
        self.net, self.here, self.there = net, net.node("here"), net.node("there")
        with self.there.inside():
            listening = socket.create_server((self.there.address, 0))
        with self.here.inside(), listening:
            self.own = socket.create_connection(listening.getsockname())
            self.peer = listening.accept()[0]
        self.own.setblocking(False)
        self.link = CutLink(self.own)

    def looked(self) -> bool:
        """Send a byte, and look some time later."""
        with contextlib.suppress(BlockingIOError):
            self.own.send(b"-")
        # pause: between two looks
        time.sleep(LOOK)
        return self.link.is_cut(time.monotonic())


@pytest.fixture
def ends() -> Iterator[Ends]:
    with network() as net:
        yield Ends(net)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.slow
def test_a_cut_is_noticed(ends: Ends, cut: str) -> None:
    assert not any(ends.looked() for _ in range(6))
    CUTS[cut](ends.net, ends.here, ends.there)
    wait_for(ends.looked, "the link is cut")
    late = CutLink(ends.own)
    assert not any(late.is_cut(float(second)) for second in range(5)), "who looks late judges no peer"


@pytest.mark.slow
def test_a_peer_that_reads_nothing_is_not_cut_off(ends: Ends) -> None:
    """Its kernel acknowledges, until there is no room, and answers when it is asked whether there is."""
    assert not ends.looked()
    with contextlib.suppress(BlockingIOError):
        while True:
            ends.own.send(bytes(65536))
    assert not any(ends.looked() for _ in range(20))


@pytest.mark.slow
@asyncio_test
async def test_connections_of_the_suite_end_when_they_are_cut() -> None:
    """However long their peer may be silent."""
    with network() as net:
        here, there = net.node("here"), net.node("there")
        with there.inside():
            listener = await control.listen(there.address, 0, lambda _: None, container="there", idle=2 * DEADLINE)
        place = (there.address, listener.port)
        own = Connection(Handler(), container_id="own", is_client=True, idle_timeout_ms=int(2000 * DEADLINE))
        own.inner = True
        with here.inside():
            controlled = await control.connect(*place, container="here", idle=2 * DEADLINE)
            await dial(Hub(), *place, own)
        await until(lambda: own.state == "open")
        there.unplug()
        await until(lambda: own.finished and controlled.is_gone, "both are gone")
        for error in (own.transport_error, controlled.error):
            assert CUT_OFF in str(error)
        await listener.close()


@asyncio_test
async def test_a_peer_on_this_machine_is_not_looked_at() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    made, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, *server.sockets[0].getsockname()[:2])
    assert link_of(made) is None
    made.abort()
    server.close()
