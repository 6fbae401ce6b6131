"""Removed address spaces of which something may be left: until nothing is, no space gets their name. No sockets.

First their addresses go, and the holder of queues (STORAGE_CONTROLLER) states that no broker has anything of them. Only
then the other holders are asked, whose stores nothing can reach any longer by way of a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from enmasse.identity.processes.roles import Role
from enmasse.model import feeds
from enmasse.model.names import space_prefix, split_name
from enmasse.process import runner
from services.configserv.address_phases import Merger

FIRST: Final = Role.STORAGE_CONTROLLER
MOST: Final = 5
"""Addresses that a text names."""


class Endings:
    """The removals that are in force (`now`), and the roles that have confirmed them. `holders`: those that have to."""

    def __init__(self, holders: Iterable[str], merger: Merger) -> None:
        self.now: Mapping[str, str] = {}
        """Removed space → id of its removal."""
        self.left: Mapping[str, str] = {}
        """Removed space → its remains, and what to do; a space that is missing here is gone."""
        self._holders = tuple(sorted(holders, key=lambda role: role != FIRST))
        self._merger = merger
        self._confirmed: dict[str, set[str]] = {}
        """Id of a removal → roles that have nothing left of it."""

    def configure(self, ending: Mapping[str, str]) -> None:
        """Take the removals of the configuration in force."""
        self.now = ending
        self._confirmed = {id: self._confirmed.get(id, set()) for id in ending.values()}
        self.look()

    def confirm(self, role: str, ended: Mapping[str, str]) -> None:
        """Note that a role has nothing left of these removals."""
        for space, id in ended.items():
            if self.now.get(space) == id:
                self._confirmed[id].add(role)

    def look(self) -> bool:
        """Find the remains. Return whether they are others than before."""
        before = self.left
        self.left = {space: text for space, id in self.now.items() if (text := self._left(space, id))}
        return self.left != before

    def at_brokers(self) -> feeds.Ending | msgspec.UnsetType:
        """Return the removals that the holder of queues is asked for."""
        return dict(self.now) or msgspec.UNSET

    def in_stores(self) -> feeds.Ending | msgspec.UnsetType:
        """Return the removals that the other holders are asked for: no broker has anything of these."""
        found = {space: id for space, id in self.now.items() if FIRST not in self._missing(id)}
        return found or msgspec.UNSET

    def _missing(self, id: str) -> list[str]:
        return [role for role in self._holders if role not in self._confirmed[id]]

    def _left(self, space: str, id: str) -> str:
        prefix = space_prefix(space)
        names = [split_name(name).local for name in self._merger.known() if name.startswith(prefix)]
        if names:
            listed = ", ".join(map(repr, names[:MOST])) + (", …" if len(names) > MOST else "")
            remedy = runner.command(f"space remove {space} --force")
            return f"being removed: {listed}; receive the messages that wait there, or discard them: {remedy}"
        missing = self._missing(id)
        if not missing:
            return ""
        asked = missing[:1] if missing[0] == FIRST else missing
        return f"{', '.join(asked)} has yet to confirm that, which takes seconds: start it if it does not run"
