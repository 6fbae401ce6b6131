"""Errors of the configuration as lines for users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MAX_LINES = 100

INSECURE = {
    "anonymous": "clients of other machines may connect without credentials",
    "plaintext": "passwords and messages of clients of other machines can be read on the network",
}
"""Word → meaning of what `enmasse up` was allowed to do."""
NOT_ASKED = "AMQP clients need no credentials: this router asks for the users when `enmasse up` has been started again"
"""State of a router whose listeners were made before there were users."""


def error_lines(errors: Sequence[dict[str, Any]]) -> list[str]:
    """Return `errors` of the status JSON as lines: file, line, entry, field, reason. A long list is cut, with a count
    of the rest.
    """
    lines = []
    for error in errors[:MAX_LINES]:
        where = str(error.get("file", "?"))
        if error.get("line"):
            where += f":{error['line']}"
        parts = [f"{key} {error[key]!r}" for key in ("entry", "field") if error.get(key)]
        lines.append(": ".join([where, *([", ".join(parts)] if parts else []), str(error.get("reason", ""))]))
    if len(errors) > MAX_LINES:
        lines.append(f"… and {len(errors) - MAX_LINES} more errors; `enmasse status --json` shows all")
    return lines
