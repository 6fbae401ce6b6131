"""The programs of a page of the documentation, as they stand there.

A program is its files (each a line with its name in backquotes and a colon, then the block), one block `sh` with the
commands and one block `text` with what it prints, in this order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"(?:^`([^`\n]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass
class Program:
    """One program and its commands.

    once: commands that fetch libraries. each: commands that belong to a run, the last of them is the program itself.
    """

    files: dict[str, str] = field(default_factory=dict)
    once: list[str] = field(default_factory=list)
    each: list[str] = field(default_factory=list)
    output: str = ""

    @property
    def name(self) -> str:
        return list(self.files)[-1]


def programs(page: str) -> list[Program]:
    """Raises ValueError for a block that belongs to no program: nobody would run it."""
    found, now = [], Program()
    for name, language, text in FENCE.findall((DOCS / page).read_text()):
        if name:
            now.files[name] = text
        elif language == "sh":
            commands = text.splitlines()
            now.once = [command for command in commands[:-1] if not command.startswith(".venv/")]
            now.each = [command for command in commands if command not in now.once]
        elif language == "text" and now.files and now.each:
            now.output = text
            found.append(now)
            now = Program()
        else:
            raise ValueError(f"{page}: this block has no name, or no commands: {text}")
    if now != Program():
        raise ValueError(f"{page}: {now.name} has no output")
    return found
