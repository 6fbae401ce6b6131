"""The list of differences names tests that there are, and documentation says each difference."""

from __future__ import annotations

import re
from pathlib import Path

from tests.router.differences import CONTRACT, DISPATCH_DIFFERS
from tests.router.harness import ROOT


def test_every_name_is_that_of_a_test_of_the_contract() -> None:
    folder = Path(__file__).parent
    tests: set[str] = set()
    for module in CONTRACT:
        tests |= set(re.findall(r"^def (test_\w+)", (folder / f"{module}.py").read_text(), re.MULTILINE))
    assert DISPATCH_DIFFERS.keys() <= tests


def test_the_documentation_names_each_difference() -> None:
    text = (ROOT / "docs" / "engines.md").read_text()
    assert [what for what in set(DISPATCH_DIFFERS.values()) if what not in text] == []
