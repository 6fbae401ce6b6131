"""Interface of the drivers, which read the configuration from files or ConfigMaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from enmasse.model.configuration import Content

Contents = dict[str, Content]
"""File → its content. The three names are the same for all sources."""


class Driver(Protocol):
    """Reader of the configuration, which reports all of it after each change."""

    def start(self, changed: Callable[[Contents], None]) -> None:
        """Call `changed` as soon as the source can be read, before it returns if possible, and after each change."""

    def close(self) -> None:
        """Stop calling `changed`."""
