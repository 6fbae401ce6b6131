"""For Python on a worker: what is below WALLED_OFF is on another machine, and does not exist here.

Each attempt to see it is noted in the file WALL_NOTES, and so is where the source's reader is imported from.
"""

from __future__ import annotations

import os
import sys
from typing import Any

READER = "enmasse/spark/source/source.py"


def wall(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and arguments:
        path = arguments[0]
        if isinstance(path, str | os.PathLike):
            is_hidden = os.fspath(path).startswith(os.environ["WALLED_OFF"])
            if is_hidden or os.fspath(path).endswith(READER):
                with open(os.environ["WALL_NOTES"], "a") as notes:
                    notes.write(f"{event} {path}\n")
            if is_hidden:
                raise FileNotFoundError(f"on another machine: {path}")


sys.addaudithook(wall)
