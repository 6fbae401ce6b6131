"""The table of exit statuses in docs/cli.md: each of its cells has a case in `statuses`, and is what a command does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.running import ENMASSE, free_offset
from tests.cli.statuses import of_configuration, of_frame, of_messaging, of_operators, of_programs, of_suite
from tests.cli.statuses.cases import CASES, Case
from tests.kit.waiting import DEADLINE

GROUPS = (of_configuration, of_frame, of_messaging, of_operators, of_programs, of_suite)
"""Groups of commands: each module adds its cases to CASES."""
DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
ELSEWHERE = [
    ("connection", 0), ("connection", 1), ("space", 0), ("space", 1), ("plan", 0), ("plan", 1), ("token", 0),
    ("top", 0), ("events", 0), ("events", 1),
    *(("context", n) for n in range(3)),
]  # fmt: skip
"""Cells that tests/console has, with a console that answers: test_commands, test_spaces, test_top, test_contexts."""


def of_the_table() -> list[tuple[str, int]]:
    """Command and status of each cell that says something."""
    lines = DOCS.read_text().split("## Exit statuses")[1].split("\n## ")[0].splitlines()
    heads, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [
        (name.strip("`"), int(status))
        for name, *cells in rows
        for status, cell in zip(heads[1:], cells, strict=True)
        if cell
    ]


def test_the_table_has_no_other_cells() -> None:
    assert sorted(of_the_table()) == sorted([*CASES, *ELSEWHERE])


@pytest.mark.parametrize(
    ("run", "status"),
    [
        pytest.param(
            run,
            status,
            id=f"{command}-{status}-{run.__qualname__.partition('.')[0]}",
            marks=[pytest.mark.slow] if run in of_frame.OF_THE_FRAME else [],
        )
        for (command, status), runs in CASES.items()
        for run in runs
    ],
)
def test_each_cell(run: Case, status: int, tmp_path: Path) -> None:
    assert run(tmp_path) == status


def test_what_cannot_be_said_changes_no_status(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        for arguments in (["status", "--port-offset", str(free_offset())], ["send", "-a", "127.0.0.1:1/q", "x"]):
            assert subprocess.run([ENMASSE, *arguments], stderr=full, timeout=DEADLINE).returncode == 4
        assert subprocess.run([ENMASSE, "send"], stderr=full, timeout=DEADLINE).returncode == 2
