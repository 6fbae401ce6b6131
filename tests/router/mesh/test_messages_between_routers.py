"""Messages between routers, in lines, rings and squares of ours, and of ours and Qpid Dispatch's; also while one is
killed."""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import product
from typing import Any

import pytest
from proton import Delivery, Endpoint, Message
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender, LinkDetached

from tests.kit.network import Here, StallingProxy
from tests.router.harness import (
    AUTO_LINK,
    LINK_ROUTE,
    Broker,
    Management,
    post,
    pump,
    pump_until,
    rush,
    wait_for,
)
from tests.router.mesh.network import Routers, Shape

DISPATCH = pytest.mark.needs("qdrouterd")
# The ends are a and c, with b next to a.
THREE: Shape = {"a": {}, "b": {"a": 1}, "c": {"b": 1}}
FOUR: Shape = {"a": {}, "b": {"a": 1}, "d": {"b": 1}, "c": {"d": 1}}
RING: Shape = {"a": {}, "b": {"a": 1}, "c": {"b": 1}, "d": {"c": 1, "a": 1}}
SQUARE: Shape = {"c": {}, "b": {"c": 1}, "d": {"c": 1}, "a": {"b": 1, "d": 1, "c": 5}}
"""Two ways of 2 between opposite corners, and a diagonal."""


def case(name: str, shape: Shape, theirs: str = "") -> Any:
    """Return a parameter: a shape, and which of its routers are Dispatch."""
    marks = [DISPATCH] if theirs else []
    return pytest.param((shape, theirs), id=name, marks=[*marks, pytest.mark.slow] if len(shape) > 3 else marks)


MESHES = [
    case("ours", THREE),
    case("dispatch-between", THREE, "b"),
    case("between-dispatch", THREE, "ac"),
    case("two-dispatch-between", FOUR, "bd"),
    case("two-between-dispatch", FOUR, "ac"),
    case("in-turn", FOUR, "bc"),
    case("square", SQUARE),
    case("square-dispatch-between", SQUARE, "bd"),
    case("square-dispatch-adjacent", SQUARE, "bc"),
    case("square-between-dispatch", SQUARE, "ac"),
]


class Mesh:
    """Routers with a client at each."""

    def __init__(self, stack: ExitStack, shape: Shape, theirs: str) -> None:
        self.routers = Routers(stack)
        self.clients: dict[str, BlockingConnection] = {}
        self.theirs = theirs
        self.names = sorted(shape)
        self.has_ways = sum(map(len, shape.values())) >= len(shape)  # more than one between two routers
        for name, dials in shape.items():
            self.routers.start(name, kind="theirs" if name in theirs else "ours", dials=dials)
            self.clients[name] = self.routers[name].connect()
            stack.callback(self.clients[name].close)
        wait_for(lambda: self.routers.agree(shape), "all have the same paths")

    def pump(self) -> None:
        pump(*self.clients.values())

    def until(self, condition: Any, what: str) -> Any:
        return pump_until(condition, what, *self.clients.values())

    def outcome(self, at: str, delivery: Any) -> Any:
        self.until(lambda: delivery.settled, "the outcome")
        return delivery.remote_state

    def knows(self, at: str, address: str, remotes: int) -> bool:
        return self.remotes(at, address) == remotes

    def remotes(self, at: str, address: str) -> int:
        rows = self.routers.query(at, "router.address", "name", "remoteCount")
        return sum(row["remoteCount"] for row in rows if row["name"] == f"M0{address}")

    def routes(self, at: str) -> set[str]:
        """Return the keys of link routes to senders that lead to other routers."""
        rows = self.routers.query(at, "router.address", "name", "remoteCount")
        return {row["name"] for row in rows if row["name"].startswith("C") and row["remoteCount"]}


@pytest.fixture(scope="module", params=MESHES)
def mesh(request: pytest.FixtureRequest) -> Iterator[Mesh]:
    with ExitStack() as stack:
        yield Mesh(stack, *request.param)


def bodies(receiver: BlockingReceiver) -> list[Any]:
    """What has come, each accepted."""
    found = []
    while receiver.fetcher.incoming:
        found.append(receiver.receive().body)
        receiver.accept()
    return found


def test_a_sender_has_credit_while_a_receiver_is_reachable(mesh: Mesh) -> None:
    sender = mesh.clients["a"].create_sender("any/credit")
    mesh.pump()
    assert sender.link.credit == 0
    receiver = mesh.clients["c"].create_receiver("any/credit", credit=10)
    mesh.until(lambda: sender.link.credit > 0, "credit")
    receiver.close()

    def revoked() -> bool:
        sender.link.drained()
        return bool(sender.link.credit == 0)

    if "a" not in mesh.theirs:  # Dispatch leaves it the credit that it has
        mesh.until(revoked, "no credit")
    sender.close()


@pytest.mark.parametrize("kind", ["any", "near", "all", "!!blue"])
def test_the_outcome_is_that_of_the_receiver(mesh: Mesh, kind: str) -> None:
    address = f"{kind}/outcomes"
    receiver = mesh.clients["c"].create_receiver(address, credit=10)
    wait_for(lambda: mesh.remotes("a", address) == 1, "the receiver is known")
    sender = mesh.clients["a"].create_sender(address)
    for state in (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED):
        delivery = post(sender, Message(body=int(state), annotations={"x-opt-mine": "kept"}))
        mesh.until(lambda: receiver.fetcher.incoming, "a message")
        assert not delivery.settled, "settled by a hop"
        message = receiver.receive()
        assert (message.body, dict(message.annotations or {})) == (int(state), {"x-opt-mine": "kept"})
        receiver.settle(state)
        assert mesh.outcome("a", delivery) == state
    sender.close()
    receiver.close()


def test_settled_messages_and_large_ones_arrive_whole(mesh: Mesh) -> None:
    receiver = mesh.clients["c"].create_receiver("any/large", credit=10)
    wait_for(lambda: mesh.remotes("a", "any/large") == 1, "the receiver is known")
    sender = mesh.clients["a"].create_sender("any/large")
    large = bytes(range(256)) * 8192
    post(sender, Message(body="first"), settled=True)
    delivery = post(sender, Message(body=large, durable=True, annotations={"x-opt-mine": "kept"}))
    last = post(sender, Message(body="last"))
    found: list[Message] = []

    def three() -> bool:
        rush(*mesh.clients.values())
        while receiver.fetcher.incoming:
            found.append(receiver.receive())
            if receiver.fetcher.unsettled:  # the first one is settled
                receiver.accept()
        return len(found) == 3

    wait_for(three, "three messages", moves=lambda: receiver.link.current and receiver.link.current.pending)
    by_size = sorted(found, key=lambda each: len(each.body))
    assert [each.body for each in by_size[:2]] == ["last", "first"] and bytes(by_size[2].body) == large
    assert dict(by_size[2].annotations) == {"x-opt-mine": "kept"} and by_size[2].durable
    assert {mesh.outcome("a", each) for each in (delivery, last)} == {Delivery.ACCEPTED}
    counts = ("deliveriesIngress", "deliveriesTransit", "deliveriesEgress")
    for at, counted in (("a", (3, 3, 0)), ("b", (0, 3, 0)), ("c", (0, 0, 3))):
        rows = mesh.routers.query(at, "router.address", "name", *counts)
        assert [tuple(row[each] for each in counts) for row in rows if row["name"] == "M0any/large"] == [counted]
        assert mesh.routers.query(at, "router", *counts)[0]["deliveriesTransit"] >= counted[1]
    sender.close()
    receiver.close()


def posted_to_all(
    mesh: Mesh, sender: BlockingSender, receivers: Mapping[str, BlockingReceiver]
) -> dict[str, list[Any]]:
    """Send ten messages, and wait for their outcomes; return what each receiver got."""
    deliveries = [post(sender, Message(body=n)) for n in range(10)]
    got: dict[str, list[Any]] = {name: [] for name in receivers}

    def all_settled() -> bool:
        for name, receiver in receivers.items():
            got[name] += bodies(receiver)
        return all(delivery.settled for delivery in deliveries)

    mesh.until(all_settled, "the outcomes")
    return got


@pytest.mark.parametrize("sends", ["a", "b"])
def test_multicast_reaches_each_receiver_once(mesh: Mesh, sends: str) -> None:
    address = f"all/from-{sends}"
    receivers = {name: mesh.clients[name].create_receiver(address, credit=50) for name in mesh.names}
    others = len(receivers) - 1
    wait_for(lambda: all(mesh.remotes(name, address) == others for name in receivers), "the receivers are known")
    sender = mesh.clients[sends].create_sender(address)
    got = posted_to_all(mesh, sender, receivers)
    check_each_once(got, list(range(10)), mesh.theirs if mesh.has_ways else "")
    for each in (sender, *receivers.values()):
        each.close()


def check_each_once(got: Mapping[str, list[Any]], sent: list[Any], theirs: str) -> None:
    """Check that each router's receiver has each message once; one at a router of `theirs`, Dispatch that more than one
    way leads to, may have it twice (decision 55)."""
    assert {name: set(each) for name, each in got.items()} == {name: set(sent) for name in got}
    ours = {name: sorted(each) for name, each in got.items() if name not in theirs}
    assert ours == {name: sorted(sent) for name in ours}


def test_balanced_and_closest(mesh: Mesh) -> None:
    for kind in ("any", "near"):
        address = f"{kind}/choice"
        receivers = {name: mesh.clients[name].create_receiver(address, credit=100) for name in "bc"}
        wait_for(partial(mesh.knows, "a", address, 2), "the receivers are known")
        wait_for(partial(mesh.knows, "b", address, 1), "that of c is known to b")
        sender = mesh.clients["a"].create_sender(address)
        deliveries = [post(sender, Message(body=n)) for n in range(20)]
        mesh.until(lambda rs=receivers: sum(len(r.fetcher.incoming) for r in rs.values()) == 20, "all messages")
        got = {name: bodies(receiver) for name, receiver in receivers.items()}
        assert {mesh.outcome("a", delivery) for delivery in deliveries} == {Delivery.ACCEPTED}
        assert (len(got["b"]) == 20) is (kind == "near")
        for each in (sender, *receivers.values()):
            each.close()


def test_what_a_neighbour_releases_is_offered_to_another_receiver(mesh: Mesh) -> None:
    if "b" in mesh.theirs:
        return  # Dispatch gives it back to the sender
    first = mesh.clients["a"].create_receiver("any/again", credit=10)
    wait_for(lambda: mesh.remotes("b", "any/again") == 1, "the receiver is known")
    sender = mesh.clients["b"].create_sender("any/again")
    delivery = post(sender, Message(body="again"))
    mesh.until(lambda: first.fetcher.incoming, "a message")
    second = mesh.clients["c"].create_receiver("any/again", credit=10)
    wait_for(lambda: mesh.remotes("b", "any/again") == 2, "the other receiver is known")
    first.receive()
    first.release(delivered=False)
    mesh.until(lambda: second.fetcher.incoming, "the same message")
    assert bodies(second) == ["again"]
    assert mesh.outcome("b", delivery) == Delivery.ACCEPTED
    for each in (sender, first, second):
        each.close()


def test_replies_and_management_of_another_router(mesh: Mesh) -> None:
    receiver = mesh.clients["a"].create_receiver(None, dynamic=True, credit=10)
    reply_to = receiver.link.remote_source.address
    sender = mesh.clients["c"].create_sender(None)
    delivery = post(sender, Message(address=reply_to, body="answer"))
    mesh.until(lambda: receiver.fetcher.incoming, "the answer")
    assert bodies(receiver) == ["answer"]
    assert mesh.outcome("c", delivery) == Delivery.ACCEPTED
    nodes = Management(mesh.routers["a"].url, "_topo/0/c/$management")
    status, _, found = nodes.call("GET-MGMT-NODES")
    nodes.close()
    assert status == 200 and set(found) == {f"amqp:/_topo/0/{name}/$management" for name in mesh.names}
    sender.close()
    receiver.close()


def test_a_queue_is_stored_by_a_broker_of_another_router(mesh: Mesh) -> None:
    address = "stored/queue"
    management = mesh.routers["c"].management()
    broker = Broker("b0", f"127.0.0.1:{mesh.routers['c'].container_port}")
    for direction in ("in", "out"):
        management.create(AUTO_LINK, f"t-{direction}", address=address, direction=direction, containerId="b0")
    sender = mesh.clients["a"].create_sender(address)
    for state in (Delivery.ACCEPTED, Delivery.REJECTED):
        broker.hold = True
        delivery = post(sender, Message(body=int(state)))
        mesh.until(lambda: broker.held, "the broker has the message")
        assert not delivery.settled, "settled by a hop"
        broker.do(partial(broker.settle, broker.held.pop(), state))
        assert mesh.outcome("a", delivery) == state
    assert broker.stored[address] == [int(Delivery.ACCEPTED), int(Delivery.REJECTED)]
    receiver = mesh.clients["b"].create_receiver(address, credit=10)
    broker.put(address, Message(body="kept"))
    mesh.until(lambda: receiver.fetcher.incoming, "the broker's message")
    assert bodies(receiver) == ["kept"]
    mesh.until(lambda: broker.outcomes == [(address, int(Delivery.ACCEPTED))], "its outcome")
    sender.close()
    receiver.close()
    broker.stop()
    management.clear("t-", AUTO_LINK)
    management.close()


def test_link_routes_lead_to_a_container_at_another_router(mesh: Mesh) -> None:
    managements = [mesh.routers[name].management() for name in "bc"]
    broker = Broker("b0", f"127.0.0.1:{mesh.routers['c'].container_port}")
    for management, direction in product(managements, ("in", "out")):
        management.create(
            LINK_ROUTE,
            f"t-{direction}",
            prefix="routed.dots",  # which routers announce unchanged
            direction=direction,
            distribution="linkBalanced",
            containerId="b0",
        )

    def routed(at: str) -> Any:
        client = mesh.clients[at]
        try:
            sender = client.create_sender("routed.dots/x")
        except LinkDetached:
            mesh.pump()  # or Proton attaches the next link of the name before it detaches this one
            return None
        if broker.link("routed.dots/x", sender=False) is not None:
            return sender
        sender.close()
        return None

    wait_for(lambda: routed("b"), "the link of a router with the same link route goes there").close()
    client = mesh.clients["a"]
    sender = wait_for(lambda: routed("a"), "the link goes to the container")
    link = broker.link("routed.dots/x", sender=False)
    assert link is not None and link.name.endswith(f"@{client.container.container_id}")
    delivery = post(sender, Message(body="x"))
    assert mesh.outcome("a", delivery) == Delivery.ACCEPTED
    assert broker.stored["routed.dots/x"] == ["x"]
    for at, containers, remotes in (("a", 0, 1), ("b", 0, 1), ("c", 1, 0)):
        rows = mesh.routers.query(at, "router.address", "name", "distribution", "containerCount", "remoteCount")
        of_routes = [tuple(row.values()) for row in rows if row["name"].startswith(("Crouted", "Drouted"))]
        assert sorted(of_routes) == [(f"{key}routed.dots", "linkBalanced", containers, remotes) for key in "CD"]
    broker.outbox["routed.dots/y"] = deque([Message(body="y")])
    receiver = client.create_receiver("routed.dots/y", credit=1)
    mesh.until(lambda: receiver.fetcher.incoming, "the container's message")
    assert bodies(receiver) == ["y"]
    mesh.until(lambda: ("routed.dots/y", int(Delivery.ACCEPTED)) in broker.outcomes, "its outcome")
    if not mesh.theirs:  # the same link route, stated by nearer routers with other separators
        managements[0].delete(LINK_ROUTE, "t-in")
        managements[0].create(LINK_ROUTE, "t-in", prefix="routed/dots", direction="in", containerId="b0")
        nearer = Broker("b0", f"127.0.0.1:{mesh.routers['b'].container_port}")
        names = {"Crouted.dots", "Crouted/dots"}
        wait_for(lambda: mesh.routes("a") & names == names, "both are known")
        nearer.stop()
        wait_for(lambda: mesh.routes("a") & names == {"Crouted.dots"}, "one is known")
        sender.close()
        sender = wait_for(lambda: routed("a"), "the other one leads to its container")
    broker.stop()

    def ended() -> bool:
        try:
            mesh.pump()
        except LinkDetached:
            return True
        return bool(sender.link.state & Endpoint.REMOTE_CLOSED)

    wait_for(ended, "the loss of the container ends the links")
    for management in managements:
        management.clear("t-", LINK_ROUTE)
        management.close()


@pytest.mark.parametrize(("shape", "theirs"), [(RING, ""), pytest.param(RING, "bd", marks=DISPATCH)])
def test_multicast_in_a_ring_comes_once(shape: Shape, theirs: str) -> None:
    with ExitStack() as stack:
        ring = Mesh(stack, shape, theirs)
        receivers = {name: ring.clients[name].create_receiver("all/ring", credit=50) for name in "bcd"}
        wait_for(lambda: all(ring.remotes(name, "all/ring") >= 2 for name in ring.names), "the receivers are known")
        sender = ring.clients["a"].create_sender("all/ring")
        check_each_once(posted_to_all(ring, sender, receivers), list(range(10)), theirs)


@pytest.mark.parametrize("middle", ["ours", pytest.param("theirs", marks=DISPATCH)])
def test_nothing_accepted_is_lost_when_the_router_between_is_killed(middle: str) -> None:
    """Two ways from a to c. The router on the shorter one is killed with messages under way: what is not accepted is
    sent again, by the other way."""
    with ExitStack() as stack:
        routers = Routers(stack)
        routers.start("c")
        killed = routers.start("b", kind=middle, dials={"c": 1})
        routers.start("d", dials={"c": 5})
        routers.start("a", dials={"b": 1, "d": 5})
        wait_for(lambda: routers.costs("a") == {"b": 1, "c": 2, "d": 5}, "the shorter way")
        everything_comes(routers, "a", "c", lambda: routers.kill(killed))
        assert killed.process.poll() is not None


def everything_comes(
    routers: Routers, sends: str, receives: str, harm: Callable[[], None], kind: str = "any", count: int = 600
) -> None:
    """Send as fast as it goes, do harm with messages under way, and send again what is not accepted: a message comes as
    often as it was sent at most. Print the longest time without an accepted message."""
    to, at = routers[receives].connect(), routers[sends].connect()
    receiver = to.create_receiver(f"{kind}/harm", credit=1000)
    sender = at.create_sender(f"{kind}/harm")
    pump_until(lambda: sender.link.credit > 0, "credit", at, to)
    todo, got, sent = deque(range(count)), Counter[int](), Counter[int]()
    under_way: dict[Any, int] = {}
    accepted: set[int] = set()
    harms = [harm]
    longest, last = 0.0, time.monotonic()

    def step() -> bool:
        nonlocal longest, last
        rush(at, to)
        got.update(bodies(receiver))
        for delivery in [each for each in under_way if each.settled]:
            number = under_way.pop(delivery)
            if delivery.remote_state == Delivery.ACCEPTED:
                accepted.add(number)
                now = time.monotonic()
                longest, last = max(longest, now - last), now
            else:
                todo.append(number)
        while todo and sender.link.credit > 0 and len(under_way) < count // 12:
            number = todo.popleft()
            sent[number] += 1
            under_way[sender.link.send(Message(body=number))] = number
        if len(accepted) >= count // 3 and harms and under_way:
            harms.pop()()
        return len(accepted) == count

    wait_for(step, "all are accepted", moves=lambda: len(accepted))
    print(f"{kind}: {longest:.2f} s without an accepted message")
    assert not harms
    assert got.keys() == sent.keys() == set(range(count))
    assert got <= sent
    at.close()
    to.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["any", "all"])
@pytest.mark.parametrize("harm", ["killed", "stopped", "parted"])
def test_thousands_of_messages_while_a_router_dies_or_is_parted(harm: str, kind: str) -> None:
    """The router on the shorter way is killed, stands still, or is parted from one neighbour, whose connection stays
    open: nothing accepted is lost, and only what was sent again comes again."""
    with ExitStack() as stack:
        routers = Routers(stack)
        routers.start("c")
        between = routers.start("b", dials={"c": 1})
        routers.start("d", dials={"c": 5})
        proxy = StallingProxy(Here(), ("127.0.0.1", routers.port("b")))
        stack.callback(proxy.close)
        link = {"name": "b", "host": "127.0.0.1", "port": str(proxy.port), "role": "inter-router", "cost": 1}
        routers.start("a", ["connector", link], dials={"d": 5})
        wait_for(lambda: routers.costs("a") == {"b": 1, "c": 2, "d": 5}, "the shorter way")

        def part() -> None:
            for direction in (proxy.TO_SERVER, proxy.TO_CLIENT):
                proxy.stall(direction)

        def stop() -> None:
            between.process.send_signal(signal.SIGSTOP)
            stack.callback(between.process.send_signal, signal.SIGCONT)

        harms = {"killed": lambda: routers.kill(between), "stopped": stop, "parted": part}
        everything_comes(routers, "a", "c", harms[harm], kind, 3000)


IDLE = 600
"""Idle time-out of connections that are to be lost before."""


@pytest.mark.parametrize("kind", ["ours", pytest.param("theirs", marks=DISPATCH)])
@pytest.mark.parametrize("what", ["stopped", "to-it", "from-it"])
def test_what_is_under_way_to_a_silent_router_is_given_back(what: str, kind: str) -> None:
    """The router stands still, or what one of both sends does not arrive. It is a neighbour again when it answers."""
    with ExitStack() as stack:
        routers = Routers(stack)
        silent = routers.start("b", kind=kind, idle=IDLE)
        proxy = StallingProxy(Here(), ("127.0.0.1", routers.port("b")))
        stack.callback(proxy.close)
        link = {"name": "b", "host": "127.0.0.1", "port": str(proxy.port), "role": "inter-router"}
        routers.start("a", ["connector", {**link, "idleTimeoutSeconds": IDLE}])
        wait_for(lambda: routers.costs("a") == {"b": 1}, "they are neighbours")
        to, at = silent.connect(), routers["a"].connect()
        receiver = to.create_receiver("any/silent", credit=10)
        sender = at.create_sender("any/silent")
        pump_until(lambda: sender.link.credit > 0, "credit", at, to)
        delivery = post(sender, Message(body="under way"))
        pump_until(lambda: receiver.fetcher.incoming, "the message", at, to)
        if what == "stopped":
            silent.process.send_signal(signal.SIGSTOP)
            stack.callback(silent.process.send_signal, signal.SIGCONT)
        else:
            proxy.stall(proxy.TO_SERVER if what == "to-it" else proxy.TO_CLIENT)
        pump_until(lambda: delivery.settled, "the outcome", at)
        assert (delivery.remote_state, delivery.remote.failed) == (Delivery.MODIFIED, True)
        if what == "stopped":
            silent.process.send_signal(signal.SIGCONT)
        for direction in (proxy.TO_SERVER, proxy.TO_CLIENT):
            proxy.flow(direction)
        wait_for(lambda: routers.costs("a") == {"b": 1}, "they are neighbours again")
        at.close()
        to.close()


@pytest.mark.slow
@pytest.mark.parametrize("theirs", ["", *(pytest.param(each, marks=DISPATCH) for each in ("bd", "bc"))])
def test_a_square_with_a_diagonal_and_a_kill_of_each_router(theirs: str) -> None:
    """Multicast comes once from each corner to each, before and after; anycast loses nothing that is accepted."""
    with ExitStack() as stack:
        routers = Routers(stack)

        def start(name: str) -> None:
            routers.start(name, kind="theirs" if name in theirs else "ours", dials=SQUARE[name])

        for name in SQUARE:
            start(name)
        wait_for(lambda: routers.agree(SQUARE), "all have the same paths")
        multicast_comes_once(routers, theirs)
        for name in SQUARE:
            ends = ("a", "c") if name in "bd" else ("b", "d")
            everything_comes(routers, *ends, partial(routers.kill, routers[name]))
            start(name)
            wait_for(lambda: routers.agree(SQUARE), f"{name} is back")
        multicast_comes_once(routers, theirs)


def multicast_comes_once(routers: Routers, theirs: str) -> None:
    """Send ten messages from each corner of a square to receivers at all."""
    clients = {name: routers[name].connect() for name in SQUARE}
    receivers = {name: client.create_receiver("all/square", credit=100) for name, client in clients.items()}

    def remotes(name: str) -> int:
        rows = routers.query(name, "router.address", "name", "remoteCount")
        return sum(row["remoteCount"] for row in rows if row["name"] == "M0all/square")

    wait_for(lambda: all(remotes(name) == 3 for name in SQUARE), "the receivers are known")
    got: dict[str, list[Any]] = {name: [] for name in SQUARE}
    senders = {name: client.create_sender("all/square") for name, client in clients.items()}
    sent = [f"{name}-{number}" for name in SQUARE for number in range(10)]
    deliveries = [post(senders[each[0]], Message(body=each)) for each in sent]

    def all_settled() -> bool:
        for name, receiver in receivers.items():
            got[name] += bodies(receiver)
        return all(delivery.settled for delivery in deliveries)

    pump_until(all_settled, "the outcomes", *clients.values())
    check_each_once(got, sent, theirs)
    for client in clients.values():
        client.close()
