"""QoS 2 to the client, with everything lost at any moment: the link to the broker, the gateway, what is not stored yet.
The broker, the stored records and a client as the specification wants it (v5 4.3.3, method A) are models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from enmasse.model.sessions import Outgoing
from services.mqtt_gateway.amqp.exchanges import Exchanges
from services.mqtt_gateway.amqp.session_service import Op, PacketIdOutcome
from services.mqtt_gateway.interfaces import Delivery
from tests.mqtt_gateway.exchange_model import Link, MqttHalf

SOURCE = "$sub/b/mqtt.c"


class World(MqttHalf):
    """`second`: the broker settles, and so says that it has read an outcome."""

    def __init__(self, messages: int, *, second: bool = True) -> None:
        self.second = second
        self.queue = [f"{n:016x}" for n in range(messages)]
        self.records: dict[int, tuple[str, str]] = {}  # stored: packet id → identity, state
        self.pending: list[tuple[Op, int, str | None, Callable[[PacketIdOutcome], None] | None]] = []
        self.delivered: list[str] = []  # to the application behind the client
        self.client: dict[int, None] = {}  # packet ids the client has received and that are not released
        self.to_client: list[tuple[str, int, str]] = []
        self.from_client: list[tuple[str, int]] = []
        self.start()

    # the gateway, with the MQTT half's part

    def start(self) -> None:
        sent = [Outgoing(pid, 2, identity, SOURCE, state) for pid, (identity, state) in self.records.items()]  # type: ignore[arg-type]  # states are plain strings here
        self.known = {identity: pid for pid, (identity, state) in self.records.items() if state == "published"}
        self.flying: dict[int, Delivery | None] = {each.pid: None for each in sent}
        self.exchanges = Exchanges(cast(Any, self), sent)
        self.exchanges.start(self)
        self.link: Link | None = None
        self.to_client = [("pubrel", each.pid, "") for each in sent if each.state == "released"]
        self.from_client.clear()
        self.pending.clear()

    def attach(self) -> None:
        if self.link is None:
            self.link = link = Link(self, SOURCE, second=self.second)
            for number, identity in enumerate(self.queue):
                link.carried[number] = identity
                delivery = Delivery("t", b"", 2, identity=identity, source=SOURCE, handle=(link, link, number, b""))
                self.exchanges.arrived(delivery)
            self.exchanges.drained(SOURCE)

    def change(
        self,
        op: Op,
        packet_id: int,
        key: str | None,
        source: str,
        done: Callable[[PacketIdOutcome], None] | None,
        message: bytes = b"",
    ) -> None:
        self.pending.append((op, packet_id, key, done))

    def late(self, packet_id: int) -> None:
        raise AssertionError("the source is one session's")

    # what happens

    def store(self) -> None:
        """The oldest change that is not stored is stored; its answer arrives."""
        if not self.pending:
            return
        done = self.stored(*self.pending.pop(0))
        if done is not None:
            done(PacketIdOutcome.DONE)

    def stored(
        self, op: Op, pid: int, key: str | None, done: Callable[[PacketIdOutcome], None] | None
    ) -> Callable[[PacketIdOutcome], None] | None:
        if op == "out":
            assert pid not in self.records
            self.records[pid] = (key or "", "published")
        elif op == "rel":
            self.records[pid] = (key or "", "released")
        else:
            self.records.pop(pid, None)
        return done

    def broker(self) -> None:
        """The broker reads one acceptance, and settles."""
        link = self.link
        if link is not None and link.accepted:
            number = link.accepted.pop(0)
            self.queue.remove(link.carried[number])
            if self.second:
                self.exchanges.settled(SOURCE, [number])

    def network(self) -> None:
        """A packet reaches the client, which answers."""
        if not self.to_client:
            return
        kind, pid, identity = self.to_client.pop(0)
        if kind == "publish":
            if pid not in self.client:
                self.client[pid] = None
                self.delivered.append(identity)
            self.from_client.append(("pubrec", pid))
        else:
            self.client.pop(pid, None)
            self.from_client.append(("pubcomp", pid))

    def answer(self) -> None:
        """An answer of the client reaches the gateway."""
        if not self.from_client:
            return
        kind, pid = self.from_client.pop(0)
        delivery = self.flying.get(pid)
        if kind == "pubrec":
            assert delivery is not None
            self.exchanges.received(delivery, pid)
        else:
            self.exchanges.complete(pid, delivery)

    def lose_link(self, read: bool) -> None:
        """`read`: the broker has read what was accepted, its settlements are lost."""
        link, self.link = self.link, None
        if link is not None:
            for number in link.accepted if read else ():
                self.queue.remove(link.carried[number])
            self.exchanges.lost(SOURCE)

    def close(self, read: bool) -> None:
        """The client's connection ends; all that the session has asked for is stored."""
        for change in self.pending:
            self.stored(*change)
        self.records |= {each.pid: (each.identity or "", each.state) for each in self.exchanges.completed()}
        complete = {pid for pid, (_, state) in self.records.items() if state == "completed"}
        self.lose_link(read)
        self.start()
        assert not complete & {pid for _, pid, _ in self.to_client}, "nothing is said of what the client has completed"

    def crash(self, read: bool) -> None:
        """The gateway is killed. `read`: what it has sent has arrived everywhere, the answers are lost."""
        self.lose_link(read)
        for change in self.pending if read else ():
            self.stored(*change)
        while read and self.to_client:
            self.network()
        self.start()


def finish(world: World, wanted: list[str]) -> None:
    """Nothing more is lost: everything comes to its end."""
    for _ in range(60):
        for event in ("attach", "store", "network", "answer", "broker"):
            getattr(world, event)()
    assert sorted(world.delivered) == wanted
    assert not world.queue
    assert not world.records
    assert not world.flying


events = st.lists(
    st.sampled_from(
        [
            *["store", "broker", "network", "answer"] * 4,
            *["attach"] * 3,
            "lose",
            "lose read",
            "close",
            "close read",
            "crash",
            "crash read",
        ]
    ),
    max_size=80,
)


@settings(max_examples=400)
@given(st.integers(1, 3), events)
def test_each_message_reaches_the_client_once(messages: int, events: list[str]) -> None:
    world = World(messages)
    wanted = list(world.queue)
    for event in events:
        if event.startswith("lose"):
            world.lose_link(event.endswith("read"))
        elif event.startswith(("crash", "close")):
            (world.crash if event.startswith("crash") else world.close)(event.endswith("read"))
        else:
            getattr(world, event)()
        assert len(set(world.delivered)) == len(world.delivered), "nothing twice"
    finish(world, wanted)


@settings(max_examples=200)
@given(
    st.integers(1, 3),
    st.lists(
        st.sampled_from([*["store", "broker", "network", "answer"] * 4, *["attach"] * 3, "lose", "lose read"]),
        max_size=80,
    ),
)
@example(1, ["attach", "store", "network", "answer", "store", "lose", "attach", "lose"])  # lost twice in one exchange
def test_once_too_if_the_broker_does_not_settle_and_the_gateway_lives(messages: int, events: list[str]) -> None:
    """A broker without rcv-settle-mode second (docs/engines.md): link, router or broker may be lost at any moment."""
    world = World(messages, second=False)
    wanted = list(world.queue)
    for event in events:
        if event.startswith("lose"):
            world.lose_link(event.endswith("read"))
        else:
            getattr(world, event)()
        assert len(set(world.delivered)) == len(world.delivered), "nothing twice"
    finish(world, wanted)
