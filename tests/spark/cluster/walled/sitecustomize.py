"""For Python on a worker: what is below WALLED_OFF is on another machine, and does not exist here.

Each attempt to see it is noted in the file WALL_NOTES.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def wall(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and arguments:
        path = arguments[0]
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(os.environ["WALLED_OFF"]):
            with open(os.environ["WALL_NOTES"], "a") as notes:
                notes.write(f"{event} {path}\n")
            raise FileNotFoundError(f"on another machine: {path}")


sys.addaudithook(wall)
