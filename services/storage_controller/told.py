"""What the configuration service knows of where addresses lie, and with it the routers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.storage_controller.core import Entry

Entries = Mapping[str, tuple[Entry, ...]]


class Told:
    """Reports of placements: one is made, and later taken in or refused; meanwhile addresses move again."""

    def __init__(self) -> None:
        self.answered = False
        """A report was taken in or refused on this connection."""
        self._taken: Entries | None = None
        """The placements as they were taken in."""
        self._making: Entries = {}
        self._moved: set[str] = set()
        """Addresses that have moved since the last report was made."""
        self._under_way: set[str] = set()
        """Those that have moved by the report that is not answered yet."""

    def moved(self, names: Iterable[str]) -> None:
        """These lie elsewhere, or their broker is another one."""
        self._moved.update(names)

    def made(self, entries: Entries) -> None:
        """A report says that."""
        self._making = entries
        self._under_way |= self._moved
        self._moved.clear()

    def answer(self, accepted: bool) -> set[str]:
        """The report was taken in; or refused: there is a brokers.json, and it is not for us to say where they lie.

        Gives the addresses that are known to lie where they do by that.
        """
        if accepted:
            self._taken = self._making
        self.answered = True
        names, self._under_way = self._under_way, set()
        return names - self._moved

    @property
    def unknown(self) -> set[str]:
        """Addresses of which nobody else knows yet where they lie."""
        return self._moved | self._under_way

    def is_unknown(self, name: str) -> bool:
        return name in self._moved or name in self._under_way

    def is_left_alone(self, name: str, broker: str) -> bool:
        """Whether by what was taken in no producer is led to the address on this broker."""
        if self._taken is None:
            return False
        return not any(entry.broker == broker and entry.state == "active" for entry in self._taken.get(name, ()))
