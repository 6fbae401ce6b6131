"""Errors of the configuration as lines for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def error_lines(errors: Iterable[dict[str, Any]]) -> list[str]:
    """`errors` of the status JSON as lines: file, line, entry, field, reason."""
    lines = []
    for error in errors:
        where = str(error.get("file", "?"))
        if error.get("line"):
            where += f":{error['line']}"
        parts = [f"{key} {error[key]!r}" for key in ("entry", "field") if error.get(key)]
        lines.append(": ".join([where, *([", ".join(parts)] if parts else []), str(error.get("reason", ""))]))
    return lines
