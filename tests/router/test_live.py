"""The router's source `$live`: what it tells of links, connections and addresses is what happened."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.amqp.codec.performatives import (
    ACCEPTED,
    RELEASED,
    Flow,
    Modified,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Receiver, Sender
from enmasse.amqp.messages.message import Message
from enmasse.amqp.messages.sections import Sections
from enmasse.amqp.termini import SPACE
from enmasse.control import jsonmessage
from enmasse.control.connection import ControlConnection
from enmasse.control.dial import connect, keep_connected
from enmasse.control.live_followers import follow
from enmasse.live_state import Merged
from services.router.live_rows import LiveRouter
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.configuration import MULTICAST, AddressConfig
from services.router.routing.connection import RouterConnection
from services.router.routing.handler import RouterHandler
from services.router.routing.router import Router
from tests.amqp.engine_kit import frame
from tests.kit.waiting import until
from tests.router.harness import DEADLINE, RouterProcess
from tests.router.world import Clock

MESSAGE = b"\x00\x53\x75\xa0\x01x"
STATES = {
    "accepted": ACCEPTED,
    "released": RELEASED,
    "modified": Modified(delivery_failed=True),
    "rejected": Rejected(),
}


class Client:
    """A client's connection to a router in memory."""

    def __init__(self, world: World) -> None:
        self.record = RouterConnection(
            world.router, name="clients", role="normal", direction="in", host="127.0.0.1:1", capacity=250
        )
        self.server = Connection(world.handler, container_id="r", is_client=False)
        self.server.context = self.record
        self.record.amqp = self.server
        stated = {"product": "load", "other": "x", SPACE: "one"}
        self.client = Connection(Handler(), container_id=f"c{len(world.clients)}", is_client=True, properties=stated)
        self.client.open()
        world.clients.append(self)
        world.pump()
        self.session = self.client.begin()


class World:
    """A router with clients, and a follower of its live state."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.router = Router("r", self.clock)
        self.router.add_address_config(AddressConfig(1, "a", pattern="a"))
        self.router.add_address_config(AddressConfig(2, "m", pattern="m", treatment=MULTICAST))
        self.handler = RouterHandler(self.router)
        self.live = LiveRouter(self.router)
        self.clients: list[Client] = []

    def pump(self) -> None:
        for _ in range(8):
            for each in self.clients:
                each.server.receive(each.client.take_output())
            self.clock.run()
            for each in self.clients:
                each.client.receive(each.server.take_output())

    def follow(self) -> Merged:
        merged = Merged()
        link = Client(self).session.attach_receiver("live", Source(address="$live"), Target())
        link.credit_window = 10

        def take(link: Receiver, delivery_id: int, settled: bool, payload: bytes, *_: Any) -> None:
            assert settled
            merged.apply(json.loads(Sections(payload).body()[1][0]))

        link.on_delivery = take
        self.pump()
        return merged

    def second(self) -> None:
        self.clock.now += 1.0
        self.pump()
        self.live.publisher.start()
        self.pump()


class Load(World):
    """Two clients that send and receive on two addresses, and what became of it."""

    def __init__(self) -> None:
        super().__init__()
        self.merged = self.follow()
        for _ in range(2):
            Client(self)
        self.senders: list[tuple[str, Sender]] = []
        self.receivers: list[tuple[str, Receiver]] = []
        self.unsettled: list[tuple[Receiver, int]] = []
        self.truth: dict[str, Counter[str]] = {"a": Counter(), "m": Counter()}

    def sender(self, client: int, address: str) -> None:
        link = self.clients[1 + client].session.attach_sender(None, Source(), Target(address=address))
        self.senders.append((address, link))
        self.pump()

    def receiver(self, client: int, address: str) -> None:
        link = self.clients[1 + client].session.attach_receiver(None, Source(address=address), Target())
        link.credit_window = 1000

        def take(link: Receiver, delivery_id: int, settled: bool, payload: bytes, *_: Any) -> None:
            self.truth[address]["out"] += 1
            self.truth[address]["bytesOut"] += len(payload)
            if not settled:
                self.unsettled.append((link, delivery_id))

        link.on_delivery = take
        self.receivers.append((address, link))
        self.pump()

    def send(self, which: int, count: int, settled: bool) -> None:
        if not self.senders:
            return
        address, link = self.senders[which % len(self.senders)]
        for _ in range(count):
            if link.credit > 0:
                link.send(MESSAGE, object(), settled=settled)
                self.truth[address]["in"] += 1
                self.truth[address]["bytesIn"] += len(MESSAGE)
        self.pump()

    def settle(self, which: int, state: str) -> None:
        if self.unsettled:
            link, delivery_id = self.unsettled.pop(which % len(self.unsettled))
            if not link.detached:
                link.session.settle(delivery_id, STATES[state])
        self.pump()

    def close(self, what: list[Any], which: int) -> None:
        if what:
            what.pop(which % len(what))[1].detach()
        self.pump()

    def check(self) -> None:
        self.second()
        rows = self.merged.kinds.get("addresses", {})
        for address, truth in self.truth.items():
            row = rows.get(address, {})
            for key in ("in", "bytesIn", "out", "bytesOut"):
                assert row.get(key, 0) == truth[key], (address, key)
            assert row.get("producers", 0) == sum(name == address for name, _ in self.senders)
            assert row.get("consumers", 0) == sum(name == address for name, _ in self.receivers)
        total = self.router.totals()
        for key in ("accepted", "rejected", "released", "modified"):
            assert sum(row[key] for row in rows.values()) == getattr(total, key), key
        links = self.merged.kinds["links"]
        assert len(links) == 1 + len(self.senders) + len(self.receivers)
        connections = self.merged.kinds["connections"]
        assert len(connections) == 3
        assert sum(row["in"] for row in connections.values()) == sum(each["in"] for each in self.truth.values())


_NUMBER = st.integers(0, 5)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("sender"), st.integers(0, 1), st.sampled_from("am")),
        st.tuples(st.just("receiver"), st.integers(0, 1), st.sampled_from("am")),
        st.tuples(st.just("send"), _NUMBER, st.integers(1, 9), st.booleans()),
        st.tuples(st.just("settle"), _NUMBER, st.sampled_from(sorted(STATES))),
        st.tuples(st.just("close sender"), _NUMBER),
        st.tuples(st.just("close receiver"), _NUMBER),
        st.tuples(st.just("second")),
    ),
    max_size=40,
)


@given(_STEPS)
@settings(max_examples=60)
def test_rows_sum_up_to_what_was_sent_received_and_settled(steps: list[tuple[Any, ...]]) -> None:
    load = Load()
    for step in steps:
        match step:
            case ("sender", client, address):
                load.sender(client, address)
            case ("receiver", client, address):
                load.receiver(client, address)
            case ("send", which, count, settled):
                load.send(which, count, settled)
            case ("settle", which, state):
                load.settle(which, state)
            case ("close sender", which):
                load.close(load.senders, which)
            case ("close receiver", which):
                load.close(load.receivers, which)
            case _:
                load.second()
    load.check()


def test_a_link_and_a_connection_are_described() -> None:
    load = Load()
    load.receiver(0, "a")
    load.sender(1, "a")
    load.send(0, 3, settled=False)
    load.second()
    links = load.merged.kinds["links"]
    sending = next(row for row in links.values() if row["dir"] == "in")
    assert sending["address"] == sending["stated"] == "a"
    assert (sending["count"], sending["unsettled"], sending["bytes"]) == (3, 3, 3 * len(MESSAGE))
    connection = load.merged.kinds["connections"][sending["connection"]]
    assert connection["properties"] == {"product": "load", SPACE: "one"}
    assert connection["container"] == "c2" and connection["peer"] == "127.0.0.1:1" and connection["user"] == "anonymous"
    assert connection["links"] == 1 and connection["in"] == 3 and connection["bytesIn"] > 0
    load.close(load.senders, 0)
    load.second()
    assert not any(row["dir"] == "in" for row in load.merged.kinds["links"].values())
    assert load.merged.kinds["connections"][sending["connection"]]["in"] == 3


def test_messages_of_an_anonymous_sender_count_at_their_addresses() -> None:
    load = Load()
    load.receiver(0, "a")
    link = load.clients[2].session.attach_sender(None, Source(), Target())
    load.pump()
    for _ in range(4):
        link.send(Message(b"x", to="a").encode(), object())
    load.pump()
    assert load.truth["a"]["out"] == 4
    load.second()
    assert load.merged.kinds["addresses"]["a"]["in"] == 4
    link.detach()
    load.close(load.receivers, 0)
    load.second()
    assert load.merged.kinds["addresses"]["a"]["in"] == 4


def test_an_address_that_is_no_longer_configured_is_forgotten_once_it_is_not_used() -> None:
    load = Load()
    load.router.addresses._default = "unavailable"
    load.receiver(0, "a")
    load.sender(0, "a")
    load.send(0, 1, settled=True)
    load.second()
    assert load.merged.kinds["addresses"]["a"]["in"] == 1
    load.router.addresses.remove_config(AddressConfig(1, "a", pattern="a"))
    load.close(load.senders, 0)
    load.close(load.receivers, 0)
    load.second()
    assert "a" not in load.merged.kinds["addresses"]
    assert "a" not in load.router.traffic.totals


def test_each_follower_gets_everything_and_one_without_credit_holds_nobody_up() -> None:
    load = Load()
    silent = Client(load).session.attach_receiver("live", Source(address="$live"), Target())
    load.pump()
    second = load.follow()
    for n in range(5):
        load.receiver(n % 2, "a")
        load.second()
    assert silent.deliveries == 0
    assert second.kinds == load.merged.kinds and second.complete
    waiting = [out for out in load.live._node.outs if out.load]
    assert not waiting  # nothing is kept for the one without credit


def test_a_look_visits_no_idle_address(monkeypatch: Any) -> None:
    load = Load()
    load.receiver(0, "a")
    load.second()
    for n in range(100):
        load.router.addresses.create(f"M0idle{n}", MULTICAST)
    touched: list[RoutedAddress] = []
    monkeypatch.setattr(load.router.traffic, "look_at_relayed", touched.append)
    changes = load.live.rows.number
    load.second()
    assert not touched
    assert load.live.rows.number - changes <= 2  # of the follower's own connection and link


def test_a_sender_to_the_node_changes_nothing() -> None:
    load = Load()
    link = load.clients[1].session.attach_sender(None, Source(), Target(address="$live"))
    load.pump()
    link.send(MESSAGE, object())
    load.second()
    assert load.merged.complete


def test_a_follower_on_proton_merges_what_a_router_tells_and_sees_a_restart() -> None:
    async def scenario() -> None:
        process = RouterProcess([["address", {"name": "any", "pattern": "any", "distribution": "balanced"}]])
        try:
            merged = Merged()
            runs: list[str] = []

            async def conversation(connection: ControlConnection) -> None:
                follow(connection, merged, lambda body: runs.append(body["run"]))
                await connection.wait_closed()

            following = asyncio.ensure_future(
                keep_connected("127.0.0.1", process.port, conversation, container="console")
            )
            client = await connect("127.0.0.1", process.port, container="client")
            sender, receiver = client.sender("any"), client.receiver("any")
            receiver.on_message = lambda delivery: delivery.accept()
            await receiver.opened()
            for _ in range(3):
                assert (await sender.deliver(jsonmessage.encode("x", b"{}"))).accepted
            await until(lambda: merged.kinds.get("addresses", {}).get("any", {}).get("accepted") == 3)
            row = merged.kinds["addresses"]["any"]
            assert (row["in"], row["out"], row["outAccepted"], row["producers"], row["consumers"]) == (3, 3, 3, 1, 1)
            assert {each["container"] for each in merged.kinds["connections"].values()} == {"client", "console"}
            assert merged.complete and (merged.component, merged.kind) == ("r1", "router")
            client.close()
            process.process.kill()
            process.process.wait(DEADLINE)
            process._start([["listener", {"host": "127.0.0.1", "port": str(process.port)}]])
            await until(lambda: len(set(runs)) == 2)
            await until(lambda: merged.complete)
            assert "any" not in merged.kinds.get("addresses", {})
            following.cancel()
        finally:
            process.stop()

    asyncio.run(scenario())


def test_refusals_of_links_messages_and_connections_are_events() -> None:
    load = Load()
    load.router.addresses._default = "unavailable"
    load.clients[1].session.attach_sender("s", Source(), Target(address="nowhere"))
    load.clients[1].session.attach_receiver("r", Source(address="nowhere"), Target())
    relay = load.clients[2].session.attach_sender("x", Source(), Target())
    load.pump()
    relay.send(Message(b"x", to="nowhere").encode(), object())
    relay.send(MESSAGE, object())
    load.pump()
    load.clients[2].server.receive(b"\x00\x00\x00\x08\x01\x00\x00\x00")  # a frame whose data offset is too small
    load.second()
    load.second()
    found = {(each["what"], each["address"], each["condition"], each["client"]) for each in load.merged.events}
    assert found == {
        ("send", "nowhere", "amqp:not-found", "c1"),
        ("receive", "nowhere", "amqp:not-found", "c1"),
        ("message", "nowhere", "amqp:not-found", "c2"),
        ("message", "", "amqp:precondition-failed", "c2"),
        ("close", "", "amqp:connection:framing-error", "c2"),
    }
    assert all(each["id"] == "client.refused" and each["count"] == 1 for each in load.merged.events)


def test_a_connection_that_an_operator_closes_is_an_event() -> None:
    load = Load()
    load.pump()
    next(each for each in load.router.connections.values() if each.container == "c1").closed_by("alice")
    load.pump()
    load.second()
    load.second()
    assert [(each["id"], each["by"]) for each in load.merged.events] == [("client.closed", "alice")]


def test_broken_rules_of_links_and_sessions_are_events() -> None:
    load = Load()
    load.router.add_address_config(AddressConfig(3, "lonely", pattern="lonely"))
    client = Client(load)
    client.session.attach_sender("s", Source(), Target(address="lonely"))
    load.pump()
    client.server.receive(frame(0, Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), MESSAGE))
    client.server.receive(frame(0, Flow(next_incoming_id=7, incoming_window=9, next_outgoing_id=1, outgoing_window=9)))
    load.second()
    assert [(each["what"], each["address"], each["condition"], each["client"]) for each in load.merged.events] == [
        ("close", "lonely", "amqp:link:transfer-limit-exceeded", "c3"),
        ("close", "", "amqp:invalid-field", "c3"),
    ]


def test_work_of_transactions_by_an_anonymous_link_is_an_event() -> None:
    load = Load()
    relay = load.clients[2].session.attach_sender("x", Source(), Target())
    load.pump()
    relay.send(Message(b"x", to="any").encode(), object(), state=TransactionalState(txn_id=b"t"))
    load.pump()
    load.second()
    assert [(each["what"], each["condition"], each["client"]) for each in load.merged.events] == [
        ("close", "amqp:not-implemented", "c2")
    ]


def test_a_client_that_just_leaves_is_no_event() -> None:
    load = Load()
    load.clients[1].client.close()
    load.clients[2].server.transport_closed()
    load.second()
    assert not load.merged.events
