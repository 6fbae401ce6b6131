"""Messages between routers: in lines and rings of ours, of ours and Qpid Dispatch's, with one in the middle killed."""

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
    LINK_ROUTE,
    Broker,
    Management,
    post,
    pump,
    pump_until,
    rush,
    wait_for,
)
from tests.router.mesh.network import Routers

OURS, THEIRS = "ours", "theirs"
DISPATCH = pytest.mark.needs("qdrouterd")
LINES = [
    pytest.param((OURS, OURS, OURS), id="ours"),
    pytest.param((OURS, THEIRS, OURS), id="dispatch-between", marks=DISPATCH),
    pytest.param((THEIRS, OURS, THEIRS), id="between-dispatch", marks=DISPATCH),
]
NAMES = "abcd"


class Line:
    """Routers a, b and c in a line, with a client at each."""

    def __init__(self, stack: ExitStack, kinds: tuple[str, ...], *, ring: bool = False) -> None:
        self.routers = Routers(stack)
        self.clients: dict[str, BlockingConnection] = {}
        self.kinds = kinds
        names = NAMES[: len(kinds)]
        for at, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            dials = {names[at - 1]: 1} if at else {}
            if ring and at == len(kinds) - 1:
                dials[names[0]] = 1
            self.routers.start(name, kind=kind, dials=dials)
            self.clients[name] = self.routers[name].connect()
            stack.callback(self.clients[name].close)
        everybody = set(names)
        for name in names:
            wait_for(partial(self.reaches, name, everybody - {name}), f"{name} has paths to all")

    def reaches(self, at: str, others: set[str]) -> bool:
        return self.routers.costs(at).keys() == others

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


@pytest.fixture(scope="module", params=LINES)
def line(request: pytest.FixtureRequest) -> Iterator[Line]:
    with ExitStack() as stack:
        yield Line(stack, request.param)


def bodies(receiver: BlockingReceiver) -> list[Any]:
    """What has come, each accepted."""
    found = []
    while receiver.fetcher.incoming:
        found.append(receiver.receive().body)
        receiver.accept()
    return found


def test_a_sender_has_credit_while_a_receiver_is_reachable(line: Line) -> None:
    sender = line.clients["a"].create_sender("any/credit")
    line.pump()
    assert sender.link.credit == 0
    receiver = line.clients["c"].create_receiver("any/credit", credit=10)
    line.until(lambda: sender.link.credit > 0, "credit")
    receiver.close()

    def revoked() -> bool:
        sender.link.drained()
        return bool(sender.link.credit == 0)

    if line.kinds[0] == OURS:  # Dispatch leaves it the credit that it has
        line.until(revoked, "no credit")
    sender.close()


@pytest.mark.parametrize("kind", ["any", "near", "all", "!!blue"])
def test_the_outcome_is_that_of_the_receiver(line: Line, kind: str) -> None:
    address = f"{kind}/outcomes"
    receiver = line.clients["c"].create_receiver(address, credit=10)
    wait_for(lambda: line.remotes("a", address) == 1, "the receiver is known")
    sender = line.clients["a"].create_sender(address)
    for state in (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED):
        delivery = post(sender, Message(body=int(state), annotations={"x-opt-mine": "kept"}))
        line.until(lambda: receiver.fetcher.incoming, "a message")
        assert not delivery.settled, "settled by a hop"
        message = receiver.receive()
        assert (message.body, dict(message.annotations or {})) == (int(state), {"x-opt-mine": "kept"})
        receiver.settle(state)
        assert line.outcome("a", delivery) == state
    sender.close()
    receiver.close()


def test_settled_messages_and_large_ones_arrive_whole(line: Line) -> None:
    receiver = line.clients["c"].create_receiver("any/large", credit=10)
    wait_for(lambda: line.remotes("a", "any/large") == 1, "the receiver is known")
    sender = line.clients["a"].create_sender("any/large")
    large = bytes(range(256)) * 8192
    post(sender, Message(body="first"), settled=True)
    delivery = post(sender, Message(body=large, durable=True, annotations={"x-opt-mine": "kept"}))
    last = post(sender, Message(body="last"))
    found: list[Message] = []

    def three() -> bool:
        rush(*line.clients.values())
        while receiver.fetcher.incoming:
            found.append(receiver.receive())
            if receiver.fetcher.unsettled:  # the first one is settled
                receiver.accept()
        return len(found) == 3

    wait_for(three, "three messages", moves=lambda: receiver.link.current and receiver.link.current.pending)
    by_size = sorted(found, key=lambda each: len(each.body))
    assert [each.body for each in by_size[:2]] == ["last", "first"] and bytes(by_size[2].body) == large
    assert dict(by_size[2].annotations) == {"x-opt-mine": "kept"} and by_size[2].durable
    assert {line.outcome("a", each) for each in (delivery, last)} == {Delivery.ACCEPTED}
    counts = ("deliveriesIngress", "deliveriesTransit", "deliveriesEgress")
    for at, counted in (("a", (3, 3, 0)), ("b", (0, 3, 0)), ("c", (0, 0, 3))):
        rows = line.routers.query(at, "router.address", "name", *counts)
        assert [tuple(row[each] for each in counts) for row in rows if row["name"] == "M0any/large"] == [counted]
        assert line.routers.query(at, "router", *counts)[0]["deliveriesTransit"] >= counted[1]
    sender.close()
    receiver.close()


def posted_to_all(
    line: Line, sender: BlockingSender, receivers: Mapping[str, BlockingReceiver]
) -> dict[str, list[Any]]:
    """Send ten messages, and wait for their outcomes; return what each receiver got."""
    deliveries = [post(sender, Message(body=n)) for n in range(10)]
    got: dict[str, list[Any]] = {name: [] for name in receivers}

    def all_settled() -> bool:
        for name, receiver in receivers.items():
            got[name] += bodies(receiver)
        return all(delivery.settled for delivery in deliveries)

    line.until(all_settled, "the outcomes")
    return got


def test_multicast_reaches_each_receiver_once(line: Line) -> None:
    receivers = {name: line.clients[name].create_receiver("all/each", credit=20) for name in "abc"}
    wait_for(lambda: all(line.remotes(name, "all/each") == 2 for name in "abc"), "the receivers are known")
    sender = line.clients["b"].create_sender("all/each")
    got = posted_to_all(line, sender, receivers)
    assert got == {name: list(range(10)) for name in receivers}
    for each in (sender, *receivers.values()):
        each.close()


def test_balanced_and_closest(line: Line) -> None:
    for kind in ("any", "near"):
        address = f"{kind}/choice"
        receivers = {name: line.clients[name].create_receiver(address, credit=100) for name in "bc"}
        wait_for(partial(line.knows, "a", address, 2), "the receivers are known")
        wait_for(partial(line.knows, "b", address, 1), "that of c is known to b")
        sender = line.clients["a"].create_sender(address)
        deliveries = [post(sender, Message(body=n)) for n in range(20)]
        line.until(lambda rs=receivers: sum(len(r.fetcher.incoming) for r in rs.values()) == 20, "all messages")
        got = {name: bodies(receiver) for name, receiver in receivers.items()}
        assert {line.outcome("a", delivery) for delivery in deliveries} == {Delivery.ACCEPTED}
        assert (len(got["b"]) == 20) is (kind == "near")
        for each in (sender, *receivers.values()):
            each.close()


def test_what_a_neighbour_releases_is_offered_to_another_receiver(line: Line) -> None:
    if line.kinds[1] == THEIRS:
        return  # Dispatch gives it back to the sender
    first = line.clients["a"].create_receiver("any/again", credit=10)
    wait_for(lambda: line.remotes("b", "any/again") == 1, "the receiver is known")
    sender = line.clients["b"].create_sender("any/again")
    delivery = post(sender, Message(body="again"))
    line.until(lambda: first.fetcher.incoming, "a message")
    second = line.clients["c"].create_receiver("any/again", credit=10)
    wait_for(lambda: line.remotes("b", "any/again") == 2, "the other receiver is known")
    first.receive()
    first.release(delivered=False)
    line.until(lambda: second.fetcher.incoming, "the same message")
    assert bodies(second) == ["again"]
    assert line.outcome("b", delivery) == Delivery.ACCEPTED
    for each in (sender, first, second):
        each.close()


def test_replies_and_management_of_another_router(line: Line) -> None:
    receiver = line.clients["a"].create_receiver(None, dynamic=True, credit=10)
    reply_to = receiver.link.remote_source.address
    sender = line.clients["c"].create_sender(None)
    delivery = post(sender, Message(address=reply_to, body="answer"))
    line.until(lambda: receiver.fetcher.incoming, "the answer")
    assert bodies(receiver) == ["answer"]
    assert line.outcome("c", delivery) == Delivery.ACCEPTED
    nodes = Management(line.routers["a"].url, "_topo/0/c/$management")
    status, _, found = nodes.call("GET-MGMT-NODES")
    nodes.close()
    assert status == 200 and set(found) == {f"amqp:/_topo/0/{name}/$management" for name in "abc"}
    sender.close()
    receiver.close()


def test_link_routes_lead_to_a_container_at_another_router(line: Line) -> None:
    managements = [line.routers[name].management() for name in "bc"]
    broker = Broker("b0", f"127.0.0.1:{line.routers['c'].container_port}")
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
        client = line.clients[at]
        try:
            sender = client.create_sender("routed.dots/x")
        except LinkDetached:
            return None
        if broker.link("routed.dots/x", sender=False) is not None:
            return sender
        sender.close()
        return None

    wait_for(lambda: routed("b"), "the link of a router with the same link route goes there").close()
    client = line.clients["a"]
    sender = wait_for(lambda: routed("a"), "the link goes to the container")
    link = broker.link("routed.dots/x", sender=False)
    assert link is not None and link.name.endswith(f"@{client.container.container_id}")
    delivery = post(sender, Message(body="x"))
    assert line.outcome("a", delivery) == Delivery.ACCEPTED
    assert broker.stored["routed.dots/x"] == ["x"]
    for at, containers, remotes in (("a", 0, 1), ("b", 0, 1), ("c", 1, 0)):
        rows = line.routers.query(at, "router.address", "name", "distribution", "containerCount", "remoteCount")
        of_routes = [tuple(row.values()) for row in rows if row["name"].startswith(("Crouted", "Drouted"))]
        assert sorted(of_routes) == [(f"{key}routed.dots", "linkBalanced", containers, remotes) for key in "CD"]
    broker.outbox["routed.dots/y"] = deque([Message(body="y")])
    receiver = client.create_receiver("routed.dots/y", credit=1)
    line.until(lambda: receiver.fetcher.incoming, "the container's message")
    assert bodies(receiver) == ["y"]
    line.until(lambda: ("routed.dots/y", int(Delivery.ACCEPTED)) in broker.outcomes, "its outcome")
    if line.kinds == (OURS, OURS, OURS):  # the same link route, stated by nearer routers with other separators
        managements[0].delete(LINK_ROUTE, "t-in")
        managements[0].create(LINK_ROUTE, "t-in", prefix="routed/dots", direction="in", containerId="b0")
        nearer = Broker("b0", f"127.0.0.1:{line.routers['b'].container_port}")
        names = {"Crouted.dots", "Crouted/dots"}
        wait_for(lambda: line.routes("a") & names == names, "both are known")
        nearer.stop()
        wait_for(lambda: line.routes("a") & names == {"Crouted.dots"}, "one is known")
        sender.close()
        sender = wait_for(lambda: routed("a"), "the other one leads to its container")
    broker.stop()

    def ended() -> bool:
        try:
            line.pump()
        except LinkDetached:
            return True
        return bool(sender.link.state & Endpoint.REMOTE_CLOSED)

    wait_for(ended, "the loss of the container ends the links")
    for management in managements:
        management.clear("t-", LINK_ROUTE)
        management.close()


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param((OURS,) * 4, id="ours"),
        pytest.param((OURS, THEIRS, OURS, THEIRS), id="with-dispatch", marks=DISPATCH),
    ],
)
def test_multicast_in_a_ring_comes_once(kinds: tuple[str, ...]) -> None:
    with ExitStack() as stack:
        ring = Line(stack, kinds, ring=True)
        ours = [name for name, kind in zip(NAMES, kinds, strict=True) if kind == OURS and name != "a"]
        receivers = {name: ring.clients[name].create_receiver("all/ring", credit=50) for name in NAMES[1:]}
        wait_for(lambda: all(ring.remotes(name, "all/ring") >= 2 for name in NAMES), "the receivers are known")
        sender = ring.clients["a"].create_sender("all/ring")
        got = posted_to_all(ring, sender, receivers)
        assert {name: got[name] for name in ours} == {name: list(range(10)) for name in ours}
        assert all(set(each) == set(range(10)) for each in got.values())


@pytest.mark.parametrize("middle", [pytest.param(OURS, id="ours"), pytest.param(THEIRS, id="dispatch", marks=DISPATCH)])
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


@pytest.mark.parametrize("kind", [pytest.param(OURS, id="ours"), pytest.param(THEIRS, id="dispatch", marks=DISPATCH)])
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


SQUARE: dict[str, dict[str, int]] = {"c": {}, "b": {"c": 1}, "d": {"c": 1}, "a": {"b": 1, "d": 1, "c": 5}}
"""Routers in the order of their start, and whom each dials: two ways of 2 between opposite corners, and a diagonal."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "theirs", [pytest.param("", id="ours"), pytest.param("bd", id="with-dispatch", marks=DISPATCH)]
)
def test_a_square_with_a_diagonal_and_a_kill_of_each_router(theirs: str) -> None:
    """Multicast comes once from each corner to each, before and after; anycast loses nothing that is accepted."""
    with ExitStack() as stack:
        routers = Routers(stack)

        def start(name: str) -> None:
            routers.start(name, kind=THEIRS if name in theirs else OURS, dials=SQUARE[name])

        def is_whole() -> bool:
            return all(
                routers.costs(name)
                == {other: 2 if {name, other} in ({"a", "c"}, {"b", "d"}) else 1 for other in SQUARE if other != name}
                for name in SQUARE
            )

        for name in SQUARE:
            start(name)
        wait_for(is_whole, "all have paths to all")
        multicast_comes_once(routers)
        for name in SQUARE:
            ends = ("a", "c") if name in "bd" else ("b", "d")
            everything_comes(routers, *ends, partial(routers.kill, routers[name]))
            start(name)
            wait_for(is_whole, f"{name} is back")
        multicast_comes_once(routers)


def multicast_comes_once(routers: Routers) -> None:
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
    assert {name: sorted(each) for name, each in got.items()} == dict.fromkeys(SQUARE, sorted(sent))
    for client in clients.values():
        client.close()
