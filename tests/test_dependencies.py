"""Imports of the packages that are installed, compared with the dependencies that pyproject.toml declares."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = {"enmasse", "services", "spark", "charts", "demo", "tests", "benchmarks"}
EXTRAS = {
    "enmasse/spark": {"spark", "delta", "models"},
    "spark": {"spark", "delta", "charts"},
    "enmasse/kubernetes": {"kubernetes"},
    "enmasse/stores/redis.py": {"redis"},
    "enmasse/tracing/spans.py": {"otel"},
    "demo": {"dev", "spark", "charts"},
    "benchmarks": {"dev", "spark", "charts"},
    "tests": {"dev", "spark", "delta", "models", "charts", "kubernetes", "otel", "redis"},
}
"""Folder or file: extras whose packages it may import, in addition to the dependencies."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = packages_distributions()


def normalized(name: str) -> str:
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> set[str]:
    """Return the distributions that the dependencies and these extras name."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    return {normalized(found[0]) for line in lines if (found := re.match(r"[\w.-]+", line))}


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield statements and those inside them. Expressions, which are most of a tree, have no imports."""
    for each in body:
        yield each
        for inside in ("body", "orelse", "finalbody", "handlers", "cases"):
            if isinstance(found := getattr(each, inside, None), list):
                yield from statements(found)


@functools.cache
def imported(file: Path) -> set[str]:
    """Return the top-level packages that a file imports, without those of Python and of this repository."""
    names: set[str] = set()
    for node in statements(ast.parse(file.read_text()).body):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            names.add(node.module.partition(".")[0])
    return names - OURS - set(sys.stdlib_module_names)


@pytest.mark.parametrize("folder", ["enmasse", "services", "spark", "demo", "benchmarks", "tests"])
def test_every_imported_package_is_declared(folder: str) -> None:
    undeclared = set()
    for file in sorted((ROOT / folder).rglob("*.py")):
        path = str(file.relative_to(ROOT))
        extras = {extra for place, some in EXTRAS.items() if path.startswith(place) for extra in some}
        for name in imported(file):
            found = {normalized(distribution) for distribution in DISTRIBUTIONS.get(name, [])}
            if not found & declared(*extras):
                undeclared.add(f"{path} imports {name}, of {sorted(found) or 'no installed package'}")
    assert undeclared == set()


def test_every_declared_dependency_is_imported() -> None:
    files = [file for folder in ("enmasse", "services") for file in (ROOT / folder).rglob("*.py")]
    packages = {name for file in files for name in imported(file)}
    used = {normalized(distribution) for name in packages for distribution in DISTRIBUTIONS.get(name, [])}
    assert declared("kubernetes", "otel", "redis") - used == set()
