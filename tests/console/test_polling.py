"""Rows of routers of Dispatch, and of a mesh of them; their counters, which Dispatch has by link."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from enmasse.amqp.codec.types import Int
from enmasse.control import Dispatch
from enmasse.engines.moved import Carried, Moved
from enmasse.model.address_types import AddressType
from services.console.following import dispatch
from services.console.following.dispatch import PAGE, Tables, carried, listed, state
from services.console.following.traffic import Traffic
from services.console.rest.infrastructure import path


def link(id: str, connection: str, direction: str, count: int | None) -> Carried:
    row: dict[str, Any] = {"identity": id, "connectionId": connection, "linkDir": direction, "deliveryCount": count}
    return carried(row)


def test_a_connection_has_the_sum_of_its_links() -> None:
    moved = Moved("in", "out")
    links = [link("1", "a", "in", 5), link("2", "a", "in", 2), link("3", "a", "out", 4), link("4", "b", "out", None)]
    moved.take(links, {"a", "b"})
    assert (moved.of("a"), moved.of("b"), moved.of("c")) == (
        {"in": 7, "out": 4},
        {"in": 0, "out": 0},
        {"in": 0, "out": 0},
    )


def test_what_a_link_that_is_gone_has_carried_stays() -> None:
    moved = Moved("in", "out")
    moved.take([link("1", "a", "in", 5), link("2", "a", "in", 2)], {"a"})
    moved.take([link("2", "a", "in", 3)], {"a"})
    moved.take([link("2", "a", "in", 3), link("5", "a", "in", 10)], {"a"})
    assert moved.of("a") == {"in": 18, "out": 0}


def test_a_connection_that_is_gone_is_forgotten() -> None:
    moved = Moved("in", "out")
    moved.take([link("1", "a", "in", 5)], {"a"})
    moved.take([], set())
    assert moved.of("a") == {"in": 0, "out": 0}


CONNECTIONS = {
    "1": {"identity": "1", "container": "console", "role": "normal", "dir": "in"},
    "2": {"identity": "2", "container": "app", "user": "u", "host": "h:1", "role": "normal", "dir": "in"},
    "3": {"identity": "3", "container": "b-0", "host": "127.0.0.1:7000", "role": "route-container", "dir": "out"},
    "4": {"identity": "4", "container": "router-1", "host": "h:2", "role": "inter-router", "dir": "in"},
    "5": {"identity": "5", "container": "gateway", "role": "route-container", "dir": "in"},
}


ROUTERS: list[dict[str, Any]] = [
    {"id": "router-0", "routerLink": None, "nextHop": "(self)"},
    {"id": "router-1", "routerLink": 3, "nextHop": None, "cost": Int(1)},
    {"id": "router-2", "routerLink": None, "nextHop": "router-1", "cost": Int(2)},
    {"id": "router-3", "routerLink": None, "nextHop": None},  # it was lost
]


def rows(*values: tuple[str, str, str, str, str, int]) -> dict[str, dict[str, Any]]:
    """Return links: identity, connection, direction, type, address and deliveries of each."""
    names = ("identity", "connectionId", "linkDir", "linkType", "owningAddr", "deliveryCount")
    return {each[0]: dict(zip(names, each, strict=True)) for each in values}


def tables(*links: tuple[str, str, str, str, str, int], addresses: tuple[str, ...] = ()) -> Tables:
    known = {key: {"deliveriesIngress": 7, "deliveriesEgress": 5} for key in addresses}
    return Tables(CONNECTIONS, rows(*links), known, ROUTERS)


def test_producers_and_consumers_of_an_address_are_clients() -> None:
    found = state(
        "router-0",
        tables(
            ("10", "2", "in", "endpoint", "M0q", 4),
            ("11", "2", "out", "endpoint", "M1q", 3),
            ("12", "5", "out", "endpoint", "M1q", 0),
            ("13", "3", "out", "endpoint", "M0q", 4),  # the router's own links to the broker
            ("14", "3", "in", "endpoint", "M1q", 3),
            ("15", "2", "out", "endpoint", "M0any", 1),
            addresses=("M0q", "M1q", "M0any", "Lx", "R2"),
        ),
        Moved("in", "out"),
    )
    assert found["addresses"] == {
        "q": {"in": 7, "out": 5, "producers": 1, "consumers": 2},
        "any": {"in": 7, "out": 5, "producers": 0, "consumers": 1},
    }
    assert {id: row["address"] for id, row in found["links"].items()} == dict.fromkeys(
        ["10", "11", "12", "13", "14"], "q"
    ) | {"15": "any"}


def test_what_a_router_says_of_its_mesh_and_of_gateways() -> None:
    found = state(
        "router-0", tables(addresses=("F$live/gateway", "E$live/no", "M0$live/no")), Moved("in", "out"), own="1"
    )
    assert (msgspec.json.decode(msgspec.json.encode(found["routers"])), found["gateways"]) == (
        {"router-1": {"cost": 1, "next": "router-1"}, "router-2": {"cost": 2, "next": "router-1"}},
        {"gateway": {}},
    )
    assert {id: row["role"] for id, row in found["connections"].items() if row["role"]} == {"1": "console"}


def test_the_path_to_a_router_is_followed_from_router_to_router() -> None:
    routes: dict[str, dict[str, Any]] = {"a": {"b": {"next": "b"}, "c": {"next": "b"}}, "b": {"c": {"next": "c"}}}
    assert path(routes, "a", "b") == ["b"] and path(routes, "a", "c") == ["b", "c"]
    assert path(routes | {"b": {}}, "a", "c") == []  # b does not know it yet
    assert path(routes | {"b": {"c": {"next": "a"}}}, "a", "c") == []  # they do not agree yet


def test_the_routers_of_a_mesh_are_merged() -> None:
    owners: dict[str, tuple[str, AddressType]] = {"any": ("any", "anycast")}
    found = Traffic(owners.get, lambda: 1000.0)
    moved, other = Moved("in", "out"), Moved("in", "out")
    for second, sent in enumerate((0, 10, 20, 30, 40)):
        first = tables(
            ("10", "2", "in", "endpoint", "M0any", sent),
            ("20", "4", "out", "inter-router", "", sent),
            ("21", "3", "out", "endpoint", "M0q", 3 * sent),
            addresses=("M0any",),
        )
        second_row = {"identity": "7", "container": "taker", "role": "normal", "dir": "in"}
        dialled = {"identity": "8", "container": "router-0", "host": "h:9", "role": "inter-router", "dir": "out"}
        at = Tables(
            {"7": second_row, "8": dialled},
            rows(("30", "7", "out", "endpoint", "M0any", sent), ("31", "8", "in", "inter-router", "", sent)),
            {"M0any": {"deliveriesIngress": 0, "deliveriesEgress": sent}},
            [],
        )
        first = first._replace(addresses={"M0any": {"deliveriesIngress": sent, "deliveriesEgress": 0}})
        for body in (state("router-0", first, moved, own="1"), state("router-1", at, other)):
            found.take(body["component"], "router", body, full=True)
        found.look(float(second))
    assert [key for key, row in found.connections if not row.inside] == ["router-0/2", "router-1/7"]
    stats = found.stats("any")
    assert (stats.producers, stats.consumers, stats.totals.in_, stats.totals.out) == (1, 1, 40, 40)
    assert stats.receivers == {"router-1": 1}
    assert (stats.rates.in_, stats.rates.out) == (10.0, 10.0)
    # What passes between the routers is traffic of neither.
    assert [found.of_component(name)[0].in_ for name in ("router-0", "router-1")] == [10.0, 0.0]
    peers = {row["container"]: (rates.in_, rates.out) for row, rates in found.peers("router-0")}
    assert peers == {"b-0": (0.0, 30.0), "router-1": (0.0, 10.0)}
    assert [(row["container"], rates.in_) for row, rates in found.peers("router-1")] == [("router-0", 10.0)]
    found.gone("router-1")
    assert [key for key, row in found.connections if not row.inside] == ["router-0/2"] and found.peers("router-1") == []
    assert found.stats("any").consumers == 0


class Listing:
    """A router's management whose first rows go while they are listed."""

    def __init__(self, number: int, gone: int) -> None:
        self.rows = [{"identity": str(at)} for at in range(number)]
        self.asked: list[tuple[int, int]] = []
        self._gone = gone

    async def query(self, kind: str, attributes: Any, *, count: int, offset: int) -> list[dict[str, Any]]:
        self.asked.append((offset, count))
        page = self.rows[offset : offset + count]
        del self.rows[: self._gone]
        return page


def test_a_long_listing_is_asked_for_in_pages_and_lacks_no_row_that_stays() -> None:
    listing = Listing(1200, gone=20)
    found = asyncio.run(listed(cast(Dispatch, listing), "connection", ("identity",)))
    assert found.keys() == {str(at) for at in range(1200)}
    assert all(count == PAGE for _, count in listing.asked) and len(listing.asked) == 3


def test_a_listing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MOST", 600)
    found = asyncio.run(listed(cast(Dispatch, Listing(5000, gone=0)), "connection", ("identity",)))
    assert len(found) == 950
