"""The check of commit messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "commit_subject.py"


def check(file: Path, message: str) -> str:
    """Return what the check says of a message; empty if it takes it."""
    file.write_text(message)
    done = subprocess.run([sys.executable, TOOL, file], capture_output=True, text=True, check=False)
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr


@pytest.mark.parametrize(
    "message",
    [
        "A queue that is full says so",
        f"{'A subject of 71 characters'.ljust(71, '.').removesuffix('.')}s\n\nWhy.",
        "`make release` makes two commits\n\nBody.\n# Please enter the commit message",
        "users.json is read again",
        "fixup! A queue that is full says so",
        "Revert \"A queue that is full says so; and more\"",
    ],
)  # fmt: skip
def test_messages_that_say_one_thing_are_taken(message: str, tmp_path: Path) -> None:
    assert check(tmp_path / "message", message) == ""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("x", "does not state the change"),
        ("WIP", "does not state the change"),
        ("", "does not state the change"),
        ("# only a comment\n", "does not state the change"),
        ("a queue that is full says so", "small letter"),
        ("A" * 72, "72 characters"),
        ("A queue that is full says so.", "full stop"),
        ("A queue says so; topics too", "two parts"),
        ("A queue that is full says so\nand why", "second line"),
    ],
)
def test_others_are_refused_with_the_reason(message: str, reason: str, tmp_path: Path) -> None:
    assert reason in check(tmp_path / "message", message)
