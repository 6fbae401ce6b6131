"""Brokers of a flavor get new settings one at a time: the next one is restarted when all its others work again. Pure.

A broker without addresses keeps nobody waiting, and is restarted at once; so is one that is down anyway: a change that
breaks brokers stops at the first one, and the change that mends it begins there. A PodDisruptionBudget of the flavor
agrees: it counts the broker that is being restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from services.storage_controller.placement import Placer


class Rollout:
    """Which brokers are away from their addresses, for a restart or for whatever."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._under_way: set[str] = set()
        self._down: Collection[str] = ()
        self._away: dict[str, set[str]] = {}
        """Flavor → its brokers that some addresses wait for."""

    def look(
        self, wanted: Mapping[str, str], down: Collection[str], works: Callable[[str], bool], *, now: bool
    ) -> None:
        """Finds out anew who is away. `wanted`: broker → flavor. `down`: brokers that are known not to run.
        `works(broker)`: it runs by what was applied, and is known to.

        `now`: it is known what runs since the last `begin`: a restart may be over.
        """
        working = {name for name in wanted if works(name)} - self._unsettled()
        if now:
            self._under_way -= working
        self._under_way &= wanted.keys()
        self._down, self._away = down, {}
        for name, flavor in wanted.items():
            if not self._is_idle(name) and (name in self._under_way or name not in working):
                self._away.setdefault(flavor, set()).add(name)

    def may_begin(self, name: str, flavor: str) -> bool:
        """Whether this broker may be restarted now, as far as the last look shows."""
        return name in self._down or self._is_idle(name) or not self.others(name, flavor)

    def others(self, name: str, flavor: str) -> list[str]:
        """The brokers that this one waits for."""
        return sorted(self._away.get(flavor, set()) - {name})

    def begin(self, name: str, flavor: str) -> None:
        """This broker is restarted from now on."""
        self._under_way.add(name)
        if not self._is_idle(name):
            self._away.setdefault(flavor, set()).add(name)

    def _is_idle(self, name: str) -> bool:
        """Whether a broker has no addresses, and that is known."""
        inventory = self._placer.inventory
        broker = inventory.brokers.get(name)
        return broker is not None and broker.is_known and not inventory.load.get(name)

    def _unsettled(self) -> set[str]:
        """Brokers that do not have all their addresses as they are to be, but for those that they refuse."""
        placer, found = self._placer, set()
        for name, home in placer.inventory.homes.items():
            broker = placer.inventory.brokers.get(home)
            if home not in found and (
                broker is None or not (placer.is_settled(broker, name) or name in broker.refused)
            ):
                found.add(home)
        return found
