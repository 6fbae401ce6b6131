"""The table of statements in messages: docs show it, and no annotation is read that it does not have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from enmasse.identity.annotations import BROKERS_FACTS, FACTS, OF_FACTS, TABLE, Fate, table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "identity.md"
_NAME = re.compile(r"""["'](x-opt-[A-Za-z-]*[A-Za-z.])["']""")
_NOT_ANNOTATIONS = {"x-opt-consumer", "x-opt-enmasse-for-owner", "x-opt-enmasse-space"}
"""Names of other maps: the info of an error, the properties of a link."""


def test_docs_show_the_table() -> None:
    assert table() in PAGE.read_text(), "it is printed by `python -m enmasse.identity.annotations`"


def test_names_are_written_in_the_table_alone() -> None:
    """Who reads another annotation has to say in the table whose it is."""
    elsewhere = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("enmasse", "services")
        for path in (ROOT / folder).rglob("*.py")
        if path.relative_to(ROOT) != Path("enmasse/identity/annotations.py")
        for name in _NAME.findall(path.read_text())
        if name not in _NOT_ANNOTATIONS
    }
    assert elsewhere == set()
    source = (ROOT / "enmasse/identity/annotations.py").read_text()
    for name in _NAME.findall(source):
        assert any(each.name == name or (each.is_prefix and name.startswith(each.name)) for each in TABLE), name


def test_each_name_is_there_once() -> None:
    assert len({each.name for each in TABLE}) == len(TABLE)
    assert set(BROKERS_FACTS) < set(FACTS) < set(TABLE)


@pytest.mark.parametrize("each", TABLE, ids=lambda each: each.name)
def test_facts_are_found_and_others_are_not(each: object) -> None:
    assert isinstance(each, type(TABLE[0]))
    name = each.name + "ADDRESS" * each.is_prefix
    fact = each.fate is not Fate.KEPT
    assert OF_FACTS.has(name) is fact
    assert (OF_FACTS.pattern.search(name.encode()) is not None) is fact
    assert OF_FACTS.without({name: 1, "x-opt-mine": 2, 7: 3}) == {"x-opt-mine": 2, 7: 3} | ({} if fact else {name: 1})
    assert not OF_FACTS.has(f"x-{name}")
