"""What a router has, compared with what it shall have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.model.feeds import BrokerEndpoint, Placement
from enmasse.model.names import AddressName
from services.ragent import entities
from services.ragent.entities import ADDRESS, AUTO_LINK, CONNECTOR, LISTENER, Entity
from services.ragent.table import (
    CREATED,
    DIFFERENT,
    PRESENT,
    EntityOperation,
    OwnEntities,
    Scan,
    columns,
    difference,
    same,
)

ANY = Entity(ADDRESS, "ragent-address/a", {"pattern": "a", "distribution": "balanced", "waypoint": False})
LINK = Entity(AUTO_LINK, "ragent-in/b/a", {"address": "a", "direction": "in", "connection": "ragent-broker/b"})


def expected(type_: str, name: str) -> Entity | None:
    return next((e for e in (ANY, LINK) if (e.type, e.name) == (type_, name)), None)


def row(entity: Entity, **more: Any) -> dict[str, Any]:
    return {"name": entity.name, **dict(zip(entities.COMPARED[entity.type], entity.row(), strict=True)), **more}


def test_status_follows_what_is_read() -> None:
    table = OwnEntities()
    key = LINK.type, LINK.name
    assert table.status(key) is None
    assert table.read(AUTO_LINK, row(LINK, operStatus="failed", lastError="no such queue"), LINK)
    assert (table.status(key), table.errors, table.waiting) == ("failed", {LINK.name: "no such queue"}, {key})
    assert not table.read(AUTO_LINK, row(LINK, operStatus="failed", lastError="no such queue"), LINK)
    assert table.read(AUTO_LINK, row(LINK, operStatus="active"), LINK)
    assert (table.status(key), table.errors, table.waiting) == ("active", {}, set())
    assert table.read(AUTO_LINK, row(LINK, operStatus="active", direction="out"), LINK)
    assert table.status(key) == DIFFERENT
    assert table.drop(key)
    assert not table.drop(key)


def test_a_router_that_shows_no_value_where_none_was_wanted_is_right() -> None:
    table = OwnEntities()
    table.read(
        ADDRESS, {"name": ANY.name, "prefix": "", "pattern": "a", "distribution": "balanced", "waypoint": None}, ANY
    )
    assert table.status((ADDRESS, ANY.name)) == PRESENT


def test_difference_creates_deletes_and_replaces() -> None:
    table = OwnEntities()
    table.set((ADDRESS, ANY.name), DIFFERENT)
    table.set((ADDRESS, "ragent-address/old"), PRESENT)
    operations = difference(table, [LINK, ANY], [(ADDRESS, "ragent-address/old"), (ADDRESS, "ragent-address/gone")])
    assert operations == [
        EntityOperation(ADDRESS, ANY.name, None),
        EntityOperation(ADDRESS, "ragent-address/old", None),
        EntityOperation(ADDRESS, ANY.name, ANY.attributes),
        EntityOperation(AUTO_LINK, LINK.name, LINK.attributes),
    ]


def test_connectors_are_made_before_links_and_deleted_after_them_and_listeners_last() -> None:
    table = OwnEntities()
    connector, listener = (
        entities.connector("b", BrokerEndpoint(host="h", port=1)),
        entities.listeners([entities.ClientListener("l", "h", 2)])[0],
    )
    made = difference(table, [listener, LINK, ANY, connector], [])
    assert [operation.type for operation in made] == [CONNECTOR, ADDRESS, AUTO_LINK, LISTENER]
    for operation in made:
        table.set((operation.type, operation.name), CREATED)
    gone = difference(table, [], [(operation.type, operation.name) for operation in made])
    assert [operation.type for operation in gone] == [LISTENER, AUTO_LINK, ADDRESS, CONNECTOR]


def pages(rows: list[dict[str, Any]], type_: str, size: int) -> Iterable[tuple[list[str], list[list[Any]]]]:
    names = columns(type_)
    for start in range(0, len(rows), size):
        yield names, [[each.get(name) for name in names] for each in rows[start : start + size]]


def test_a_scan_finds_what_differs_and_leaves_others_alone() -> None:
    table = OwnEntities()
    table.set((ADDRESS, "ragent-address/lost"), PRESENT)
    scan = Scan(table, ADDRESS, expected)
    found = [row(ANY, waypoint=True), {"name": "ragent-address/unwanted"}, {"name": "override.mine"}, {"name": None}]
    for names, rows in pages(found, ADDRESS, 2):
        scan.page(names, rows)
    assert scan.offset == 4
    assert scan.unwanted == [(ADDRESS, "ragent-address/unwanted")]
    assert scan.different == [ANY.name]
    assert scan.missing() == ["ragent-address/lost"]
    assert scan.changed == {ANY.name, "ragent-address/unwanted"}


def test_what_was_touched_during_a_scan_is_not_judged_by_it() -> None:
    table = OwnEntities()
    scan = Scan(table, ADDRESS, expected)
    table.set((ADDRESS, ANY.name), CREATED)
    scan.touch(ANY.name)
    scan.touch("ragent-address/deleted")
    scan.page(["name"], [["ragent-address/deleted"]])
    assert (scan.missing(), scan.unwanted, scan.changed) == ([], [], set())


KEYS = st.sampled_from([(ADDRESS, f"ragent-address/{x}") for x in "abcd"])


@given(st.dictionaries(KEYS, st.sampled_from([PRESENT, CREATED, DIFFERENT])), st.sets(KEYS), st.sets(KEYS))
def test_difference_brings_about_what_is_wanted(
    has: dict[tuple[str, str], str], wanted: set[tuple[str, str]], unwanted: set[tuple[str, str]]
) -> None:
    table = OwnEntities()
    for key, status in has.items():
        table.set(key, status)
    operations = difference(table, [Entity(*key, {"pattern": "x"}) for key in wanted], unwanted - wanted)
    there = {key: status != DIFFERENT for key, status in has.items()}
    for type_, name, attributes in operations:
        if attributes is None:
            del there[type_, name]  # must have been there
        else:
            assert (type_, name) not in there  # must have been free
            there[type_, name] = True
    assert {key for key, right in there.items() if right} >= wanted
    assert not there.keys() & (unwanted - wanted)
    assert there.keys() - wanted - unwanted == has.keys() - wanted - unwanted
    touched = {(operation.type, operation.name) for operation in operations}
    assert not touched & {key for key in wanted if has.get(key) in (PRESENT, CREATED)}


@pytest.mark.parametrize(("shown", "is_same"), [("trailing", True), ("trailing/", True), ("other", False)])
def test_dispatch_shows_a_name_without_the_slash_at_its_end(shown: str, is_same: bool) -> None:
    entity = Entity(ADDRESS, "ragent/trailing/", {"pattern": "trailing/", "distribution": "balanced"})
    assert same({"pattern": shown, "distribution": "balanced"}, entity) is is_same


def test_a_topic_that_moves_is_never_without_a_route() -> None:
    """What is there of another kind goes first, because a router has one of a name."""
    name = AddressName("t")
    before, after = (
        entities.of_address(name, entities.work_for("topic", [Placement(broker=broker)])) for broker in ("b1", "b2")
    )
    table = OwnEntities()
    for entity in (*before, LINK):
        table.set((entity.type, entity.name), "active")
    old = [(entity.type, entity.name) for entity in before]
    operations = difference(table, after, [*old, (LINK.type, LINK.name)])
    kinds = [(operation.name, operation.attributes is not None) for operation in operations]
    assert kinds == [
        (LINK.name, False),
        *((entity.name, True) for entity in after),
        *((entity.name, False) for entity in before),
    ]
