"""QoS 2 from a shared subscription (v5 4.8.2): two members, each of whom may lose its link, its gateway, its client and
its session at any moment. Queue, connections and clients are models; the records are the service's own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from enmasse.model.sessions import Outgoing, PacketChange
from services.mqtt_gateway.amqp.exchanges import Exchanges
from services.mqtt_gateway.amqp.session_service import Op, PacketIdOutcome
from services.mqtt_gateway.amqp.sources import SessionSource
from services.mqtt_gateway.interfaces import Delivery
from services.subserv.sessions.qos2_owners import Qos2Owners
from services.subserv.sessions.sessions import PacketTable
from tests.mqtt_gateway.exchange_model import Link, MqttHalf

SOURCE = "$sub/b/share.g.1"


class Queue:
    """Messages in their order; each is free, or with a member."""

    def __init__(self, messages: list[str]) -> None:
        self.messages: dict[str, Link | None] = dict.fromkeys(messages)

    def give_back(self, link: Link) -> None:
        for message, holder in self.messages.items():
            if holder is link:
                self.messages[message] = None


class Member(MqttHalf):
    def __init__(self, name: str, queue: Queue, service: Qos2Owners, room: bool) -> None:
        self.name, self.queue, self.service, self.room = name, queue, service, room
        self.records = PacketTable(service)
        self.messages: dict[int, bytes] = {}  # held, by packet id
        self.delivered: list[str] = []
        self.begun: set[str] = set()  # sent to the client, by the session that there is
        self.start()

    def start(self) -> None:
        """The client connects."""
        sent = [
            Outgoing(each.pid, 2, each.identity, SOURCE, each.state, self.messages.get(each.pid, b""))
            for each in self.records.messages()
        ]
        self.exchanges = Exchanges(cast(Any, self), sent)
        self.exchanges.start(self)
        self.flying: dict[int, Delivery | None] = {each.pid: None for each in sent}
        self.pending: list[tuple[PacketChange, Callable[[PacketIdOutcome], None] | None]] = []
        self.link: Link | None = None
        self.client: set[int] = getattr(self, "client", set())
        self.to_client = [("pubrel", each.pid, "") for each in sent if each.state == "released"]
        self.from_client: list[tuple[str, int]] = []
        self.known: dict[str, int] = {}
        for each in sent:
            if each.state == "published":
                self.known[each.identity or ""] = each.pid
                if each.message:
                    delivery = Delivery("t", b"", 2, identity=each.identity, source=SOURCE, handle=(None, None, 0, b""))
                    self.exchanges.hold(delivery, each.pid)

    # what happens

    def attach(self) -> None:
        if self.link is None:
            self.link = Link(self, SOURCE)
        link = self.link
        for message, holder in self.queue.messages.items():
            if holder is None and len(link.carried) < 50:
                self.queue.messages[message] = link
                number = len(link.carried)
                link.carried[number] = message
                delivery = Delivery(
                    "t", b"", 2, identity=message, source=SOURCE, handle=(link, link, number, message.encode())
                )
                self.exchanges.arrived(delivery)
                return

    def change(
        self,
        op: Op,
        packet_id: int,
        key: str | None,
        source: str,
        done: Callable[[PacketIdOutcome], None] | None,
        message: bytes = b"",
    ) -> None:
        self.pending.append((PacketChange(self.name, 1, op, packet_id, key, source, message), done))

    def late(self, packet_id: int) -> None:
        self.pending = [
            (structs.replace(change, late=True) if (change.op, change.pid) == ("out", packet_id) else change, done)
            for change, done in self.pending
        ]

    def store(self) -> None:
        if self.pending:
            change, done = self.pending.pop(0)
            verdict = self.stored(change)
            if done is not None:
                done(verdict)

    def stored(self, change: PacketChange) -> PacketIdOutcome:
        verdict = PacketIdOutcome.DONE
        if change.op == "out":
            if self.service.is_taken(self.name, SOURCE, change.key):
                return PacketIdOutcome.TAKEN
            if change.late:
                return PacketIdOutcome.LATE  # nothing is stored twice here
            if not self.room:
                verdict = PacketIdOutcome.LEFT
                change = PacketChange(self.name, 1, "out", change.pid, change.key, SOURCE)
            else:
                self.messages[change.pid] = change.message
        else:
            self.messages.pop(change.pid, None)
        self.records.change(self.name, change, [])
        return verdict

    def broker(self) -> None:
        link = self.link
        if link is not None and link.accepted:
            number = link.accepted.pop(0)
            del self.queue.messages[link.carried[number]]
            self.exchanges.settled(SOURCE, [number])

    def network(self) -> None:
        if not self.to_client:
            return
        kind, pid, message = self.to_client.pop(0)
        if kind == "publish":
            self.begun.add(message)
            if pid not in self.client:
                self.client.add(pid)
                self.delivered.append(message)
            self.from_client.append(("pubrec", pid))
        else:
            self.client.discard(pid)
            self.from_client.append(("pubcomp", pid))

    def answer(self) -> None:
        if not self.from_client:
            return
        kind, pid = self.from_client.pop(0)
        delivery = self.flying.get(pid)
        if kind == "pubrec":
            assert delivery is not None
            self.exchanges.received(delivery, pid)
        elif pid in self.flying:
            self.exchanges.complete(pid, delivery)

    def serve(self) -> None:
        """All but the broker works for a while."""
        for _ in range(3):
            self.store()
            self.network()
            self.answer()

    def lose(self, read: bool) -> None:
        link, self.link = self.link, None
        if link is not None:
            for number in link.accepted if read else ():
                del self.queue.messages[link.carried[number]]
            self.queue.give_back(link)
            self.exchanges.lost(SOURCE)

    def close(self, read: bool) -> None:
        for change, _ in self.pending:
            self.stored(change)
        for each in self.exchanges.completed():
            self.records.left(self.name, each, [])
            self.messages.pop(each.pid, None)
        self.lose(read)
        self.start()

    def crash(self, read: bool) -> None:
        self.lose(read)
        for change, _ in self.pending if read else ():
            self.stored(change)
        while read and self.to_client:
            self.network()
        self.start()

    def end(self, read: bool) -> None:
        """The session ends, and another begins."""
        self.close(read)
        self.service.over(self.name, self.records.owned())
        self.records = PacketTable(self.service)
        self.messages.clear()
        self.client.clear()
        self.start()


def test_what_is_being_stored_when_the_session_leaves_the_queue_may_be_anothers() -> None:
    """An UNSUBSCRIBE, or another type of the address: the message goes back to the queue."""
    marked: list[int] = []

    class Rig:
        """Packet ids that are never stored, and the client."""

        late = staticmethod(marked.append)

        def change(self, *_: Any) -> None: ...

        def deliver(self, delivery: Delivery) -> None:
            exchanges.assign(delivery, 7)

        def unsettled(self) -> list[Delivery]:
            return []

    exchanges = Exchanges(cast(Any, Rig()), [])
    exchanges.start(cast(Any, Rig()))
    unused = cast(Any, None)
    source = SessionSource(unused, exchanges, unused, "queue", window=1, v5=True, failed=unused)
    source.link = link = cast(Any, SimpleNamespace(detached=True))
    exchanges.arrived(Delivery("queue", b"", 2, identity="m", source="queue", handle=(source, link, 1, b"m")))
    assert not marked
    source.leave()
    assert marked == [7]


EVENTS = ["store", "network", "answer"] * 2 + ["attach", "serve"] * 4 + ["lose", "close", "crash", "broker"] * 2
events = st.lists(st.tuples(st.integers(0, 1), st.sampled_from(EVENTS), st.booleans()), max_size=80)
endings = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([*EVENTS, "end"]), st.booleans()), max_size=80)


class World:
    def __init__(self, messages: int, room: bool = True) -> None:
        self.wanted = [f"{n:016x}" for n in range(messages)]
        self.queue, self.service = Queue(list(self.wanted)), Qos2Owners()
        self.members = [Member(name, self.queue, self.service, room) for name in "ab"]

    def happen(self, who: int, event: str, read: bool) -> None:
        member = self.members[who]
        if event in ("lose", "close", "crash", "end"):
            getattr(member, event)(read)
        else:
            getattr(member, event)()

    def finish(self) -> None:
        for _ in range(80):
            for event in ("attach", "store", "network", "answer", "broker"):
                for who in (0, 1):
                    self.happen(who, event, False)

    @property
    def delivered(self) -> list[str]:
        return [message for member in self.members for message in member.delivered]


LATE = [(0, "attach"), (0, "lose"), (1, "attach"), (1, "serve"), (1, "broker"), (1, "store")]
"""A member completes a message before the service learns that another one has begun it and lost its link."""


@settings(max_examples=400)
@given(st.integers(1, 3), events)
@example(1, [(who, event, False) for who, event in LATE])
def test_each_message_reaches_one_member_once(messages: int, events: list[tuple[int, str, bool]]) -> None:
    world = World(messages)
    for event in events:
        world.happen(*event)
        assert len(set(world.delivered)) == len(world.delivered), "nothing twice"
    world.finish()
    assert sorted(world.delivered) == world.wanted
    assert not world.queue.messages and not world.service.owners
    assert not any(member.flying or len(member.records) or member.messages for member in world.members)


@settings(max_examples=400)
@given(st.integers(1, 3), endings)
@example(1, [(who, event, False) for who, event in LATE])
def test_what_was_sent_to_a_member_whose_session_ends_goes_to_nobody_else(
    messages: int, events: list[tuple[int, str, bool]]
) -> None:
    world = World(messages)
    for event in events:
        world.happen(*event)
        assert len(set(world.delivered)) == len(world.delivered), "nothing twice"
    world.finish()
    assert len(set(world.delivered)) == len(world.delivered)
    assert not world.queue.messages and not world.service.owners


@settings(max_examples=200)
@given(st.integers(1, 3), events)
def test_without_room_each_message_reaches_the_group(messages: int, events: list[tuple[int, str, bool]]) -> None:
    """It stays with the broker until PUBREC: a member that is lost before may have it, and another one gets it."""
    world = World(messages, room=False)
    for event in events:
        world.happen(*event)
        for member in world.members:
            assert len(set(member.delivered)) == len(member.delivered), "no member twice"
    world.finish()
    assert sorted(set(world.delivered)) == world.wanted
    assert not world.queue.messages
