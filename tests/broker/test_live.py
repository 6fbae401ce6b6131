"""The broker's source `$live`: rows of queues, addresses, connections and links are what is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.amqp.codec.performatives import Flow, Rejected, Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Receiver
from enmasse.amqp.messages.sections import Sections
from enmasse.amqp.termini import CLIENT
from enmasse.live_state import Merged
from services.broker.core.connections import Connections
from services.broker.core.queues.queue import Queue
from services.broker.live_rows import Ages, LiveBroker
from tests.broker.sansio import Core, QueueConsumer, broker_connection, encoded, outlet
from tests.router.world import Clock


class World(Core):
    """A broker with a follower of its live state."""

    def __init__(self, directory: Path | None = None, **options: Any) -> None:
        super().__init__(directory, **options)
        self.clock = Clock()
        self.clients = Connections()
        self.live = LiveBroker(self.broker, self.clients, self.clock)
        self.peers: list[tuple[Connection, Connection]] = []
        self.merged = self.follow()

    def client(self, container: str, **opened: Any) -> Connection:
        _, server = broker_connection(
            self.broker, lambda go_on, _: self.clock.call_soon(go_on),
            clients=self.clients, followers=self.live.followers, is_client=False,
        )  # fmt: skip
        client = Connection(Handler(), container_id=container, is_client=True, **opened)
        client.open()
        self.peers.append((server, client))
        self.pump()
        return client

    def pump(self) -> None:
        for _ in range(8):
            for server, client in self.peers:
                server.receive(client.take_output())
            self.clock.run()
            for server, client in self.peers:
                client.receive(server.take_output())

    def follow(self) -> Merged:
        merged = Merged()
        link = self.client("console").begin().attach_receiver("live", Source(address="$live"), Target())
        link.credit_window = 10

        def take(link: Receiver, delivery_id: int, settled: bool, payload: bytes, *_: Any) -> None:
            assert settled
            merged.apply(json.loads(Sections(payload).body()[1][0]))

        link.on_delivery = take
        self.pump()
        return merged

    def second(self) -> None:
        self.now += 1000
        self.clock.now += 1.0
        self.pump()
        self.live.publisher.start()
        self.pump()

    def row(self, kind: str, id: str) -> dict[str, Any]:
        return self.merged.kinds.get(kind, {}).get(id, {})


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 5)),
        st.tuples(st.just("consume"), st.integers(1, 5)),
        st.tuples(st.sampled_from(["accept", "reject", "release", "fail", "leave", "second", "delete", "commit"])),
    ),
    max_size=40,
)


@given(_STEPS)
@settings(max_examples=50)
def test_rows_of_a_queue_are_what_it_holds_and_has_done(steps: list[tuple[Any, ...]]) -> None:
    world = World()
    world.broker.catalogue.put_settings("#", {"DLA": "dead", "maxDeliveryAttempts": 3})
    dead, queue = world.queue("dead"), world.queue()
    consumers: list[QueueConsumer] = []
    for step in steps:
        match step:
            case ("send", count):
                for n in range(count):
                    world.send(n)
            case ("consume", credit):
                consumers.append(world.consumer(queue, credit))
            case ("second",):
                world.second()
            case ("commit",):
                world.commit()
            case ("delete",):
                world.broker.catalogue.destroy_queue("q", remove_consumers=True)
                world.broker.jobs.run(lambda: False)
                consumers.clear()
                world.second()
                assert not world.row("queues", "q")
                queue = world.queue()
            case (outcome,) if consumers:
                settle(queue, consumers, outcome)
    world.second()
    assert_rows(world, queue, dead)


def settle(queue: Queue, consumers: list[QueueConsumer], outcome: str) -> None:
    consumer = consumers[0]
    messages = [message for _, message in outlet(consumer).take() if message.id in consumer.unsettled]
    match outcome:
        case "accept" if messages:
            queue.outcomes.accept(consumer, messages)
        case "reject":
            queue.outcomes.reject(consumer, messages)
        case "release":
            queue.outcomes.release(consumer, messages)
        case "fail":
            queue.outcomes.modify(consumer, messages, failed=True, elsewhere=False)
        case "leave":
            queue.detach(consumers.pop(0))
        case _:
            pass


def assert_rows(world: World, *queues: Queue) -> None:
    assert world.merged.complete
    for queue in queues:
        row = world.row("queues", queue.name)
        assert (row["messages"], row["bytes"], row["in"], row["out"]) == (
            queue.count, queue.bytes, queue.added, queue.acknowledged,
        )  # fmt: skip
        assert (row["rejected"], row["redelivered"], row["deadLettered"]) == (
            queue.rejected, queue.redelivered, queue.killed,
        )  # fmt: skip
        assert row["delivering"] == queue.dispatcher.delivering
        assert row["consumers"] == len(queue.consumers)
        assert row["bytesIn"] - row["bytesOut"] >= row["bytes"]
        assert (row["oldest"] is None) == (not queue.count)
        assert world.row("addresses", queue.address.name)["messages"] == queue.address.count


def test_the_age_of_the_oldest_message_is_known_to_a_second_and_survives_its_delivery() -> None:
    world = World()
    queue = world.queue()
    for _ in range(5):
        world.second()
    world.send("old")
    came = world.now / 1000
    for _ in range(5):
        world.second()
        world.send("new")
    world.second()
    assert came - 1 <= world.row("queues", "q")["oldest"] <= came
    consumer = world.consumer(queue, 1)
    world.second()
    assert came - 1 <= world.row("queues", "q")["oldest"] <= came
    queue.outcomes.accept(consumer, [message for _, message in outlet(consumer).take()])
    world.second()
    assert world.row("queues", "q")["oldest"] > came


def test_a_message_that_was_being_stored_has_an_age_once_it_has_arrived(tmp_path: Path) -> None:
    world = World(tmp_path)
    queue = world.queue()
    world.send("x", durable=True)
    world.second()
    row = world.row("queues", "q")
    assert (row["messages"], row["oldest"]) == (1, None), "it is on its way to the disk"
    world.commit()
    world.second()
    assert_rows(world, queue)


def test_messages_from_before_a_restart_are_as_old_as_the_process_at_least(tmp_path: Path) -> None:
    core = Core(tmp_path)
    core.queue()
    core.send("x", durable=True)
    core.commit()
    core.restart()
    clock, started = Clock(), core.now / 1000
    live = LiveBroker(core.broker, Connections(), clock)
    for _ in range(3):
        core.now += 1000
        live.publisher.start()
    assert live.ages.of(core.broker.catalogue.queues["q"].order.first_id() or 0) == started


def test_marks_of_ages_are_bounded() -> None:
    ages = Ages(0, 0.0)
    for n in range(1, 100_000):
        ages.note(n, float(n))
    assert len(ages._ids) == len(ages._times) <= 4096
    assert ages.of(99_999) == 99_999.0
    assert 0 <= ages.of(50) <= 50


def test_a_look_visits_no_queue_at_which_nothing_happens() -> None:
    world = World()
    for n in range(50):
        world.queue(f"idle{n}")
    world.second()
    visited: list[str] = []
    world.live._queue = lambda queue: visited.append(queue.name)  # type: ignore[method-assign]  # to see its calls
    world.second()
    assert not visited
    world.send("x", "idle7")
    world.second()
    assert visited == ["idle7"]


def test_queues_that_come_and_go_without_a_follower_are_not_kept() -> None:
    core = Core()
    for n in range(100):
        core.queue(f"q{n}")
        core.send("x", f"q{n}")
        core.broker.catalogue.destroy_queue(f"q{n}", remove_consumers=True, auto_delete_address=True)
        core.broker.jobs.run(lambda: False)
    assert not [each for each in core.broker.ledger.touched if isinstance(each, Queue)]


def test_connections_and_links_of_clients_are_described() -> None:
    world = World()
    world.queue()
    session = world.client("c1").begin()
    sender = session.attach_sender("s", Source(), Target(address="q"))
    world.pump()
    sender.send(encoded("x"), object())
    receiver = session.attach_receiver("r", Source(address="q"), Target())
    receiver.credit_window = 10
    world.pump()
    world.second()
    (id,) = [id for id, row in world.merged.kinds["connections"].items() if row["container"] == "c1"]
    connection = world.row("connections", id)
    assert connection["links"] == 2 and connection["bytesIn"] > 0 and connection["bytesOut"] > 0
    links = {row["dir"]: row for row in world.merged.kinds["links"].values() if row["connection"] == id}
    assert links["in"]["count"] == 1 and links["out"]["unsettled"] == 1 and links["out"]["queue"] == "q"
    receiver.detach()
    world.second()
    assert [row["dir"] for row in world.merged.kinds["links"].values() if row["connection"] == id] == ["in"]


def test_a_consumer_that_rejects_is_named_in_the_dead_letter() -> None:
    world = World()
    world.broker.catalogue.put_settings("q", {"DLA": "dead"})
    world.queue("dead")
    world.queue()
    world.send("x")
    receiver = world.client("billing").begin().attach_receiver("r", Source(address="q"), Target())
    receiver.on_delivery = lambda link, delivery_id, *_: link.session.settle(delivery_id, Rejected(error=None))
    receiver.credit_window = 1
    world.pump()
    dead = world.broker.catalogue.queues["dead"]
    ((payload, _),) = outlet(world.consumer(dead, 1)).take()
    assert Sections(payload).annotations["x-opt-death"]["consumer"] == "billing"


def test_refused_links_and_messages_are_events() -> None:
    world = World()
    world.broker.catalogue.put_settings("full", {"maxSizeBytes": 10, "addressFullMessagePolicy": "FAIL"})
    world.broker.catalogue.put_settings("#", {"autoCreateAddresses": False})
    world.queue("full")
    session = world.client("c1").begin()
    session.attach_receiver("r", Source(address="nowhere"), Target())
    sender = session.attach_sender("s", Source(), Target(address="full"))
    world.pump()
    for _ in range(4):
        sender.send(encoded("x" * 100), object())
        world.pump()
    world.second()
    found = {(each["what"], each["address"], each["condition"], each["client"]) for each in world.merged.events}
    assert found == {
        ("receive", "nowhere", "amqp:not-found", "c1"),
        ("message", "full", "amqp:resource-limit-exceeded", "c1"),
    }
    assert world.broker.refusals.counts["message", "amqp:resource-limit-exceeded"] == 3


def test_a_broken_rule_of_a_session_is_an_event() -> None:
    world = World()
    client = world.client("c1")
    client.begin()
    world.pump()
    client.output.send(0, Flow(next_incoming_id=7, incoming_window=9, next_outgoing_id=0, outgoing_window=9))
    world.pump()
    world.second()
    assert [(each["what"], each["condition"], each["client"]) for each in world.merged.events] == [
        ("close", "amqp:invalid-field", "c1")
    ]


def test_a_refusal_names_the_client_that_a_router_states_and_nobody_else() -> None:
    world = World()
    world.broker.catalogue.put_settings("full", {"maxSizeBytes": 10, "addressFullMessagePolicy": "FAIL"})
    world.broker.catalogue.put_settings("#", {"autoCreateAddresses": False})
    world.queue("full")
    product = {Symbol("product"): "qpid-dispatch-router"}
    peers = {"router-0": world.client("router-0", properties=product), "liar": world.client("liar")}
    alice: dict[str, Any] = {
        "client": ["alice", "pump", "192.0.2.7:5"],
        "process": [],
        "odd": ["alice", 1],
        "none": None,
    }
    for peer in peers.values():
        session = peer.begin()
        for name, stated in alice.items():
            properties = {} if stated is None else {Symbol(CLIENT): stated}
            session.attach_receiver(f"r-{name}", Source(address=f"no-{name}"), Target(), properties=properties)
        sender = session.attach_sender(
            "s", Source(), Target(address="full"), properties={Symbol(CLIENT): alice["client"]}
        )
        world.pump()
        for _ in range(2):
            sender.send(encoded("x" * 100), object())
            world.pump()
    world.second()
    found = [
        (each["what"], each["address"], each["user"], each["client"], each["peer"]) for each in world.merged.events
    ]
    of_alice = ("alice", "pump", "192.0.2.7:5")
    router, liar = ("", "router-0", "127.0.0.1:1"), ("", "liar", "127.0.0.1:1")
    assert sorted(found) == sorted(
        [
            ("receive", "no-client", *of_alice), ("receive", "no-odd", *router), ("receive", "no-none", *router),
            ("message", "full", *of_alice), ("message", "full", *liar),
            *(("receive", f"no-{name}", *liar) for name in alice),
        ]
    )  # fmt: skip
