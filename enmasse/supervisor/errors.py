"""The error that ends a start of the suite."""

from __future__ import annotations


class StartError(Exception):
    """Raised if the suite cannot start. `lines`: what is wrong, where, and what to do."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
