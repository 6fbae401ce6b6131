"""A program for tests/cli/test_launch.py: writes what it is, waits for a signal, or ends with a status."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import msgspec

from enmasse.process.late_imports import imported

IMPORTED_BY = os.getpid()
EVALUATED_BY: list[int] = []
"""Processes that have evaluated the annotations of `Settings`."""


def _text() -> Any:
    EVALUATED_BY.append(os.getpid())
    return str


class Settings(msgspec.Struct):
    """A type whose annotation states who evaluates it."""

    name: _text()  # type: ignore[valid-type]  # msgspec evaluates it


def main() -> None:
    """Print a line of JSON about this process; then do what the second argument states."""
    msgspec.json.decode(b'{"name": ""}', type=Settings)
    about = {
        "pid": os.getpid(), "parent": os.getppid(), "group": os.getpgid(0), "arguments": sys.argv[1:],
        "imported_by": IMPORTED_BY, "evaluated_by": EVALUATED_BY, "module": __name__, "umask": os.umask(0o077),
        "input": os.readlink("/proc/self/fd/0"),
        "files": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    }  # fmt: skip
    print(json.dumps(about), flush=True)
    match sys.argv[1]:
        case "wait":
            signal.pause()
        case "late":  # who has imported the module before the client that needs it comes, and now
            before = name if (name := sys.argv[2]) in sys.modules else ""
            module = asyncio.run(imported(name))
            print(json.dumps({"before": before, "imported_by": getattr(module, "IMPORTED_BY", None)}), flush=True)
        case "exit":
            raise SystemExit(int(sys.argv[2]))
        case "raise":
            raise RuntimeError("the end of the program")


if __name__ == "__main__":
    main()
