"""Shortest paths between routers, and the ways of multicast messages."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from services.router.mesh.topology import Topology

Links = dict[str, dict[str, int]]


def links_of(*edges: tuple[str, str, int]) -> Links:
    links: Links = {}
    for one, other, cost in edges:
        links.setdefault(one, {})[other] = cost
        links.setdefault(other, {})[one] = cost
    return links


LINE = links_of(("a", "b", 1), ("b", "c", 1), ("c", "d", 1))
SQUARE = links_of(("a", "b", 1), ("b", "c", 1), ("c", "d", 1), ("d", "a", 1))
DIAGONAL = links_of(("a", "b", 1), ("b", "c", 1), ("c", "d", 1), ("d", "a", 1), ("a", "c", 3))


def test_line_is_walked_by_the_only_way() -> None:
    topology = Topology("b", LINE)
    assert topology.next_hops == {"a": "a", "c": "c", "d": "c"}
    assert topology.costs == {"a": 1, "c": 1, "d": 2}
    assert topology.radius == 2
    assert topology.valid_origins("d") == ["a"]
    assert topology.onward("a") == {"c"}


def test_of_equal_paths_that_over_the_smaller_id_is_taken() -> None:
    assert Topology("a", SQUARE).next_hops["c"] == "b"
    assert Topology("c", SQUARE).next_hops["a"] == "b"
    assert Topology("b", SQUARE).next_hops["d"] == "a"


def test_expensive_link_is_not_used_while_there_is_a_cheaper_path() -> None:
    assert Topology("a", DIAGONAL).next_hops["c"] == "b"
    without_b = links_of(("c", "d", 1), ("d", "a", 1), ("a", "c", 3))
    assert Topology("a", without_b).next_hops["c"] == "d"


def test_router_that_only_its_peer_knows_is_reachable() -> None:
    topology = Topology("a", {"a": {"b": 1}, "b": {"a": 1, "c": 4}})
    assert topology.next_hops == {"b": "b", "c": "b"}


def test_router_that_no_reachable_one_has_as_a_peer_is_not_reachable() -> None:
    topology = Topology("a", {"a": {"b": 1}, "b": {"a": 1}, "c": {"b": 1}, "d": {"c": 1}})
    assert topology.next_hops == {"b": "b"}


def test_multicast_reaches_only_the_parts_with_receivers() -> None:
    star = links_of(("a", "b", 1), ("a", "c", 1), ("c", "d", 1))
    assert Topology("a", star).onward("b", {"d", "b"}) == {"c"}
    assert Topology("a", star).onward("b", {"b"}) == set()
    assert Topology("a", star).onward("a", {"b", "d"}) == {"b", "c"}


def random_links(rng: random.Random, most: int) -> Links:
    """Links in both directions, some with another cost back; not always connected."""
    routers = [f"r{n}" for n in range(rng.randint(2, most))]
    rng.shuffle(routers)
    links: Links = {router: {} for router in routers}
    for _ in range(rng.randint(1, 3 * len(routers))):
        one, other = rng.sample(routers, 2)
        links[one][other] = rng.randint(1, 3)
        links[other][one] = rng.choice((links[one][other], rng.randint(1, 3)))
    return links


def distances(links: Links) -> dict[tuple[str, str], int]:
    """The costs of all shortest paths, by Floyd and Warshall."""
    found = {(one, other): cost for one, peers in links.items() for other, cost in peers.items()}
    for middle in links:
        for one in links:
            for other in links:
                by = found.get((one, middle)), found.get((middle, other))
                if one != other and by[0] is not None and by[1] is not None:
                    found[one, other] = min(found.get((one, other), by[0] + by[1]), by[0] + by[1])
    return found


@pytest.mark.parametrize("seed", range(60))
def test_costs_are_those_of_shortest_paths_and_next_hops_are_on_them(seed: int) -> None:
    links = random_links(random.Random(seed), 14)
    shortest = distances(links)
    for own in links:
        topology = Topology(own, links)
        assert topology.costs == {to: cost for (one, to), cost in shortest.items() if one == own}
        assert topology.next_hops.keys() == topology.costs.keys()
        for to, hop in topology.next_hops.items():
            assert links[own][hop] + (0 if hop == to else shortest[hop, to]) == topology.costs[to]


@pytest.mark.parametrize("seed", range(60))
def test_multicast_by_all_views_reaches_each_receiver_once(seed: int) -> None:
    rng = random.Random(seed)
    links = random_links(rng, 14)
    views = {router: Topology(router, links) for router in links}
    for origin in links:
        receivers = set(rng.sample(sorted(links), rng.randint(1, len(links)))) - {origin}
        arrived: Counter[str] = Counter()
        moving = [(origin, hop) for hop in views[origin].onward(origin, receivers)]
        while moving:
            _, at = moving.pop()
            arrived[at] += 1
            assert arrived[at] == 1
            moving += [(at, hop) for hop in views[at].onward(origin, receivers)]
        assert receivers & arrived.keys() == receivers & views[origin].next_hops.keys()


@pytest.mark.parametrize("seed", range(20))
def test_valid_origins_are_those_whose_path_passes(seed: int) -> None:
    links = random_links(random.Random(seed), 10)
    views = {router: Topology(router, links) for router in links}

    def path(origin: str, to: str) -> list[str]:
        way = [origin]
        while way[-1] != to:
            way.append(views[way[-1]].next_hops[to])
        return way

    for own, topology in views.items():
        for to in topology.next_hops:
            passing = [o for o in topology.next_hops if o != to and to in views[o].next_hops and own in path(o, to)]
            assert topology.valid_origins(to) == passing
