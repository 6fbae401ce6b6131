"""A router at one node, its broker at another, and a client at a third, while something happens to what is between
router and broker: nothing that was acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection

from tests.broker.harness import Management
from tests.kit.marks import first_soon
from tests.kit.network import Network, Node, network
from tests.kit.waiting import DEADLINE
from tests.network.starting import AMQP, start
from tests.router.harness import pump_until

pytestmark = pytest.mark.needs("ip")

SILENCE = 2
"""Seconds after which the router takes a silent broker for gone."""
WINDOW = 50
"""Messages of the sender without an outcome at most."""
END = "end"


class Place(NamedTuple):
    """The nodes. `net`: what is between them."""

    net: Network
    client: Node
    router: Node
    broker: Node

    def connected(self, node: Node) -> BlockingConnection:
        """Return a connection from the client's node."""
        with self.client.inside():
            return BlockingConnection(f"{node.address}:{AMQP}", timeout=DEADLINE, heartbeat=0)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with network() as net:
        made = Place(net, net.node("client"), net.node("router"), net.node("broker"))
        start(made.broker, "broker", tmp_path, listen=f"{made.broker.address}:{AMQP}", data_dir=str(tmp_path / "data"))
        connection = made.connected(made.broker)
        Management(connection).queue("jobs")
        connection.close()
        dialled = {"name": "b", "role": "route-container", "host": made.broker.address, "port": str(AMQP)}
        start(
            made.router,
            "router",
            tmp_path,
            entities=[
                ["router", {"id": "r", "mode": "standalone"}],
                ["listener", {"name": "clients", "host": made.router.address, "port": str(AMQP)}],
                ["connector", {**dialled, "idleTimeoutSeconds": SILENCE}],
                ["address", {"name": "jobs", "pattern": "jobs", "waypoint": True}],
                *(["autoLink", {"name": way, "addr": "jobs", "dir": way, "connection": "b"}] for way in ("in", "out")),
            ],
        )
        yield made


class Sending:
    """A client that sends whenever it has credit and fewer than WINDOW messages without an outcome."""

    def __init__(self, place: Place) -> None:
        self._connection = place.connected(place.router)
        self._sender = self._connection.create_sender("jobs")
        self._open: dict[str, Delivery] = {}
        self._sent = 0
        self.accepted: set[str] = set()
        self.others = 0
        """Messages with another outcome."""

    def until(self, condition: Callable[[], object], what: str, *, send: bool = True) -> None:
        """Send, or only look at outcomes, until a condition holds."""

        def step() -> bool:
            while send and len(self._open) < WINDOW and self._sender.link.credit > 0:
                body = f"m{self._sent}"
                self._sent += 1
                self._open[body] = self._sender.link.send(Message(body=body, durable=True))
            for body, delivery in list(self._open.items()):
                if delivery.settled:
                    del self._open[body]
                    if delivery.remote_state == Delivery.ACCEPTED:
                        self.accepted.add(body)
                    else:
                        self.others += 1
            return bool(condition())

        pump_until(step, what, self._connection)

    def end(self) -> None:
        self.until(lambda: not self._open, "each message has an outcome", send=False)
        self._connection.close()


def received(place: Place) -> set[str]:
    """Return the messages of the queue."""
    connection = place.connected(place.router)
    connection.create_sender("jobs").send(Message(body=END, durable=True))
    receiver = connection.create_receiver("jobs", credit=100)
    found: set[str] = set()
    while END not in found:
        found.add(str(receiver.receive(DEADLINE).body))
        receiver.accept()
    connection.close()
    return found


HAPPENS: dict[str, tuple[Callable[[Place], None], Callable[[Place], None]]] = {
    "the broker is stopped": (lambda place: place.broker.stop(), lambda place: place.broker.go_on()),
    "nothing from the broker arrives": (
        lambda place: place.net.cut(place.broker, place.router),
        lambda place: place.net.mend(place.broker, place.router),
    ),
    "the broker is unplugged": (lambda place: place.broker.unplug(), lambda place: place.broker.plug()),
    "nothing from the router arrives": (
        lambda place: place.net.cut(place.router, place.broker),
        lambda place: place.net.mend(place.router, place.broker),
    ),
}


@pytest.mark.parametrize("what", first_soon(HAPPENS))
def test_nothing_acknowledged_is_lost(place: Place, what: str) -> None:
    begin, end = HAPPENS[what]
    sending = Sending(place)
    sending.until(lambda: len(sending.accepted) > 200, "messages are accepted")
    begin(place)
    sending.until(lambda: sending.others, "the router takes the broker for gone, and so it ends what is under way")
    before = len(sending.accepted)
    end(place)
    sending.until(lambda: len(sending.accepted) > before + 200, "messages are accepted again")
    sending.end()
    assert received(place) >= sending.accepted


def test_a_slow_link_loses_nothing_and_ends_nothing(place: Place) -> None:
    sending = Sending(place)
    sending.until(lambda: len(sending.accepted) > 200, "messages are accepted")
    place.broker.slow(256_000)
    before = len(sending.accepted)
    sending.until(lambda: len(sending.accepted) > before + 100, "messages are accepted over the slow link")
    place.broker.quick()
    sending.end()
    assert not sending.others
    assert received(place) >= sending.accepted
