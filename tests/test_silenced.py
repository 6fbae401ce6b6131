"""Checks that are silenced for a line: the line states why."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SILENCED = re.compile(r"# (?:type: ignore(?:\[[\w\-, ]+\])?|noqa(?:: ?[A-Z]+\d+(?:, ?[A-Z]+\d+)*)?)(?P<reason>.*)$")


def test_a_line_that_silences_a_check_states_why() -> None:
    folders = ("enmasse", "services", "spark", "charts", "images", "benchmarks", "demo", "tools", "tests")
    without = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := SILENCED.search(line)) and not re.search(r"\w{3}", found["reason"])
    ]
    assert without == []
