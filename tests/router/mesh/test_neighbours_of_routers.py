"""Neighbours: two and three of our routers, and ours with a real Qpid Dispatch, each as the side that dials."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from enmasse import metrics
from enmasse.identity.processes.roles import Role
from tests.identity.kit import Suite
from tests.kit.waiting import DEADLINE
from tests.router.harness import CONNECTOR, LISTENER, PREFIX, RouterProcess, free_port, wait_for
from tests.router.mesh.network import Routers

DISPATCH = pytest.param(("ours", "theirs"), marks=pytest.mark.needs("qdrouterd"), id="dials-dispatch")
DISPATCH_DIALS = pytest.param(("theirs", "ours"), marks=pytest.mark.needs("qdrouterd"), id="dispatch-dials")


@pytest.fixture
def routers() -> Iterator[Routers]:
    with ExitStack() as stack:
        yield Routers(stack)


@pytest.mark.parametrize("kinds", [pytest.param(("ours", "ours"), id="ours"), DISPATCH, DISPATCH_DIALS])
def test_two_are_neighbours_as_long_as_both_run(routers: Routers, kinds: tuple[str, str]) -> None:
    dialling, listening = kinds
    second = routers.start("b", kind=listening)
    first = routers.start("a", kind=dialling, dials={"b": 5})
    wait_for(lambda: routers.costs("a") == {"b": 5}, "b is a neighbour of a")
    wait_for(lambda: routers.costs("b") == {"a": 5}, "a is a neighbour of b")
    wait_for(lambda: routers.node("a", "b")["linkState"] == ["a"], "the links of b are known")
    for each in ("a", "b"):
        links = routers.query(each, "router.link", "linkType", "linkDir", "priority")
        for direction in ("in", "out"):
            priorities = [row["priority"] for row in links if tuple(row.values())[:2] == ("inter-router", direction)]
            assert sorted(priorities) == list(range(10))
    routers.kill(second)
    wait_for(lambda: routers.node("a", "a")["linkState"] == [], "b is gone")
    assert first.process.poll() is None


def test_the_shortest_path_counts_and_another_when_it_is_lost(routers: Routers) -> None:
    """A triangle: from a to c it is cheaper by way of b."""
    routers.start("c")
    middle = routers.start("b", dials={"c": 1})
    first = routers.start("a", dials={"b": 1, "c": 5})
    wait_for(lambda: routers.costs("a") == {"b": 1, "c": 2}, "the path by way of b")
    assert routers.node("a", "c")["nextHop"] == "b"
    assert network(first) == {"enmasse_router_neighbours": 2, "b": 1, "c": 2}
    routers.kill(middle)
    wait_for(lambda: routers.costs("a") == {"c": 5}, "the direct path")
    assert routers.node("a", "c")["nextHop"] is None
    wait_for(lambda: network(first) == {"enmasse_router_neighbours": 1, "c": 5}, "the metrics have no trace of b")


def network(router: RouterProcess) -> dict[str, float]:
    """Return the number of its neighbours, and router → cost of the path, by its metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{router.health_port}/metrics", timeout=DEADLINE) as answer:
        samples = [sample for family in metrics.parse(answer.read()) for sample in family.samples]
    wanted = ("enmasse_router_neighbours", "enmasse_router_path_cost")
    return {each.labels.get("router", each.name): each.value for each in samples if each.name in wanted}


def test_a_second_router_with_the_same_id_is_refused(routers: Routers) -> None:
    listening = routers.start("b")
    routers.start("a", dials={"b": 1})
    wait_for(lambda: "a" in routers.costs("b"), "they are neighbours")
    started = routers.node("a", "a")["instance"]  # by which routers tell processes apart
    wait_for(lambda: int(time.time()) > started, "the next second")
    entity = ["connector", {"name": "b", **routers.connector("b", 1)}]
    other = RouterProcess([entity], router_id="a", default="balanced")
    try:
        wait_for(lambda: "router.neighbour.duplicate-id" in listening.errors(), "the second is refused")
        management = other.management()
        wait_for(lambda: "connected already" in str(management.one(CONNECTOR, "b")["connectionMsg"]), "it says why")
        management.close()
        assert "a" in routers.costs("b")
    finally:
        other.stop()


def test_a_client_opens_no_links_between_routers(routers: Routers) -> None:
    """The role of a listener decides: links of routers are refused, or ordinary ones, on those for clients."""
    process = routers.start("b")
    name = "to-clients"
    entity = ["connector", {"name": name, "host": "127.0.0.1", "port": str(process.port), "role": "inter-router"}]
    other = RouterProcess([entity], router_id="a", default="balanced")
    try:
        management = other.management()
        wait_for(lambda: "control link" in str(management.one(CONNECTOR, name)["connectionMsg"]), "it is refused")
        assert routers.costs("b") == {}
        management.close()
    finally:
        other.stop()


@pytest.mark.parametrize("role", [Role.ROUTER, Role.GATEWAY, None])
def test_a_router_proves_that_it_is_one(tmp_path: Path, role: Role | None) -> None:
    """By the credential of a router. That of another process, or none, does not do."""
    suite, port = Suite(tmp_path), free_port()
    sasl = {"saslMechanisms": "SCRAM-SHA-256", "authenticatePeer": True, "access": "inter-router"}
    mesh = ["listener", {"name": "mesh", "host": "127.0.0.1", "port": str(port), "role": "inter-router", **sasl}]
    dial: dict[str, Any] = {"name": "b", "host": "127.0.0.1", "port": str(port), "role": "inter-router"}
    settings = {}
    if role is not None:
        dial["saslMechanisms"] = "SCRAM-SHA-256"
        settings["credential"] = str(suite.credential_file(role))
    with ExitStack() as stack:
        listening = RouterProcess([mesh], router_id="b", default="balanced", settings={"peers": str(suite.file)})
        stack.callback(listening.stop)
        dialling = RouterProcess([["connector", dial]], router_id="a", default="balanced", settings=settings)
        stop = stack.enter_context(ExitStack())
        stop.callback(dialling.stop)
        management = listening.management()
        stack.callback(management.close)
        rows = partial(management.query, PREFIX + "router.node", "id", "routerLink")
        if role is Role.ROUTER:
            linked = {"a": True, "b": False}
            wait_for(
                lambda: {row["id"]: row["routerLink"] is not None for row in rows()} == linked, "they are neighbours"
            )
            revision = management.call("GET-REVISION")
            stop.close()
            wait_for(lambda: [row["id"] for row in rows()] == ["b"], "the other one is gone")
            assert management.call("GET-REVISION") != revision, "an agent looks again"
            return
        other = dialling.management()
        stack.callback(other.close)
        wait_for(lambda: other.one(CONNECTOR, "b")["connectionStatus"] == "FAILED", "it is refused")
        assert [row["id"] for row in rows()] == ["b"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"host": "0.0.0.0"}, "needs authenticatePeer true"),
        ({"host": "127.0.0.1", "access": "services"}, "belong together"),
        ({"host": "127.0.0.1", "access": "inter-router"}, "belong together"),
    ],
)
def test_a_listener_for_routers_that_others_reach_authenticates_them(
    router: RouterProcess, body: dict[str, Any], reason: str
) -> None:
    management = router.management()
    role = "normal" if "router" in body.get("access", "") else "inter-router"
    status, text, _ = management.call(
        "CREATE", {"role": role, "port": str(free_port()), **body}, type=LISTENER, name="mesh"
    )
    management.close()
    assert status == 400 and reason in text


def test_rows_of_a_router_alone(router: RouterProcess) -> None:
    management = router.management()
    rows = management.query(PREFIX + "router.node", "id", "cost", "nextHop")
    management.close()
    assert rows == [{"id": router.id, "cost": 0, "nextHop": "(self)"}]
