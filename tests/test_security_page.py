"""docs/security.md: the tests that it names exist, and each CVE has a test or a reason."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text()
CVES = {
    "CVE-2015-0203", "CVE-2018-12546", "CVE-2018-12550", "CVE-2018-12551", "CVE-2020-13849", "CVE-2021-28166",
    "CVE-2021-34434", "CVE-2022-23913", "CVE-2023-0809", "CVE-2023-28366", "CVE-2023-3592", "CVE-2026-39304",
    "CVE-2026-55225",
}  # fmt: skip


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the names of the tests in a file."""
    found = ast.walk(ast.parse((ROOT / file).read_text()))
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_tests_that_are_named_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)
    assert len(named) > 40
    missing = [f"{file}::{name}" for file, name in named if not (ROOT / file).is_file()]
    assert missing == []
    assert [f"{file}::{name}" for file, name in named if name and name not in names_in(file)] == []


def test_each_cve_has_a_row_with_an_answer() -> None:
    rows = {cells[1].strip(): cells[-2].strip() for cells in (row.split("|") for row in PAGE.splitlines()) if cells[1:]}
    assert {name for name in rows if name.startswith("CVE-")} == CVES
    assert all("::" in rows[name] or len(rows[name]) > 40 for name in CVES)


def test_the_chart_grants_nothing_outside_of_its_namespace() -> None:
    """But in namespaces that the administrator names, by bindings there (`customResources.namespaces`)."""
    templates = sorted((ROOT / "charts").rglob("templates/**/*.yaml"))
    assert templates
    of_clusters = {file.name: re.findall(r"kind: (ClusterRole\w*)", file.read_text()) for file in templates}
    granted = {name: kinds for name, kinds in of_clusters.items() if kinds}
    assert granted == {"custom-resources.yaml": ["ClusterRole", "ClusterRole"]}, "the role, and a reference to it"
