"""Counters of connections at a router of Dispatch, which counts by link."""

from __future__ import annotations

from typing import Any

from services.console.polling import Moved


def link(id: str, connection: str, direction: str, count: int | None) -> dict[str, Any]:
    return {"identity": id, "connectionId": connection, "linkDir": direction, "deliveryCount": count}


def test_a_connection_has_the_sum_of_its_links() -> None:
    moved = Moved()
    links = [link("1", "a", "in", 5), link("2", "a", "in", 2), link("3", "a", "out", 4), link("4", "b", "out", None)]
    moved.take(links, {"a", "b"})
    assert (moved.of("a"), moved.of("b"), moved.of("c")) == (
        {"in": 7, "out": 4},
        {"in": 0, "out": 0},
        {"in": 0, "out": 0},
    )


def test_what_a_link_that_is_gone_has_carried_stays() -> None:
    moved = Moved()
    moved.take([link("1", "a", "in", 5), link("2", "a", "in", 2)], {"a"})
    moved.take([link("2", "a", "in", 3)], {"a"})
    moved.take([link("2", "a", "in", 3), link("5", "a", "in", 10)], {"a"})
    assert moved.of("a") == {"in": 18, "out": 0}


def test_a_connection_that_is_gone_is_forgotten() -> None:
    moved = Moved()
    moved.take([link("1", "a", "in", 5)], {"a"})
    moved.take([], set())
    assert moved.of("a") == {"in": 0, "out": 0}
