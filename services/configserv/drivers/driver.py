"""Interface of the drivers, which read the configuration from files or ConfigMaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from enmasse.model.merged import Content, FilePart

Contents = dict[str, Content]
"""File → its content. The three names are the same for all sources."""


Edit = Callable[[Sequence[FilePart], str], dict[str, bytes]]
"""(sources of a file, name of the one for new entries) → new contents of the sources that change. It is called in a
thread, and again if a source was changed meanwhile."""


class NotWritable(Exception):
    """The source cannot be written by this service; the text has the reason, and what to do."""


class Driver(Protocol):
    """Reader of the configuration, which reports all of it after each change."""

    def start(self, changed: Callable[[Contents], None]) -> None:
        """Call `changed` as soon as the source can be read, before it returns if possible, and after each change."""

    @property
    def contents(self) -> Contents:
        """Return the contents that `changed` was called with last."""

    async def edit(self, file: str, edit: Edit) -> None:
        """Change a file durably, so that changes that others make at the same time stay. `changed` is called later.
        Raises NotWritable, OSError, and what `edit` raises."""

    async def check(self, file: str, edit: Edit) -> None:
        """Call `edit` with the sources of a file, and change nothing: changes do not wait for that. Raises NotWritable,
        OSError, and what `edit` raises."""

    async def remove_files(self, space: str) -> None:
        """Remove the files of an address space that no longer has an entry, where they are this service's to remove.
        Raises OSError."""

    def close(self) -> None:
        """Stop calling `changed`."""
