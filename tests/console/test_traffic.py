"""Sums of rows, without a process."""

from __future__ import annotations

from typing import Any

from enmasse.model.address_types import AddressType
from enmasse.model.names import DEFAULT_SPACE
from services.console.following.followed_process import Node
from services.console.following.rates import Meter
from services.console.following.traffic import Traffic

OWNERS: dict[str, tuple[str, AddressType]] = {
    "q": ("q", "queue"),
    "t": ("t", "topic"),
    "t/a": ("t", "topic"),
    "m": ("m", "multicast"),
}


def traffic() -> Traffic:
    return Traffic(OWNERS.get, lambda: 1000.0)


def body(**rows: Any) -> dict[str, Any]:
    return {"full": False, **rows}


def test_counters_never_fall_when_a_process_starts_again_or_a_queue_goes() -> None:
    found = traffic()
    found.take("b", "broker", body(queues={"q": {"address": "q", "in": 10, "out": 4, "messages": 6}}), full=True)
    found.take("b", "broker", body(queues={"q": {"address": "q", "in": 2, "out": 1, "messages": 7}}), full=True)
    assert (found.stats("q").totals.in_, found.stats("q").totals.out, found.stats("q").messages) == (12, 5, 7)
    found.take("b", "broker", body(removed={"queues": ["q"]}), full=False)
    assert (found.stats("q").totals.in_, found.stats("q").messages) == (12, 0)


def test_the_queues_and_levels_of_a_topic_are_one_address() -> None:
    found = traffic()
    queues = {f"s{n}": {"address": "t/a", "out": n, "messages": n, "consumers": 1, "oldest": 900.0 + n} for n in (1, 2)}
    found.take("b", "broker", body(queues=queues, addresses={"t": {"in": 3}, "t/a": {"in": 4}}), full=True)
    stats = found.stats("t")
    assert (stats.totals.in_, stats.totals.out, stats.messages, stats.consumers, stats.oldest) == (7, 3, 3, 2, 99.0)


def test_the_age_of_a_message_that_waits_is_stated_again_while_nothing_else_changes() -> None:
    now = [1000.0]
    found = Traffic(OWNERS.get, lambda: now[0])
    found.take("b", "broker", body(queues={"q": {"address": "q", "messages": 1, "oldest": 990.0}}), full=True)
    found.look(0)
    shown, stated = found.stats("q").oldest, 1
    while now[0] < 4600:
        now[0] += 1
        if "q" in found.look(0):
            shown, stated = found.stats("q").oldest, stated + 1
        assert shown is not None and shown <= now[0] - 990 <= 1.2 * shown + 2
    assert stated < 60
    found.take("b", "broker", body(queues={"q": {"address": "q", "messages": 0, "oldest": None}}), full=False)
    found.look(0)
    now[0] += 10_000
    assert found.look(0) == set()


def test_routers_and_brokers_together_count_a_message_once() -> None:
    found = traffic()
    found.take("b", "broker", body(queues={"q": {"address": "q", "in": 5, "out": 5}}), full=True)
    found.take("r", "router", body(addresses={"q": {"in": 5, "out": 5, "outReleased": 1, "consumers": 2}}), full=True)
    stats = found.stats("q")
    assert (stats.totals.in_, stats.totals.out, stats.totals.released, stats.consumers) == (5, 5, 1, 2)


def test_what_a_lost_process_had_is_no_longer_shown() -> None:
    found = traffic()
    rows = body(
        addresses={"m": {"in": 5, "consumers": 2}}, connections={"1": {"user": "u"}},
        links={"2": {"connection": "1", "address": "m", "dir": "in"}},
    )  # fmt: skip
    found.take("r", "router", rows, full=True)
    assert found.connections.keys() == ["r/1"] and found.addresses_of == {"r/1": {"r/2": "m"}}
    found.gone("r")
    assert found.connections.keys() == found.links.keys() == [] and found.stats("m").consumers == 0


def test_a_process_that_is_followed_again_counts_only_what_was_added() -> None:
    found = traffic()
    queue = {"address": "q", "in": 10, "out": 4, "messages": 6, "oldest": 990.0}
    connection = {"user": "u", "in": 10, "out": 4}
    found.take("b", "broker", body(queues={"q": queue}), full=True)
    found.take("r", "router", body(connections={"1": connection}), full=True)
    for component in ("b", "r"):
        found.gone(component)
    assert (found.stats("q").messages, found.stats("q").oldest, found.stats("q").totals.in_) == (0, None, 10)
    found.take("b", "broker", body(queues={"q": queue | {"in": 12}}), full=True)
    found.take("r", "router", body(connections={"1": connection | {"in": 12}}), full=True)
    stats = found.stats("q")
    assert (stats.totals.in_, stats.totals.out, stats.messages, stats.oldest) == (12, 4, 6, 10.0)
    assert found.of_component("b")[1].in_ == found.of_component("r")[1].in_ == 12


def test_a_state_in_several_messages_counts_once_however_often_it_is_taken() -> None:
    """It begins again for a new follower, and for one that has missed too much."""
    found = traffic()
    for number in range(3):
        found.take("b", "broker", body(connections={"1": {"user": "u"}}), full=True, complete=False)
        assert found.of_component("b")[1].in_ == 10 * bool(number)
        found.take("b", "broker", body(queues={"q": {"address": "q", "in": 10}}), full=False)
        found.take("r", "router", body(connections={"1": {"user": "u", "in": 5}}), full=True, complete=False)
        found.take("r", "router", body(connections={"2": {"user": "u", "in": 6}}), full=False)
        assert [found.of_component(each)[1].in_ for each in ("b", "r")] == [10, 11]
        assert found.stats("q").totals.in_ == 10
        if number == 1:
            found.gone("b")
            found.gone("r")


def test_a_row_is_shown_until_a_complete_state_does_not_have_it() -> None:
    found = traffic()
    connections: dict[str, Any] = {"1": {"user": "u"}, "2": {"user": "v"}}
    links = {"3": {"connection": "1", "address": "m"}, "4": {"connection": "2", "address": "m"}}
    found.take("r", "router", body(connections=connections, links=links, addresses={"m": {"consumers": 2}}), full=True)
    found.take("r", "router", body(connections={"1": connections["1"]}), full=True, complete=False)
    assert (found.connections.keys(), found.links.keys()) == (["r/1", "r/2"], ["r/3", "r/4"])
    assert found.stats("m").consumers == 2
    found.take("r", "router", body(links={"3": links["3"]}), full=False)
    assert (found.connections.keys(), found.links.keys()) == (["r/1"], ["r/3"])
    assert found.addresses_of == {"r/1": {"r/3": "m"}} and found.stats("m").consumers == 0


def test_rates_follow_counters_and_end() -> None:
    meter = Meter(1)
    for second in range(5):
        meter.note("k", (second * 10,))
        meter.look(float(second))
    assert meter.rates("k") == (10.0,)
    for second in range(5, 12):
        meter.look(float(second))
    assert meter.rates("k") == (0.0,) and meter.look(20.0) == set()


def test_connections_of_processes_are_told_from_those_of_clients() -> None:
    found = traffic()
    at_router = {
        "1": {"user": "u"}, "2": {"user": "r", "role": "ragent"}, "3": {"kind": "inter-router"}, "4": {"dir": "out"},
    }  # fmt: skip
    found.take("r", "router", body(connections=at_router), full=True)
    found.take("b", "broker", body(connections={"1": {"user": None}, "2": {"user": "anonymous"}}), full=True)
    at_artemis = {"1": {"user": None, "inside": False}, "2": {"user": "router-0", "inside": True}}
    found.take("a", "broker", body(connections=at_artemis, links={"5": {"connection": "2", "dir": "in"}}), full=True)
    rows = dict(iter(found.connections))
    assert {key for key, row in rows.items() if row.inside} == {"r/2", "r/3", "r/4", "b/1", "a/2"}
    assert (found.clients(DEFAULT_SPACE), rows["a/2"].links, found.of_client(dict(iter(found.links))["a/5"])) == (
        3,
        1,
        False,
    )
    found.take("b", "broker", body(connections={"1": {"user": "u"}}), full=False)
    assert found.clients(DEFAULT_SPACE) == 4 and not dict(iter(found.connections))["b/1"].inside, (
        "its user was not known at first"
    )
    found.gone("a")
    assert (found.clients(DEFAULT_SPACE), found.inside) == (3, {"r/2", "r/3", "r/4"})


def test_how_busy_a_process_is_and_how_long_its_syncs_take_is_known_from_its_second_report() -> None:
    node = Node("one", "the broker one")
    node.component = "one"

    def report(at: float, busy: float, syncs: int, seconds: float) -> tuple[float | None, float | None]:
        node.take_about({"at": at, "about": {"one": {"busySeconds": busy, "syncs": syncs, "syncSeconds": seconds}}})
        return node.busy, node.sync

    assert report(100, 7.0, 10, 1.0) == (None, None)
    assert report(105, 9.5, 14, 1.1) == (0.5, 0.025)
    node.take_about({"at": 106})
    assert report(110, 9.5, 14, 1.1) == (0.0, 0.025), "no batch was written"
    assert report(115, 0.2, 0, 0.0) == (0.0, 0.025), "it was started again"
    assert report(120, 0.7, 1, 0.5) == (0.1, 0.5)
