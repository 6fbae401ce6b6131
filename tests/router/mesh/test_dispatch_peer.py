"""The engine of the mesh as a neighbour of a real Qpid Dispatch, which it dials, or which dials it.

Proton carries the control messages; there are no data links.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from proton import Connection, Endpoint, Event, Handler, Link, int32, symbol
from proton.handlers import FlowController, Handshaker
from proton.reactor import Container

from enmasse.testing import free_port
from services.router.mesh.control_messages import Treatment
from services.router.mesh.mesh_engine import Action, AddressGained, AddressLost, MeshEngine, MeshNotice, SendControl
from tests.kit.waiting import wait_for
from tests.router.harness import PREFIX, DispatchProcess

pytestmark = pytest.mark.needs("qdrouterd")
LINK = 1
CONTROL = "qd.router"
COST = 5
OURS, THEIRS = "ours", "theirs"


class MeshPeer(Handler):
    """A router of the mesh with one connection. `dial`: a port; without it the router listens on `port`. `view`: the
    addresses with receivers elsewhere."""

    def __init__(self, name: str, dial: int | None = None, *, instance: int | None = None, first: int = 0) -> None:
        self.handlers = [Handshaker(), FlowController(250)]
        self.port = free_port()
        self.engine = MeshEngine(name, int(time.time()) if instance is None else instance, time.monotonic(), first)
        self.view: dict[tuple[str, str], Treatment | None] = {}
        self.notices: list[str] = []
        self._dial = dial
        self._links: list[Link] = []
        self._sender: Any = None
        self._todo: list[Callable[[], None]] = []
        self._ended = False
        self._connection: Connection | None = None
        self._tag = 0
        self._container = Container(self)
        self._container.container_id = name
        self._thread = threading.Thread(target=self._container.run, daemon=True)
        self._thread.start()

    # From the test's thread

    def add_address(self, key: str, treatment: Treatment) -> None:
        self._todo.append(lambda: self.engine.add_address(key, treatment))

    def remove_address(self, key: str) -> None:
        self._todo.append(lambda: self.engine.remove_address(key))

    def stop(self) -> None:
        self._ended = True
        self._thread.join()

    # In its own

    def on_reactor_init(self, event: Event) -> None:
        event.reactor.schedule(0.0, self)
        if self._dial is None:
            self._acceptor = self._container.listen(f"127.0.0.1:{self.port}")
            return
        properties = {symbol("qd.inter-router-cost"): int32(COST), symbol("qd.annotations-version"): 1}
        connection = self._container.connect(f"127.0.0.1:{self._dial}", reconnect=False, properties=properties)
        session = connection.session()
        session.open()
        for link in (session.receiver("in"), session.sender("out")):
            for terminus in (link.source, link.target):
                terminus.capabilities.put_object(symbol(CONTROL))
            link.open()

    def on_link_remote_open(self, event: Event) -> None:
        link = event.link
        capabilities = link.remote_source.capabilities
        capabilities.rewind()
        if not capabilities.next() or capabilities.get_object() != CONTROL:
            return
        self._links.append(link)
        if link.is_sender:
            self._sender = link
        if len(self._links) == 2:
            self._connection = event.connection
            self._do(self.engine.link_opened(LINK, 5, time.monotonic()))

    def on_delivery(self, event: Event) -> None:
        delivery = event.delivery
        link = event.link
        if link.is_receiver and delivery.readable and not delivery.partial:
            payload = link.recv(delivery.pending)
            link.advance()
            delivery.settle()
            self._do(self.engine.received(LINK, payload, time.monotonic()))

    def on_timer_task(self, event: Event) -> None:
        if self._ended:
            if self._dial is None:
                self._acceptor.close()
            if self._connection is not None and not self._connection.state & Endpoint.LOCAL_CLOSED:
                self._connection.close()
            return
        while self._todo:
            self._todo.pop(0)()
        self._do(self.engine.tick(time.monotonic()))
        event.reactor.schedule(0.1, self)

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, SendControl):
                self._tag += 1
                delivery = self._sender.delivery(str(self._tag))
                self._sender.stream(action.message.encode())
                self._sender.advance()
                delivery.settle()
            elif isinstance(action, AddressGained):
                self.view[action.key, action.router] = action.treatment
            elif isinstance(action, AddressLost):
                del self.view[action.key, action.router]
            elif isinstance(action, MeshNotice):
                self.notices.append(action.text)


@pytest.fixture(params=["it dials Dispatch", "Dispatch dials it"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[MeshPeer, DispatchProcess]]:
    here, port = {"host": "127.0.0.1", "role": "inter-router"}, free_port()
    multicast = ["address", {"prefix": "multi", "distribution": "multicast"}]
    if request.param == "Dispatch dials it":
        peer = MeshPeer(OURS, first=4711)
        connector = ["connector", {"name": "ours", **here, "port": str(peer.port), "cost": 5}]
        process = DispatchProcess([multicast, connector], router_id=THEIRS, default="balanced")
    else:
        process = DispatchProcess(
            [multicast, ["listener", {**here, "port": str(port)}]], router_id=THEIRS, default="balanced"
        )
        peer = MeshPeer(OURS, port, first=4711)
    try:
        yield peer, process
    finally:
        peer.stop()
        process.stop()


def test_dispatch_has_it_as_a_neighbour_and_knows_its_addresses(pair: tuple[MeshPeer, DispatchProcess]) -> None:
    peer, process = pair
    wait_for(lambda: dict(peer.engine.topology.costs) == {THEIRS: 5}, "Dispatch is a neighbour")
    management = process.management()

    def nodes() -> dict[str, Any]:
        rows = management.query(PREFIX + "router.node", "id", "cost", "linkState", "nextHop", "instance")
        return {row["id"]: (row["cost"], row["linkState"], row["nextHop"]) for row in rows}

    wait_for(lambda: nodes().get(OURS) == (5, [THEIRS], None), "it is a node of Dispatch")

    def remote(name: str) -> int:
        rows = management.query(PREFIX + "router.address", "name", "remoteCount")
        return sum(row["remoteCount"] for row in rows if row["name"] == name)

    peer.add_address("M0here", Treatment.CLOSEST)
    wait_for(lambda: remote("M0here") == 1, "Dispatch knows the address")
    receiver = process.connect().create_receiver("multi/there")
    wait_for(lambda: ("M0multi/there", THEIRS) in peer.view, "its address is known")
    assert peer.view["M0multi/there", THEIRS] is Treatment.MULTICAST_ONCE
    receiver.close()
    wait_for(lambda: ("M0multi/there", THEIRS) not in peer.view, "its address is gone")
    peer.remove_address("M0here")
    wait_for(lambda: remote("M0here") == 0, "the address is gone at Dispatch")
    management.close()


def test_restarted_with_lower_numbers_it_is_known_again() -> None:
    """A link state that goes to all routers, and the numbers of a new start, are understood."""
    port = free_port()
    listener = ["listener", {"host": "127.0.0.1", "role": "inter-router", "port": str(port)}]
    process = DispatchProcess([listener], router_id=THEIRS, default="balanced")
    management = process.management()

    def knows(keys: set[str]) -> bool:
        rows = management.query(PREFIX + "router.address", "name", "remoteCount")
        return {row["name"] for row in rows if row["remoteCount"] and row["name"].startswith("M0")} == keys

    try:
        now = int(time.time())
        for instance, first, key in ((now - 100, 5000, "M0first"), (now, 3, "M0second")):
            peer = MeshPeer(OURS, port, instance=instance, first=first)
            peer.add_address(key, Treatment.BALANCED)
            wait_for(partial(knows, {key}), f"Dispatch knows {key} only")
            peer.stop()
    finally:
        management.close()
        process.stop()
