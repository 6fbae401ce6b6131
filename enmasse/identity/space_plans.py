"""Plans of address spaces, and their removals, as a process that serves their clients knows them. No sockets."""

from __future__ import annotations

from collections.abc import Mapping, Set

from enmasse.model.feeds import PermissionChanges, ReachedSpace
from enmasse.model.tenants.plans import NO_LIMITS, SpaceLimits


class SpacePlans:
    """The plans in force, by the names of spaces."""

    def __init__(self) -> None:
        self._spaces: Mapping[str, ReachedSpace] = {}

    def configure(self, spaces: Mapping[str, ReachedSpace]) -> None:
        """Take other spaces, plans or limits."""
        self._spaces = spaces

    def limits(self, space: str) -> SpaceLimits:
        """Return the limits of a space."""
        found = self._spaces.get(space)
        return NO_LIMITS if found is None else found.limits

    def all_limits(self) -> dict[str, SpaceLimits]:
        """Return the limits of the spaces that have a plan."""
        return {name: space.limits for name, space in self._spaces.items() if space.plan}

    def plan(self, space: str) -> str:
        """Return the name of the plan of a space; empty without one."""
        found = self._spaces.get(space)
        return "" if found is None else found.plan

    @property
    def limited(self) -> bool:
        """Return whether a space has limits."""
        return any(space.plan for space in self._spaces.values())

    def full(self, space: str, limit: int | None, used: int, things: str) -> str:
        """Return why a space may not have one more of these things, of which it has `used`; empty if it may."""
        if limit is None or used < limit:
            return ""
        return used_up(used, limit, things, self.plan(space))


class EndingSpaces:
    """Removed spaces that the configuration service asks about: nothing may be left of them, nor be made."""

    def __init__(self) -> None:
        self.now: Mapping[str, str] = {}
        """Removed space of which nothing may be left here → id of its removal."""
        self._ended: Set[str] = frozenset()
        """Spaces that were among them since the process started, and are not there again."""

    def take(self, body: PermissionChanges) -> None:
        """Take what a message of the feed states."""
        self.now = body.ending or {}
        self._ended = (self._ended | self.now.keys()) - (body.spaces or {}).keys()

    def has(self, space: str) -> bool:
        """Return whether a space was removed, so that nothing may be made for it. One that is not known may be new."""
        return space in self._ended


def used_up(used: int, limit: int, things: str, plan: str, remedy: str = "end one of them") -> str:
    """Return the text about a limit of a plan that is reached."""
    return f"{used} of {limit} {things} of the plan {plan!r} are used: {remedy}, or ask for another plan of the space"
