"""One router's part in the mesh, seen by its neighbours: what it sends, and what it concludes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from services.router.mesh.control_messages import (
    EVERY_ROUTER,
    NEIGHBOUR,
    AddressRequest,
    AddressUpdate,
    Advertisement,
    Announced,
    ControlMessage,
    Envelope,
    Hello,
    LinkStateRequest,
    LinkStateUpdate,
    Treatment,
)
from services.router.mesh.mesh_engine import (
    Action,
    AddressGained,
    AddressLost,
    DropLink,
    MeshEngine,
    MeshEvent,
    MeshNotice,
    RefuseLink,
    SendControl,
)

BALANCED = Treatment.BALANCED


class Mesh:
    """The engine `me`, with neighbours a, b … on the links 1, 2 …"""

    def __init__(self, *neighbours: str) -> None:
        self.now = 10.0
        self.engine = MeshEngine("me", 50, self.now)
        self.actions: list[Action] = []
        for link, name in enumerate(neighbours, start=1):
            self.do(self.engine.link_opened(link, 1, self.now))
            self.hello(link, name)
        self.tick()
        for link, name in enumerate(neighbours, start=1):
            self.take(link, name, LinkStateUpdate(name, 7, 1, {"me": 1}), "me")
        self.tick()
        self.actions.clear()

    def do(self, actions: Iterable[Action]) -> None:
        self.actions += actions

    def hello(self, link: int, name: str, instance: int = 7) -> None:
        self.take(link, name, Hello(name, instance, ("me",)), NEIGHBOUR)

    def take(self, link: int, by: str, message: ControlMessage, to: str = EVERY_ROUTER) -> None:
        trace = (message.router,) if by == message.router else (message.router, by)
        self.do(self.engine.take(link, Envelope(to, message, trace), self.now))

    def tick(self, seconds: float = 0.25) -> None:
        self.now += seconds
        self.do(self.engine.tick(self.now))

    def sent(self, kind: type[ControlMessage]) -> list[tuple[int, Envelope]]:
        """The messages of a kind that were sent since the last call of `clear`."""
        return [
            (each.link, each.message)
            for each in self.actions
            if isinstance(each, SendControl) and isinstance(each.message.message, kind)
        ]

    def of(self, kind: type[Action]) -> list[Action]:
        return [each for each in self.actions if isinstance(each, kind)]

    def events(self) -> list[MeshEvent]:
        return [each.event for each in self.actions if isinstance(each, MeshNotice)]


def test_hello_goes_out_at_once_and_each_half_second() -> None:
    engine = MeshEngine("me", 50, 0.0)
    (first,) = engine.link_opened(4, 1, 0.0)
    assert first == SendControl(4, Envelope(NEIGHBOUR, Hello("me", 50), ("me",)))
    hellos = [action for n in range(1, 13) for action in engine.tick(n * 0.25)]
    assert hellos == [first] * 6


def test_hello_lists_the_router_that_is_heard() -> None:
    mesh = Mesh("a")
    mesh.tick(1.0)
    assert mesh.sent(Hello) == [(1, Envelope(NEIGHBOUR, Hello("me", 50, ("a",)), ("me",)))]


def test_new_neighbour_gets_link_states_and_all_get_the_own_one_before_its_number() -> None:
    mesh = Mesh("a")
    mesh.do(mesh.engine.link_opened(2, 3, mesh.now))
    mesh.hello(2, "b")
    mesh.tick()
    own = LinkStateUpdate("me", 50, 2, {"a": 1, "b": 3})
    states = mesh.sent(LinkStateUpdate)
    assert (2, Envelope(EVERY_ROUTER, LinkStateUpdate("a", 7, 1, {"me": 1}), ("a", "me"))) in states
    assert [(link, sent.message) for link, sent in states if sent.trace == ("me",)] == [(1, own), (2, own)]
    assert {link for link, _ in mesh.sent(Advertisement)} == {1, 2}
    kinds = [type(each.message.message) for each in mesh.actions if isinstance(each, SendControl)]
    assert kinds.index(LinkStateUpdate) < kinds.index(Advertisement)
    assert MeshEvent.NEIGHBOUR_FOUND in mesh.events()


def test_addresses_are_announced_before_the_advertisement_of_their_number() -> None:
    mesh = Mesh("a")
    mesh.engine.add_address("M0x", BALANCED)
    mesh.tick()
    messages = [each.message.message for each in mesh.actions if isinstance(each, SendControl)]
    messages = [each for each in messages if not isinstance(each, Hello)]
    assert messages == [AddressUpdate("me", 1, (Announced("M0x", BALANCED),)), Advertisement("me", 50, 1, 1)]


def test_all_addresses_are_sent_on_request_unless_they_are_known() -> None:
    mesh = Mesh("a")
    mesh.engine.add_address("M0x", BALANCED)
    mesh.tick()
    mesh.actions.clear()
    mesh.take(1, "a", AddressRequest("a", 1), "me")
    assert mesh.actions == []
    mesh.take(1, "a", AddressRequest("a", 0), "me")
    update = AddressUpdate("me", 1, (Announced("M0x", BALANCED),), absolute=True)
    assert mesh.actions == [SendControl(1, Envelope("a", update, ("me",)))]


def test_missing_updates_are_requested_and_requested_again() -> None:
    mesh = Mesh("a")
    mesh.take(1, "a", AddressUpdate("a", 3, (Announced("M0x"),)))
    request = SendControl(1, Envelope("a", AddressRequest("me", 0), ("me",)))
    assert mesh.actions == [request]
    mesh.tick(0.5)
    assert mesh.sent(AddressRequest) == [(1, request.message)]
    mesh.tick(0.6)
    assert len(mesh.sent(AddressRequest)) == 2
    mesh.take(1, "a", AddressUpdate("a", 3, (Announced("M0x", BALANCED),), absolute=True), "me")
    assert mesh.of(AddressGained) == [AddressGained("M0x", "a", BALANCED)]


def test_newer_link_state_is_requested_where_its_advertisement_comes_from() -> None:
    mesh = Mesh("a")
    mesh.take(1, "a", Advertisement("far", 7, 4, 0))
    assert mesh.sent(LinkStateRequest) == [(1, Envelope("far", LinkStateRequest("me"), ("me",)))]
    mesh.take(1, "a", LinkStateUpdate("far", 7, 4, {"a": 1}), "me")
    mesh.take(1, "a", LinkStateUpdate("a", 7, 2, {"me": 1, "far": 1}))
    mesh.tick()
    assert mesh.engine.topology.next_hops == {"a": "a", "far": "a"}
    assert mesh.engine.next_link("far") == 1


def test_addresses_count_while_their_router_is_reachable() -> None:
    mesh = Mesh("a")
    mesh.take(1, "a", AddressUpdate("a", 1, (Announced("M0x", BALANCED),)))
    assert mesh.of(AddressGained) == [AddressGained("M0x", "a", BALANCED)]
    assert mesh.engine.addresses_of("a") == {"M0x": BALANCED}
    mesh.do(mesh.engine.link_closed(1, mesh.now))
    assert mesh.of(AddressLost) == [AddressLost("M0x", "a")]
    assert mesh.engine.topology.next_hops == {}
    mesh.do(mesh.engine.link_opened(3, 1, mesh.now))
    mesh.hello(3, "a")
    mesh.tick()
    assert len(mesh.of(AddressGained)) == 2
    mesh.take(3, "a", AddressUpdate("a", 2, (), ("M0x",)))
    assert len(mesh.of(AddressLost)) == 2


def test_restarted_router_has_no_addresses_until_it_states_them() -> None:
    mesh = Mesh("a")
    mesh.take(1, "a", AddressUpdate("a", 1, (Announced("M0x", BALANCED),)))
    mesh.take(1, "a", Advertisement("a", 8, 1, 0))
    assert mesh.of(AddressLost) == [AddressLost("M0x", "a")]
    assert MeshEvent.ROUTER_RESTARTED in mesh.events()
    mesh.take(1, "a", AddressUpdate("a", 1, (Announced("M0y", BALANCED),)))
    mesh.take(1, "a", LinkStateUpdate("a", 8, 1, {"me": 1}), "me")
    mesh.tick()
    assert mesh.engine.addresses_of("a") == {"M0y": BALANCED}


def test_connection_to_a_silent_neighbour_is_closed() -> None:
    mesh = Mesh("a", "b")
    for _ in range(13):
        mesh.hello(2, "b")
        mesh.tick()
    assert mesh.engine.topology.next_hops == {"b": "b"}
    assert [each.link for each in mesh.of(DropLink) if isinstance(each, DropLink)] == [1]
    assert mesh.events() == [MeshEvent.NEIGHBOUR_LOST]
    assert {link for link, _ in mesh.sent(Hello)[-2:]} == {2}


def test_neighbours_are_not_silent_while_this_router_is_stopped() -> None:
    """What they have sent is in the sockets: HELLOs may come behind much else."""
    mesh = Mesh("a")
    for _ in range(5):
        mesh.tick(60.0)
        mesh.engine.arrived(1, mesh.now)
    mesh.tick(60.0)
    mesh.tick()
    assert mesh.of(DropLink) == []
    assert mesh.engine.topology.next_hops == {"a": "a"}


@pytest.mark.parametrize("in_order", [True, False])
def test_a_neighbour_whose_connection_ends_in_order_has_left_and_is_not_lost(in_order: bool) -> None:
    mesh = Mesh("a")
    mesh.do(mesh.engine.link_closed(1, mesh.now, in_order=in_order))
    assert (MeshEvent.NEIGHBOUR_LEFT in mesh.events()) == in_order != (MeshEvent.NEIGHBOUR_LOST in mesh.events())


def test_advertisement_goes_on_by_all_ways_but_once() -> None:
    mesh = Mesh("a", "b", "c")
    newer, older = Advertisement("far", 7, 4, 0), Advertisement("far", 7, 3, 0)
    for message in (newer, older, newer, older):
        mesh.take(1, "a", message)
        mesh.take(2, "b", message)
    passed = Envelope(EVERY_ROUTER, newer, ("far", "a", "me"))
    assert mesh.sent(Advertisement) == [(2, passed), (3, passed)]


def test_link_state_to_all_goes_on_if_it_is_new() -> None:
    mesh = Mesh("a", "b")
    for number in (4, 3, 4):
        mesh.take(1, "a", LinkStateUpdate("far", 7, number, {"a": 1}))
    assert [(link, sent.message) for link, sent in mesh.sent(LinkStateUpdate)] == [
        (2, LinkStateUpdate("far", 7, 4, {"a": 1}))
    ]


def test_addresses_go_on_along_the_tree_of_their_router() -> None:
    mesh = Mesh("a", "b", "c")
    mesh.take(1, "a", LinkStateUpdate("a", 7, 2, {"me": 1, "b": 1}))
    mesh.take(2, "b", LinkStateUpdate("b", 7, 2, {"me": 1, "a": 1}))
    mesh.tick()
    mesh.actions.clear()
    mesh.take(1, "a", AddressUpdate("a", 1, (Announced("M0x"),)))
    assert [link for link, _ in mesh.sent(AddressUpdate)] == [3]


def test_message_for_another_router_goes_on_to_it() -> None:
    mesh = Mesh("a", "b")
    mesh.take(1, "a", LinkStateRequest("a"), "b")
    assert mesh.actions == [SendControl(2, Envelope("b", LinkStateRequest("a"), ("a", "me")))]


@pytest.mark.parametrize("to", ["b", "unknown", EVERY_ROUTER])
def test_message_that_goes_round_ends(to: str) -> None:
    mesh = Mesh("a", "b")
    envelope = Envelope(to, AddressUpdate("b", 1), ("b", "me", "a"))
    mesh.do(mesh.engine.take(1, envelope, mesh.now))
    assert mesh.actions == []


def test_message_does_not_go_back_where_it_was() -> None:
    mesh = Mesh("a", "b")
    mesh.do(mesh.engine.take(1, Envelope("b", LinkStateRequest("far"), ("far", "b", "a")), mesh.now))
    assert mesh.sent(LinkStateRequest) == []


def test_hello_goes_one_hop_only() -> None:
    mesh = Mesh("a")
    mesh.do(mesh.engine.take(1, Envelope(NEIGHBOUR, Hello("far", 7, ("me",)), ("far", "a")), mesh.now))
    assert mesh.actions == []
    assert mesh.engine.routers.get("far") is None


def test_malformed_messages_are_noted_once_for_each_connection() -> None:
    mesh = Mesh("a", "b")
    for link in (1, 1, 2):
        mesh.do(mesh.engine.received(link, b"\x00\x53\x77", mesh.now))
    assert [each.router for each in mesh.actions if isinstance(each, MeshNotice)] == ["a", "b"]
    assert mesh.events() == [MeshEvent.MALFORMED] * 2


def test_message_that_its_neighbour_did_not_pass_on_has_no_effect() -> None:
    mesh = Mesh("a", "b")
    mesh.do(mesh.engine.take(1, Envelope(EVERY_ROUTER, Advertisement("far", 7, 1, 1), ("far", "b")), mesh.now))
    assert mesh.events() == [MeshEvent.MALFORMED]
    assert mesh.engine.routers.get("far") is None


def test_newer_version_is_noted_once() -> None:
    payload = (
        Envelope(EVERY_ROUTER, LinkStateRequest("a"), ("a",))
        .encode()
        .replace(b"\xa1\x02pv\x55\x01", b"\xa1\x02pv\x55\x02")
    )
    mesh = Mesh("a")
    for _ in range(3):
        mesh.do(mesh.engine.received(1, payload, mesh.now))
    assert mesh.events() == [MeshEvent.NEWER_VERSION]


def test_second_router_with_the_same_id_is_refused() -> None:
    mesh = Mesh("a")
    mesh.do(mesh.engine.link_opened(2, 1, mesh.now))
    mesh.hello(2, "a", instance=8)
    assert mesh.events() == [MeshEvent.DUPLICATE_ID]
    assert [each.link for each in mesh.actions if isinstance(each, RefuseLink)] == [2]
    mesh.tick()
    assert mesh.engine.next_link("a") == 1


def test_distant_router_with_the_own_id_is_noted() -> None:
    mesh = Mesh("a")
    for _ in range(2):
        mesh.take(1, "a", Advertisement("me", 60, 1, 1))
    assert mesh.events() == [MeshEvent.DUPLICATE_ID]
    assert mesh.engine.routers.get("me") is None


def test_more_than_128_routers_are_ignored() -> None:
    mesh = Mesh("a")
    for number in range(200):
        mesh.take(1, "a", LinkStateRequest(f"r{number}"), "me")
    assert len(mesh.engine.routers) == 127
    assert set(mesh.events()) == {MeshEvent.TOO_MANY}
    mesh.do(mesh.engine.link_opened(2, 1, mesh.now))
    mesh.hello(2, "one more")
    assert [each.link for each in mesh.actions if isinstance(each, RefuseLink)] == [2]


def test_advertisements_are_frequent_only_after_a_change() -> None:
    mesh = Mesh("a")

    def in_seconds(seconds: int) -> int:
        mesh.actions.clear()
        for _ in range(4 * seconds):
            mesh.hello(1, "a")
            mesh.take(1, "a", Advertisement("a", 7, 1, 0))
            mesh.tick()
        return len(mesh.sent(Advertisement))

    assert in_seconds(10) == 2
    in_seconds(30)
    assert in_seconds(60) == 2


def test_silent_router_is_forgotten_after_a_minute() -> None:
    mesh = Mesh("a")
    mesh.take(1, "a", LinkStateUpdate("a", 7, 2, {"me": 1, "far": 1}))
    mesh.take(1, "a", LinkStateUpdate("far", 7, 1, {"a": 1}), "me")
    mesh.tick()
    mesh.take(1, "a", AddressUpdate("far", 1, (Announced("M0x"),)))
    for _ in range(61):
        mesh.hello(1, "a")
        mesh.take(1, "a", Advertisement("a", 7, 2, 0))
        mesh.tick(1.0)
    assert mesh.of(AddressLost) == [AddressLost("M0x", "far")]
