"""The table of address types: a further type is a row; no service compares the words."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from enmasse.model.address_types import TYPES, AddressType, Traits, type_of
from enmasse.model.addresses import Address, parse_addresses
from enmasse.model.brokers import HandMade, place
from enmasse.model.configuration import Applied, apply
from enmasse.model.feeds import Placement
from enmasse.model.flavors import Flavor
from enmasse.model.jsonfile import Document
from enmasse.model.names import AddressName
from enmasse.model.topic_map import TopicMap
from services.configserv.address_phases import Merger
from services.ragent import entities
from services.storage_controller.policies import address_settings

ROOT = Path(__file__).parents[2]
FORMS = {
    "services/broker": "entities and capabilities of a broker",
    "services/storage_controller": "entities on a broker",
    "services/ragent": "entities on a broker",
    "services/subserv/brokers/brokers.py": "entities of placements",
    "services/subserv/subscription_placement.py": "entities of placements",
    "enmasse/spark/receiver/spool_receiver.py": "capabilities of a link",
    "enmasse/supervisor/welcome.py": "examples",
}
"""Where the words stand for something else than types of addresses."""


def words(node: ast.AST) -> Iterator[str]:
    """Yield the types that a compared value names."""
    values = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    yield from (each.value for each in values if isinstance(each, ast.Constant) and each.value in TYPES)  # type: ignore[misc]  # a str then


def compared(file: Path) -> Iterator[int]:
    """Yield the lines in which something other than an entity is compared with a type."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Compare) or (isinstance(node.left, ast.Attribute) and node.left.attr == "entity"):
            continue
        if any(word for each in (node.left, *node.comparators) for word in words(each)):
            yield node.lineno


def test_services_ask_the_table_instead_of_comparing_words() -> None:
    files = [file for folder in ("enmasse", "services") for file in (ROOT / folder).rglob("*.py")]
    found = [f"{file.relative_to(ROOT)}:{line}" for file in files for line in compared(file)]
    assert len(found) > 10
    assert [each for each in found if not each.startswith(tuple(FORMS))] == []


def test_the_comparison_is_found(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text('a.type == "queue"\nb not in ("anycast", "x")\nc.entity == "queue"\nd == "other"\n')
    assert list(compared(file)) == [1, 2]


DEAD = cast(AddressType, "deadletter")
FLAVORS = {"f": Flavor(type="queue", template_name="queue-persisted")}


@pytest.fixture
def further(monkeypatch: pytest.MonkeyPatch) -> Address:
    """An address of a type that is a row of the table, and nothing else."""
    monkeypatch.setitem(TYPES, DEAD, Traits(entity="queue", flavor="queue", takes_dead_letters=True))
    entry: dict[str, Any] = {"type": "deadletter", "flavor": "f", "maxSize": 1000}
    other = {"type": "queue", "flavor": "f", "deadletter": "dead"}
    good, problems = parse_addresses(Document("addresses.json", "{}", {"dead": entry, "q": other}, []), FLAVORS)
    assert problems == []
    return good[AddressName("dead")]


def test_a_further_type_is_carried_as_its_traits_tell(further: Address) -> None:
    name = AddressName("dead")
    assert further.type == DEAD == type_of({"type": DEAD})
    assert further.entity == "queue"
    placed = place({"b": HandMade(host="h", port=1, flavors=("f",))}, {name: further}).addresses[name]
    assert placed == [Placement(broker="b", type="queue")]
    queue = Address(type="queue", flavor="f", max_size=1000)
    work = entities.work_for(further.type, placed)
    assert work == entities.work_for("queue", placed)
    assert entities.of_address(name, work) == entities.of_address(name, entities.work_for("queue", placed))
    engine: Any = importlib.import_module("enmasse.engines.embedded").BROKER
    assert address_settings(name, further, engine) == address_settings(name, queue, engine)
    owner = TopicMap({name: further}).owner("dead/x")
    assert owner is not None and (owner.name, owner.wire, owner.to) == ("dead", "dead", "dead/x")
    merger = Merger(("ragent", "storage_controller"))
    assert merger._needs[DEAD] == merger._needs["queue"]


def test_a_further_type_is_taken_from_the_files(further: Address) -> None:
    """Its flavor has the type that the row states, which is not its own."""
    texts = {
        "addresses.json": b'{"dead": {"type": "deadletter", "flavor": "f"}}',
        "flavors.json": b'{"f": {"type": "queue", "templateName": "queue-persisted"}}',
    }
    applied = apply(texts, Applied())
    assert (list(applied.state.addresses), applied.problems) == (["dead"], [])


def test_both_notations_state_each_type() -> None:
    for name, traits in TYPES.items():
        assert type_of({"type": name}) == name
        assert type_of({"store_and_forward": traits.stored, "multicast": traits.fan_out}) == name
    assert type_of({"store_and_forward": 1, "multicast": False}) is type_of({"type": []}) is type_of({}) is None
