"""The table of clauses in docs/mqtt-clauses.md: `python -m tests.conformance.table` writes it.

Joins the clauses with the marks of the tests, as pytest collects them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.clauses import CLAUSES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mqtt-clauses.md"
HEAD = """# MQTT: the clauses and their tests
Every numbered statement of MQTT 3.1.1 and MQTT 5.0 in our words, with the tests of this repository that show it.
Statements that bind only clients, and those on what the gateway does not do, name the reason instead.
What is *not met* has a test that fails; docs/mqtt.md says what happens instead.
`python -m tests.conformance.table` writes this page; a test fails if it is stale, or if a statement has neither.
"""
TITLES = {"v3.1.1": "MQTT 3.1.1", "v5": "MQTT 5.0"}


class Marked:
    """Plug-in of pytest: (version, number) → tests, as `file: name`."""

    def __init__(self) -> None:
        self.tests: dict[tuple[str, str], dict[str, None]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            file, _, name = item.nodeid.partition("::")
            for mark in item.iter_markers("clause"):
                version, *numbers = mark.args
                for number in numbers:
                    test = f"{Path(file).relative_to('tests')}: {name.partition('[')[0]}"
                    if item.get_closest_marker("xfail") is not None:
                        test = f"**not met** ({test})"
                    self.tests.setdefault((version, number), {})[test] = None


def collected() -> dict[tuple[str, str], dict[str, None]]:
    """Raises RuntimeError if pytest cannot collect the tests."""
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    files = [str(file.relative_to(ROOT)) for file in found if "clause" in file.read_text()]
    marked = Marked()
    options = ["--collect-only", "-qqq", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "--strict-markers"]
    if status := pytest.main([*options, *files], plugins=[marked]):
        raise RuntimeError(f"pytest ended with {status!r} while it collected the tests")
    return marked.tests


def problems(tests: dict[tuple[str, str], dict[str, None]]) -> Iterator[str]:
    known = {(clause.version, clause.number): clause for clause in CLAUSES}
    for key, clause in known.items():
        if not clause.reason and key not in tests:
            yield f"{clause.version} {clause.number}: no test"
    for version, number in tests.keys() - known.keys():
        if number.startswith("MQTT-") or version not in TITLES:
            yield f"{version} {number}: there is no such statement ({', '.join(tests[version, number])})"


def page(tests: dict[tuple[str, str], dict[str, None]]) -> str:
    lines = [HEAD]
    for version, title in TITLES.items():
        lines += [f"## {title}", "| clause | statement | tests |", "|---|---|---|"]
        for clause in CLAUSES:
            if clause.version == version:
                names = tests.get((version, clause.number), {})
                what = "; ".join(names) if names else f"— {clause.reason}"
                lines.append(f"| {clause.number.removeprefix('MQTT-')} | {clause.statement} | {what} |")
        lines += ["", f"### Sections of {title} whose rules have no number", "| section | tests |", "|---|---|"]
        sections = [number for known, number in tests if known == version and not number.startswith("MQTT-")]
        for section in sorted(sections, key=lambda number: [int(part) for part in number.split(".")]):
            lines.append(f"| {section} | {'; '.join(tests[version, section])} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    tests = collected()
    found = list(problems(tests))
    print("\n".join(found), file=sys.stderr)
    text = page(tests)
    if "--check" in sys.argv:
        if PAGE.read_text() != text:
            found.append("stale")
            print(f"{PAGE.relative_to(ROOT)} is stale: run python -m tests.conformance.table", file=sys.stderr)
        return bool(found)
    PAGE.write_text(text)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
