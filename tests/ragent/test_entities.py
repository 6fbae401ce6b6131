"""What routers shall have, by address type, placement and state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ragent import entities
from services.ragent.desired import Desired
from services.ragent.entities import (
    ADDRESS,
    AUTO_LINK,
    CONNECTOR,
    LINK_ROUTE,
    LISTENER,
    SSL_PROFILE,
    Carried,
    Placement,
)

ACTIVE = Placement("b", False, None)
DRAINING = Placement("b", True, None)


@pytest.mark.parametrize(
    ("kind", "placements", "expected"),
    [
        ("anycast", [], Carried("anycast", ())),
        ("multicast", [ACTIVE], Carried("multicast", ())),
        ("queue", [], Carried("queue", ())),
        ("queue", [ACTIVE], Carried("queue", (("b", "in"), ("b", "out")))),
        ("queue", [DRAINING], Carried("queue", (("b", "in"),))),
        ("topic", [], Carried("topic", ())),
        ("topic", [ACTIVE], Carried("topic", (("b", "in"), ("b", "out")))),
        ("topic", [DRAINING], Carried("topic", (("b", "out"),))),
        # Moving between brokers: producers go to the new one, consumers get from both.
        (
            "queue",
            [Placement("c", False, "queue"), DRAINING],
            Carried("queue", (("c", "in"), ("c", "out"), ("b", "in"))),
        ),
        # Removed: consumers may empty it, nobody can put anything in; once the placement is gone, nothing is left.
        (None, [Placement("b", True, "queue")], Carried("queue", (("b", "in"),))),
        (None, [Placement("b", True, "topic")], Carried("topic", (("b", "out"),))),
        (None, [DRAINING], Carried("queue", (("b", "in"),))),
        (None, [ACTIVE], None),
        (None, [], None),
        # Retyped while it holds messages: the old type stays, for consumers only, and the new one waits.
        ("topic", [Placement("b", True, "queue")], Carried("queue", (("b", "in"),))),
        ("queue", [Placement("b", True, "topic")], Carried("topic", (("b", "out"),))),
        ("anycast", [Placement("b", True, "queue")], Carried("queue", (("b", "in"),))),
    ],
)
def test_what_is_carried(kind: str | None, placements: list[Placement], expected: Carried | None) -> None:
    assert entities.carried(kind, placements) == expected


def test_entities_of_each_type() -> None:
    def of(kind: str, *placements: Placement) -> list[tuple[str, dict[str, Any]]]:
        return [(e.type, e.attributes) for e in entities.of_address("a/b", entities.carried(kind, placements))]

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
    assert entities.connector("b", "::1", 5).name == connection


def test_listeners_come_with_their_tls_profile() -> None:
    plain, profile, secure = entities.listeners(
        [("amqp", "127.0.0.1", 5672, None), ("amqps", "127.0.0.1", 5671, ("c.pem", "k.pem"))], 50
    )
    assert (plain.type, plain.attributes["port"], plain.attributes["linkCapacity"]) == (LISTENER, "5672", 50)
    assert profile.type == SSL_PROFILE
    assert profile.attributes == {"certFile": "c.pem", "privateKeyFile": "k.pem"}
    assert secure.attributes["sslProfile"] == profile.name
    assert secure.attributes["requireSsl"] is True


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
KINDS = st.sampled_from(["queue", "topic", "anycast", "multicast"])
PLACEMENTS = st.lists(
    st.builds(Placement, NAMES, st.booleans(), st.sampled_from([None, "queue", "topic"])),
    max_size=3,
    unique_by=lambda p: p.broker,
)


@given(NAMES, st.none() | KINDS, PLACEMENTS)
def test_a_name_tells_what_it_belongs_to(name: str, kind: str | None, placements: list[Placement]) -> None:
    work = entities.carried(kind, placements)
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
    """What is made for the changed addresses, minus what they had before, must lead to the same set of entities."""
    desired = Desired([])
    there: set[tuple[str, str]] = set()
    for addresses, placed in steps:
        brokers = {e["broker"]: {"host": "h", "port": 1} for entries in placed.values() for e in entries}
        bodies = {"addresses": {name: {"type": kind} for name, kind in addresses.items()}}
        for before in (
            desired.set_addresses(bodies),
            desired.set_placements({"brokers": brokers, "addresses": placed})[0],
        ):
            for name, names in before.items():
                there -= names
                there |= desired.names(name)
        anew = Desired([])
        anew.set_addresses(bodies)
        anew.set_placements({"brokers": brokers, "addresses": placed})
        assert there == {key for name in anew.carriers() for key in anew.names(name)}
        for type_, name in there:
            entity = anew.expected("r", type_, name)
            assert entity is not None
            assert entity.name == name


def test_an_unchanged_address_is_not_touched() -> None:
    desired = Desired([])
    desired.set_addresses({"addresses": {"a": {"type": "queue"}, "b": {"type": "anycast"}}})
    placed = {"a": [{"broker": "x", "state": "active"}]}
    desired.set_placements({"brokers": {"x": {"host": "h", "port": 1}}, "addresses": placed})
    assert desired.set_addresses({"addresses": {"a": {"type": "queue"}, "b": {"type": "multicast"}}}).keys() == {"b"}
    before, moved = desired.set_placements({"brokers": {"x": {"host": "h", "port": 2}}, "addresses": placed})
    assert (before, moved) == ({}, {"x"})
    connector = desired.expected("r", CONNECTOR, "ragent-broker/x")
    assert connector is not None
    assert connector.attributes["port"] == "2"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"addresses": []},
        {"addresses": {"a": {}}},
        {"addresses": {"a": {"type": "cube"}}},
        {"addresses": {"a": None}},
    ],
)
def test_addresses_that_are_none_change_nothing(body: dict[str, Any]) -> None:
    desired = Desired([])
    desired.set_addresses({"addresses": {"a": {"type": "queue"}}})
    with pytest.raises(ValueError, match="addresses"):
        desired.set_addresses(body)
    assert desired.kind("a") == "queue"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"brokers": {}, "addresses": []},
        {"brokers": {"b": {}}, "addresses": {}},
        {"brokers": {}, "addresses": {"a": [None]}},
        {"brokers": {}, "addresses": {"a": [{"broker": "b", "state": "asleep"}]}},
    ],
)
def test_placements_that_are_none_change_nothing(body: dict[str, Any]) -> None:
    desired = Desired([])
    desired.set_placements({"brokers": {}, "addresses": {"a": [{"broker": "b"}]}})
    with pytest.raises(ValueError, match=r"brokers|addresses"):
        desired.set_placements(body)
    assert desired.placements("a") == (ACTIVE,)
