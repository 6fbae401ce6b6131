"""Why the suite cannot start."""

from __future__ import annotations


class StartError(Exception):
    """The suite cannot start. `lines`: what is wrong, where, and what to do about it."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
