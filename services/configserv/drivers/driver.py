"""What a driver is: it reads the configuration, wherever that lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from enmasse.model.configuration import Content

Contents = dict[str, Content]
"""File → what is in it: the same three names whatever the source."""


class Driver(Protocol):
    """Reads the configuration and reports changes. What it gives is always the whole."""

    def start(self, changed: Callable[[Contents], None]) -> None:
        """Calls `changed` as soon as the source can be read, before it returns if possible, and after each change."""

    def close(self) -> None:
        """No more calls."""
