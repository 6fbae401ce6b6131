"""Connections of a router to a broker by address space."""

from __future__ import annotations

import pytest

from enmasse.amqp.codec.performatives import Accepted
from enmasse.model.names import DEFAULT_SPACE
from services.router.routing import space_connections
from services.router.routing.space_connections import SpaceConnections
from tests.router.spaces import NAMES, World
from tests.router.world import Clock

ALL = ("default", "one", "two")


class Fake:
    """A further connection."""

    def __init__(self, space: str) -> None:
        self.space = space
        self.links = 0
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


class Some:
    """Connections to a broker that keeps spaces apart."""

    def __init__(self, *wanted: str) -> None:
        self.clock = Clock()
        self.made: list[Fake] = []
        self.spaces = SpaceConnections(self._dial, self.clock)
        self.spaces.open(True, wanted)

    def _dial(self, space: str) -> Fake:
        self.made.append(Fake(space))
        return self.made[-1]

    def later(self) -> None:
        due, self.clock.later = self.clock.later, []
        for what in due:
            what()


@pytest.mark.parametrize("name", ["queue", "news"])
@pytest.mark.parametrize("relayed", [False, True], ids=["link", "relay"])
def test_what_a_space_has_under_way_lies_on_a_connection_of_its_own(name: str, relayed: bool) -> None:
    """To the broker and from it: the others' bytes are none of these."""
    world = World(*ALL, apart=True)
    clients = {space: world.client(space) for space in ALL}
    for client in clients.values():
        client.receiver(name)
    for space, client in clients.items():
        before = {each: (d.record.amqp.bytes_in, d.record.amqp.bytes_out) for each, d in world.dialled.items()}
        sender = client.sender(None if relayed else name)
        assert client.send(sender, space, to=name) == Accepted()
        after = {each: (d.record.amqp.bytes_in, d.record.amqp.bytes_out) for each, d in world.dialled.items()}
        assert {each for each in after if after[each] != before[each]} == {space}
    assert [client.take() for client in clients.values()] == [[space] for space in ALL]


def test_every_link_of_a_space_to_the_broker_is_on_its_connection() -> None:
    world = World(*ALL, apart=True)
    for space in ALL:
        client = world.client(space)
        for name in NAMES:
            client.receiver(name)
            client.sender(name)
    assert set(world.dialled) == set(ALL)
    for space, dialled in world.dialled.items():
        prefix = "" if space == DEFAULT_SPACE else f"!!{space}/"
        links = [record.link for record in dialled.record.links.values()]
        names = [
            (link.source if record.direction == "in" else link.target).address
            for record, link in zip(dialled.record.links.values(), links, strict=True)
        ]
        assert names, space
        assert all(name.startswith(prefix) and name.count("!!") == bool(prefix) for name in names), (space, names)


def test_the_broker_takes_turns_by_the_space_of_a_connection() -> None:
    world = World(*ALL, apart=True)
    tenants = {space: world.tenant_at_broker(space) for space in ALL}
    assert tenants == {"default": "", "one": "one", "two": "two"}
    assert world.core.broker.turn == 100


def test_a_broker_without_spaces_has_one_connection() -> None:
    world = World(*ALL, apart=True, knows_spaces=False)
    assert set(world.dialled) == {DEFAULT_SPACE}
    assert world.core.broker.turn == 500
    for space in ALL:
        client = world.client(space)
        client.receiver("queue")
        assert client.send(client.sender("queue"), space) == Accepted()
        assert client.take() == [space]


def test_a_temporary_queue_is_made_on_the_connection_of_the_space() -> None:
    world = World(*ALL, apart=True)
    for space in ALL:
        assert world.router.brokers("" if space == DEFAULT_SPACE else space) == [world.dialled[space].record]
    assert world.router.brokers("unknown") == [world.dialled[DEFAULT_SPACE].record]


def test_a_space_without_anything_at_the_broker_has_no_connection_to_it() -> None:
    world = World("one", apart=True)
    assert set(world.dialled) == {DEFAULT_SPACE, "one"}
    for name in list(world.router.auto_links.by_name):
        world.router.auto_links.remove(world.router.auto_links.by_name[name])
    for name in list(world.router.link_routes.by_name):
        assert not world.dialled["one"].stopped
        world.router.remove_link_route(world.router.link_routes.by_name[name])
    world.run()
    assert world.spaces is not None
    assert world.spaces.of("one") == DEFAULT_SPACE
    for what in world.clock.later:
        what()
    assert world.dialled["one"].stopped


def test_many_spaces_share_a_bounded_number_of_connections() -> None:
    some = Some(*(f"s{n}" for n in range(1000)))
    assert len(some.made) == space_connections.MOST
    shares = [some.spaces.of(f"s{n}") for n in range(1000)]
    assert max(shares.count(each.space) for each in some.made) <= -(-1000 // space_connections.MOST)


def test_a_connection_stays_while_it_has_links_or_its_space_is_back() -> None:
    some = Some("one", "two")
    one, two = some.made
    one.links = 1
    for space in ("one", "two"):
        some.spaces.leave(space)
    some.spaces.carry("two")
    some.later()
    assert not one.stopped
    assert not two.stopped
    assert some.spaces.of("two") == "two"
    one.links = 0
    some.later()
    assert one.stopped
    assert not some.clock.later


def test_the_further_connections_outlive_the_first_one_and_end_with_the_connector() -> None:
    some = Some("one")
    some.spaces.open(True, ["one", "two"])
    assert [each.space for each in some.made] == ["one", "two"]
    some.spaces.open(False, ["one"])  # another broker has its place, which knows no spaces
    assert all(each.stopped for each in some.made)
    assert some.spaces.of("one") == DEFAULT_SPACE
