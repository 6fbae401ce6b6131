"""Pictures of the terminal for the docs."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_MOVES = re.compile(r"\x1b\[\??[0-9;]*[A-Zhl]")
"""Sequences that move the cursor or clear, but no colours."""


def picture(name: str, command: str, shown: str, columns: int = 100) -> None:
    """Write a picture of a command and its output, if `make pictures` runs the tests: docs/pictures/NAME.svg."""
    if "ENMASSE_PICTURES" not in os.environ:
        return
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi(_MOVES.sub("", shown).rstrip()))
    svg = console.export_svg(title=command)
    svg = _FONTS.sub("", svg)  # they would be fetched from elsewhere
    (PICTURES / f"{name}.svg").write_text("\n".join(line.rstrip() for line in svg.splitlines()).strip() + "\n")
