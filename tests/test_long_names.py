"""Names that clients state may have megabytes: what is done for one does not grow with the number of its levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from proton import Message

from enmasse.identity.permissions import Permissions
from enmasse.identity.principal import Principal
from enmasse.model.addresses import Address
from enmasse.model.names import AddressName
from enmasse.model.topic_map import TopicMap
from enmasse.model.users import Granted, Permission
from services.broker.core.wildcards import parents
from services.broker.producers import RelayProducer
from services.console.following.configuration import Configuration
from tests.broker.sansio import Core
from tests.test_name_tries import calls

FEW = 2000
"""Calls of functions: a name of the longest that is legal has 512 levels."""
EVE = Principal("eve")


def _rights() -> Any:
    permissions = (
        Permission(effect="allow", operations=("send", "recv"), addresses=("t/#", "a/b/#")),
        Permission(effect="deny", operations=("send", "recv"), addresses=("t/secret/#",)),
    )
    return Permissions({"eve": Granted(permissions=permissions)}).rights(EVE)


def _topics(*names: str) -> TopicMap:
    return TopicMap({AddressName(name): Address(type="topic", flavor="f") for name in names})


def _core() -> Core:
    core = Core()
    core.broker.catalogue.create_address("t", frozenset({"MULTICAST"}))
    return core


LOOKS: dict[str, Callable[[], Callable[[str], Any]]] = {
    "a right": lambda: lambda name: _rights().allows("send", name),
    "a right on a filter": lambda: lambda name: _rights().covers("recv", name + "/#"),
    "a topic": lambda: _topics("t").owner_of_wire,
    "a topic beside one with a dot": lambda: _topics("t", "a.b").owner_of_wire,
    "a topic of MQTT": lambda: _topics("t", "a.b").topic_of,
    "a route of a broker": lambda: lambda name: _core().broker.catalogue.route(name, None),
    "an address of a broker": lambda: lambda name: list(parents(name)),
    "an address of the console": lambda: Configuration("localhost:1", "c", None).owner_of,
}


@pytest.mark.parametrize("begin", ["t", "x"])
@pytest.mark.parametrize("look", LOOKS)
def test_a_long_name_takes_few_steps(look: str, begin: str) -> None:
    find, name = LOOKS[look](), begin + "/b" * 30_000
    assert calls(lambda: find(name)) < FEW


def test_what_is_decided_of_long_names_is_not_kept() -> None:
    rights, name = _rights(), "t" + "/b" * 30_000
    assert rights.allows("send", name) and rights.covers("recv", name + "/#").allowed
    assert not rights._decided and not rights._covered

    core = _core()
    nodes: Any = type("Nodes", (), {"broker": core.broker, "check_send": id, "check_name": id})
    nothing: Any = None
    producer = RelayProducer(nodes, nothing, nothing, "", nothing)
    for each, kept in ((name, 0), ("t/b", 1)):
        route = producer._route_of(bytes(Message(b"x", address=each).encode()))
        assert route is not None and route.name == each and len(producer._known) == kept


@pytest.mark.parametrize("name", ["a", "/a", "a/", "a//b", "a/b/c", "/"])
def test_parents_of_a_name(name: str) -> None:
    found, rest = [], name
    while "/" in rest:
        rest = rest.rpartition("/")[0]
        found.append(rest)
    assert list(parents(name)) == found
