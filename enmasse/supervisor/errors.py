"""The error that ends a start of the suite."""

from __future__ import annotations

from enmasse.errors import marked


class StartError(Exception):
    """Raised if the suite cannot start. `id`: an entry of enmasse/errors.py; `lines`: what is wrong, where, and what to
    do."""

    def __init__(self, id: str, *lines: str) -> None:
        self.lines = (*lines[:-1], marked(id, lines[-1]))
        super().__init__("\n".join(self.lines))
