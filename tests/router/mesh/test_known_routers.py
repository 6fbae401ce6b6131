"""What a router states of itself: new, old, of another start, and too old."""

from __future__ import annotations

from services.router.mesh.control_messages import AddressUpdate, Advertisement, Announced, LinkStateUpdate
from services.router.mesh.known_routers import KnownRouter, KnownRouters, News

NOW = 100.0


def one() -> tuple[KnownRouters, KnownRouter]:
    routers = KnownRouters("me")
    known = routers.learn("r1", NOW)
    assert known is not None
    return routers, known


def test_link_state_is_replaced_by_newer_ones_only() -> None:
    routers, known = one()
    assert routers.link_state(known, LinkStateUpdate("r1", 5, 0, {"me": 1}), NOW) is News.CURRENT
    assert routers.link_state(known, LinkStateUpdate("r1", 5, 3, {"me": 1, "r2": 4}), NOW) is News.CURRENT
    assert routers.link_state(known, LinkStateUpdate("r1", 5, 3, {}), NOW) is None
    assert routers.link_state(known, LinkStateUpdate("r1", 5, 2, {}), NOW) is None
    assert known.peers == {"me": 1, "r2": 4}
    assert routers.get("r2") is not None


def test_later_start_makes_everything_known_void() -> None:
    routers, known = one()
    routers.link_state(known, LinkStateUpdate("r1", 5, 9, {"me": 1}), NOW)
    known.addresses.apply(AddressUpdate("r1", 4, (Announced("M0a"),), absolute=True))
    assert routers.advertised(known, Advertisement("r1", 6, 1, 0), NOW) is News.RESTARTED
    assert not known.has_links
    assert known.peers == {}
    assert known.addresses.addresses == {}
    assert known.advertised_ls == 1


def test_link_state_of_a_later_start_counts_at_once() -> None:
    routers, known = one()
    routers.link_state(known, LinkStateUpdate("r1", 5, 9, {"me": 1}), NOW)
    assert routers.link_state(known, LinkStateUpdate("r1", 6, 1, {"r2": 1}), NOW) is News.RESTARTED
    assert known.peers == {"r2": 1}


def test_overtaken_messages_of_an_earlier_start_are_ignored() -> None:
    routers, known = one()
    routers.link_state(known, LinkStateUpdate("r1", 6, 1, {"me": 1}), NOW)
    assert routers.advertised(known, Advertisement("r1", 5, 80, 80), NOW) is News.OLD
    assert routers.link_state(known, LinkStateUpdate("r1", 5, 80, {}), NOW) is None
    assert known.peers == {"me": 1}
    assert known.advertised_ls == 0


def test_earlier_start_or_lower_numbers_count_when_nothing_else_is_stated_any_longer() -> None:
    for message in (Advertisement("r1", 5, 1, 0), Advertisement("r1", 6, 1, 0), Advertisement("r1", 6, 8, 0)):
        routers, known = one()
        routers.link_state(known, LinkStateUpdate("r1", 6, 8, {"me": 1}), NOW)
        known.addresses.apply(AddressUpdate("r1", 4, (Announced("M0a"),), absolute=True))
        assert routers.advertised(known, message, NOW + 1) is News.OLD
        assert routers.advertised(known, message, NOW + 2) is News.OLD
        assert routers.advertised(known, message, NOW + 4) is News.RESTARTED
        assert known.addresses.addresses == {}
        assert routers.advertised(known, message, NOW + 8) is News.CURRENT


def test_current_numbers_end_the_suspicion_of_a_restart() -> None:
    routers, known = one()
    old, current = Advertisement("r1", 6, 1, 0), Advertisement("r1", 6, 8, 0)
    routers.link_state(known, LinkStateUpdate("r1", 6, 8, {"me": 1}), NOW)
    routers.advertised(known, old, NOW + 1)
    routers.advertised(known, current, NOW + 2)
    assert routers.advertised(known, old, NOW + 5) is News.OLD


def test_neighbour_states_its_own_start() -> None:
    _, known = one()
    assert not known.started(6, NOW)
    assert not known.started(6, NOW)
    assert known.started(5, NOW)
    assert known.instance == 5


def test_silent_router_is_forgotten_after_sixty_seconds() -> None:
    routers, known = one()
    routers.link_state(known, LinkStateUpdate("r1", 5, 1, {"r2": 1}), NOW)
    assert routers.expire({}, NOW + 60) == []
    routers.advertised(known, Advertisement("r1", 5, 1, 0), NOW + 40)
    assert routers.expire({}, NOW + 100) == []
    assert routers.expire({}, NOW + 100.5) == [known]
    assert routers.get("r1") is None
    assert routers.expire({}, NOW + 160.5) == []
    assert len(routers) == 0  # r2 was known as a peer only


def test_silent_neighbour_stays_without_its_links() -> None:
    routers, known = one()
    routers.link_state(known, LinkStateUpdate("r1", 5, 1, {"me": 1}), NOW)
    assert routers.expire({"r1": 1}, NOW + 61) == [known]
    assert routers.get("r1") is known
    assert not known.has_links


def test_a_mesh_has_128_routers() -> None:
    routers, known = one()
    routers.link_state(known, LinkStateUpdate("r1", 5, 1, {f"p{n}": 1 for n in range(128)}), NOW)
    assert len(routers) == 127
    assert routers.learn("further", NOW) is None
    assert routers.learn("p5", NOW) is not None
    assert routers.learn("me", NOW) is None
