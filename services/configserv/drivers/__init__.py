"""Where configuration is read from. `files.py`: a directory. One for Kubernetes (labelled ConfigMaps) comes here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from enmasse.model.configuration import Content

Contents = dict[str, Content]
"""File → what is in it: the same three names whatever the source."""


class Driver(Protocol):
    """Reads the configuration and reports changes. What it gives is always the whole."""

    def start(self, changed: Callable[[Contents], None]) -> None:
        """Calls `changed` once before it returns, where the source is complete, and after every change."""

    def close(self) -> None:
        """No more calls."""
