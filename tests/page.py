"""The programs of a page of the documentation, as they stand there.

A program is its files (each a line with its name in backquotes and a colon, then the block), one block `sh` with the
commands and one block `text` with what it prints, in this order.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from enmasse.testing import Suite
from tests.kit.waiting import DEADLINE

DOCS = Path(__file__).parents[1] / "docs"
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

    def write(self, folder: Path, suite: Suite, replaced: Mapping[str, str] | None = None) -> None:
        """Put the files into a folder that looks like the project's, with this suite's ports and other texts replaced.

        folder: made if it is not there.
        """
        folder.mkdir(exist_ok=True)
        for name, text in self.files.items():
            ports = {str(port): str(port + suite.offset) for port in (5672, 8088, 61613, 5683)}
            ports["1883"] = str(suite.mqtt_port)
            for old, new in {**ports, **(replaced or {})}.items():
                text = text.replace(old, new)
            (folder / name).write_text(text)
        (folder / ".venv").symlink_to(sys.prefix)

    def environment(self, suite: Suite) -> dict[str, str]:
        """In which the `enmasse` commands are for this suite."""
        return {**os.environ, "ENMASSE_PORT_OFFSET": str(suite.offset)}

    def run(
        self, command: str, folder: Path, suite: Suite, timeout: float = DEADLINE
    ) -> subprocess.CompletedProcess[str]:
        """Run one of the commands; all but the last must succeed."""
        environment = self.environment(suite)
        done = subprocess.run(
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == 0 or command == self.each[-1], done.stderr
        return done


def programs(page: str) -> list[Program]:
    """Raises ValueError for a block that belongs to no program: nobody would run it."""
    found, now = [], Program()
    for name, language, text in FENCE.findall((DOCS / page).read_text()):
        if name:
            now.files[name] = text
        elif language == "sh":
            commands = text.splitlines()
            now.once = [command for command in commands[:-1] if ".venv/" not in command]
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
