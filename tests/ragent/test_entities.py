"""What routers shall have, by address type, placement and state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.model import feeds
from enmasse.model.address_types import AddressType
from enmasse.model.feeds import Placement
from enmasse.model.names import AddressName
from services.ragent import entities
from services.ragent.desired import Desired
from services.ragent.entities import (
    ADDRESS,
    AUTO_LINK,
    CONNECTOR,
    LINK_ROUTE,
    LISTENER,
    SSL_PROFILE,
    ClientListener,
    RouterWork,
    TlsFiles,
)
from services.ragent.mesh import Endpoint
from services.ragent.table import same


def placed(broker: str, state: Any, type_: Any = None) -> Placement:
    return Placement(broker=broker, state=state, type=type_)


def addresses_of(found: dict[str, Any]) -> feeds.Addresses:
    return msgspec.convert({"addresses": found}, feeds.Addresses)


def placements_of(brokers: dict[str, Any], addresses: dict[str, Any]) -> feeds.Placements:
    return msgspec.convert({"brokers": brokers, "addresses": addresses}, feeds.Placements)


ACTIVE = placed("b", "active")
DRAINING = placed("b", "draining")


@pytest.mark.parametrize(
    ("kind", "placements", "links"),
    [
        ("queue", [ACTIVE], (("b", "in"), ("b", "out"))),
        # Consumers empty the old broker first, and have the order of both; producers send to the new one.
        ("queue", [placed("c", "active", "queue"), DRAINING], (("c", "in"), ("b", "out"))),
        ("topic", [placed("c", "active", "topic"), DRAINING], (("c", "in"), ("c", "out"))),
        (None, [placed("b", "draining", "queue")], (("b", "out"),)),
    ],
)
def test_links_of_a_brokered_space_are_those_of_its_broker(
    kind: AddressType | None, placements: list[Placement], links: tuple[tuple[str, str], ...]
) -> None:
    work = entities.work_for(kind, placements, brokered=True)
    assert work is not None and work.links == links
    found = entities.of_address(AddressName("!!one/a"), work)
    assert [each.type for each in found] == [LINK_ROUTE] * len(links)
    assert [(each.type, each.name) for each in found] == entities.names_of_address(AddressName("!!one/a"), work)


def test_an_address_of_a_brokered_space_that_is_gone_is_still_emptied_by_links() -> None:
    desired = Desired(())
    brokers = {"b": {"host": "h", "port": 1}}
    name = AddressName("!!one/a")
    desired.set_addresses(addresses_of({name: {"type": "queue", "flavor": "f", "brokered": True}}))
    desired.set_placements(placements_of(brokers, {name: [{"broker": "b", "state": "active"}]}))
    assert desired.is_routed(name)
    assert {each.type for each in desired.of_address("r", name)} == {LINK_ROUTE}
    desired.set_addresses(addresses_of({}))
    desired.set_placements(placements_of(brokers, {name: [{"broker": "b", "state": "draining"}]}))
    assert [each.attributes["direction"] for each in desired.of_address("r", name)] == ["out"]
    desired.set_placements(placements_of(brokers, {}))
    desired.set_addresses(addresses_of({name: {"type": "queue", "flavor": "f"}}))
    assert not desired.is_routed(name)


@pytest.mark.parametrize(
    ("kind", "placements", "expected"),
    [
        ("anycast", [], RouterWork("anycast", ())),
        ("multicast", [ACTIVE], RouterWork("multicast", ())),
        ("queue", [], RouterWork("queue", ())),
        ("queue", [ACTIVE], RouterWork("queue", (("b", "in"), ("b", "out")))),
        ("queue", [DRAINING], RouterWork("queue", (("b", "in"),))),
        ("topic", [], RouterWork("topic", ())),
        ("topic", [ACTIVE], RouterWork("topic", (("b", "in"), ("b", "out")))),
        ("topic", [DRAINING], RouterWork("topic", (("b", "out"),))),
        # Moving between brokers: producers go to the new one, consumers get from both.
        (
            "queue",
            [placed("c", "active", "queue"), DRAINING],
            RouterWork("queue", (("c", "in"), ("c", "out"), ("b", "in"))),
        ),
        # A topic goes on where it is until another broker has everything bound; then subscribers belong there.
        ("topic", [ACTIVE, placed("c", "prepared", "topic")], RouterWork("topic", (("b", "in"), ("b", "out")))),
        ("topic", [placed("c", "prepared", "topic")], RouterWork("topic", ())),
        ("topic", [placed("c", "active", "topic"), DRAINING], RouterWork("topic", (("c", "in"), ("c", "out")))),
        # Removed: consumers may empty it, nobody can put anything in; once the placement is gone, nothing is left.
        (None, [placed("b", "draining", "queue")], RouterWork("queue", (("b", "in"),))),
        (None, [placed("b", "draining", "topic")], RouterWork("topic", (("b", "out"),))),
        (None, [DRAINING], RouterWork("queue", (("b", "in"),))),
        (None, [ACTIVE], None),
        (None, [], None),
        # Retyped while it holds messages: the old type stays, for consumers only, and the new one waits.
        ("topic", [placed("b", "draining", "queue")], RouterWork("queue", (("b", "in"),))),
        ("queue", [placed("b", "draining", "topic")], RouterWork("topic", (("b", "out"),))),
        ("anycast", [placed("b", "draining", "queue")], RouterWork("queue", (("b", "in"),))),
    ],
)
def test_a_routers_work(kind: AddressType | None, placements: list[Placement], expected: RouterWork | None) -> None:
    assert entities.work_for(kind, placements) == expected


def test_entities_of_each_type() -> None:
    def of(kind: AddressType, *placements: Placement) -> list[tuple[str, dict[str, Any]]]:
        made = entities.of_address(AddressName("a/b"), entities.work_for(kind, placements))
        return [(entity.type, entity.attributes) for entity in made]

    balanced = {"pattern": "a/b", "distribution": "balanced", "waypoint": False}
    assert of("anycast") == [(ADDRESS, balanced)]
    assert of("multicast") == [(ADDRESS, {**balanced, "distribution": "multicast"})]
    connection = "ragent-broker/b"
    assert of("queue", ACTIVE) == [
        (ADDRESS, {**balanced, "waypoint": True}),
        (AUTO_LINK, {"address": "a/b", "direction": "in", "connection": connection}),
        (AUTO_LINK, {"address": "a/b", "direction": "out", "connection": connection}),
    ]
    assert of("topic", ACTIVE) == [
        (LINK_ROUTE, {"prefix": "a/b", "direction": "in", "connection": connection}),
        (LINK_ROUTE, {"prefix": "a/b", "direction": "out", "connection": connection}),
    ]
    assert entities.connector("b", feeds.BrokerEndpoint(host="::1", port=5)).name == connection


def test_listeners_come_with_their_tls_profile() -> None:
    plain, profile, secure = entities.listeners(
        [
            ClientListener("amqp", "127.0.0.1", 5672),
            ClientListener("amqps", "127.0.0.1", 5671, TlsFiles("c.pem", "k.pem", "clients.pem")),
        ]
    )
    assert (plain.type, plain.attributes["port"]) == (LISTENER, "5672")
    assert profile.type == SSL_PROFILE
    assert profile.attributes == {"certFile": "c.pem", "privateKeyFile": "k.pem", "caCertFile": "clients.pem"}
    assert secure.attributes["sslProfile"] == profile.name
    assert secure.attributes["requireSsl"] is True


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
KINDS = st.sampled_from(["queue", "topic", "anycast", "multicast"])
PLACEMENTS = st.lists(
    st.builds(placed, NAMES, st.sampled_from(["active", "draining"]), st.sampled_from([None, "queue", "topic"])),
    max_size=3,
    unique_by=lambda p: p.broker,
)


@given(NAMES, st.none() | KINDS, PLACEMENTS)
def test_a_name_shows_what_it_belongs_to(
    name: AddressName, kind: AddressType | None, placements: list[Placement]
) -> None:
    work = entities.work_for(kind, placements)
    made = entities.of_address(name, work)
    assert [(entity.type, entity.name) for entity in made] == entities.names_of_address(name, work)
    assert len({entity.name for entity in made}) == len(made)
    for entity in made:
        owner = entities.owner(entity.name)
        assert owner is not None
        assert (owner.type, owner.subject) == (entity.type, name)
        if entity.type != ADDRESS:
            assert entity.attributes["connection"] == entities.connector_name(owner.broker)
            assert owner.broker in {p.broker for p in placements}


@pytest.mark.parametrize(
    "name", ["", "x", "ragent-", "ragent-x", "ragent-in/only", "ragent-unknown/x", "override.x", "auto"]
)
def test_names_of_others_have_no_owner(name: str) -> None:
    assert entities.owner(name) is None


ADDRESSES = st.dictionaries(st.sampled_from("abcdef"), KINDS, max_size=6)
ENTRIES = st.lists(
    st.builds(
        lambda b, s, t: {"broker": b, "state": s, **({"type": t} if t else {})},
        st.sampled_from(["b1", "b2"]),
        st.sampled_from(["active", "draining"]),
        st.sampled_from([None, "queue", "topic"]),
    ),
    max_size=2,
    unique_by=lambda entry: entry["broker"],
)
PLACED = st.dictionaries(st.sampled_from("abcdef"), ENTRIES, max_size=6)


@given(st.lists(st.tuples(ADDRESSES, PLACED), max_size=5))
def test_following_changes_gives_what_starting_anew_gives(steps: list[tuple[dict[str, str], dict[str, Any]]]) -> None:
    """What the changed addresses are to have, and what the others had before, is the same set of entities."""
    desired = Desired([])
    there: dict[str, set[str]] = {}
    for types, placed in steps:
        brokers = {e["broker"]: {"host": "h", "port": 1} for entries in placed.values() for e in entries}
        addresses = addresses_of({name: {"type": type_} for name, type_ in types.items()})
        placements = placements_of(brokers, placed)
        changed = desired.set_addresses(addresses)
        changed += desired.set_placements(placements)[0]
        for name in changed:
            there[name] = {entity.name for entity in desired.of_address("r", name)}
        anew = Desired([])
        anew.set_addresses(addresses)
        anew.set_placements(placements)
        made = [entity for name in anew.known_names() for entity in anew.of_address("r", name)]
        assert set().union(*there.values()) == {entity.name for entity in made}
        assert all(anew.expected("r", entity.type, entity.name) == entity for entity in made)


def test_an_unchanged_address_is_not_touched() -> None:
    desired = Desired([])
    desired.set_addresses(addresses_of({"a": {"type": "queue"}, "b": {"type": "anycast"}}))
    lies = {"a": [{"broker": "x", "state": "active"}]}
    desired.set_placements(placements_of({"x": {"host": "h", "port": 1}}, lies))
    assert desired.set_addresses(addresses_of({"a": {"type": "queue"}, "b": {"type": "multicast"}})) == ["b"]
    changed, moved = desired.set_placements(placements_of({"x": {"host": "h", "port": 2}}, lies))
    assert (changed, moved) == ([], {"x"})
    connector = desired.expected("r", CONNECTOR, "ragent-broker/x")
    assert connector is not None
    assert connector.attributes["port"] == "2"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (feeds.Addresses, {}),
        (feeds.Addresses, {"addresses": []}),
        (feeds.Addresses, {"addresses": {"a": {}}}),
        (feeds.Addresses, {"addresses": {"a": {"type": "cube"}}}),
        (feeds.Addresses, {"addresses": {"a": None}}),
        (feeds.Flavors, {}),
        (feeds.Placements, {}),
        (feeds.Placements, {"brokers": {}, "addresses": []}),
        (feeds.Placements, {"brokers": {"b": {}}, "addresses": {}}),
        (feeds.Placements, {"brokers": {}, "addresses": {"a": [None]}}),
        (feeds.Placements, {"brokers": {}, "addresses": {"a": [{"broker": "b", "state": "asleep"}]}}),
    ],
)
def test_a_body_that_is_no_snapshot_is_refused(kind: type[Any], body: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"addresses|flavors|brokers|Object missing"):
        msgspec.convert(body, kind)


def test_routers_authenticate_at_brokers_that_want_it() -> None:
    brokers = {"a": feeds.BrokerEndpoint(host="h", port=1, scram=True), "b": feeds.BrokerEndpoint(host="h", port=2)}
    desired = Desired(())
    desired.set_placements(feeds.Placements(revision=1, brokers=brokers, addresses={}))
    connectors = desired.connectors("r1")
    assert [each.attributes.get("saslMechanisms") for each in connectors] == ["SCRAM-SHA-256", None]
    for each in connectors:
        assert desired.expected("r1", each.type, each.name) == each


def test_a_connector_is_made_again_to_authenticate() -> None:
    endpoints = (feeds.BrokerEndpoint(host="h", port=1, scram=scram) for scram in (False, True))
    before, after = (entities.connector("b", each) for each in endpoints)
    row = {"name": before.name, **dict(zip(entities.COMPARED[before.type], before.row(), strict=True))}
    assert same(row, before) and not same(row, after)


def test_a_router_proves_itself_to_another_one_as_its_listener_asks() -> None:
    assert "saslMechanisms" not in entities.neighbour("a", Endpoint("h", "1")).attributes
    assert entities.neighbour("a", Endpoint("h", "1", scram=True)).attributes["saslMechanisms"] == "SCRAM-SHA-256"


def test_a_listener_that_routers_share() -> None:
    listener = entities.ClientListener("amqp", "127.0.0.1", 5672, shared=True)
    assert entities.listeners([listener])[0].attributes["shared"] is True
    assert "shared" not in entities.listeners([listener._replace(shared=False)])[0].attributes


def test_a_router_with_listeners_of_its_own_has_none_of_those_of_all() -> None:
    of_all = entities.ClientListener("amqp", "127.0.0.1", 5672, shared=True)
    own = entities.ClientListener("amqp", "127.0.0.1", 7000, router="router-7", space="one", shared=True)
    desired = Desired([of_all, own])
    (first,), (last,) = desired.listeners("router-0"), desired.listeners("router-7")
    assert (first.attributes["port"], last.attributes["port"], last.attributes["space"]) == ("5672", "7000", "one")
    assert [desired.space_of(router) for router in ("router-0", "router-7")] == [None, "one"]


def test_listeners_of_the_routers_of_a_statefulset() -> None:
    """A router that none of them names has none: it may be of a space that is not known yet, or no longer."""
    of_all = entities.ClientListener("amqp", "0.0.0.0", 5672, routers="release-router")
    own = entities.ClientListener("amqp-1", "0.0.0.0", 5672, routers="release-router-1", space="1")
    desired = Desired([of_all, own])
    wanted = {
        "release-router-1": ["ragent-listener/amqp"],
        "release-router-1-0": ["ragent-listener/amqp-1"],
        "release-router-1-12": ["ragent-listener/amqp-1"],
        "release-router-2-0": [],
        "release-router": [],
        "-0": [],
    }
    assert {router: [each.name for each in desired.listeners(router)] for router in wanted} == wanted
    assert [desired.space_of(router) for router in wanted] == [None, "1", "1", None, None, None]
    assert desired.has_listeners and not desired.shares_listeners
