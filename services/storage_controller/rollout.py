"""Restarts the brokers of a flavor one at a time for new settings: each waits until all others work again. Pure.

A broker without addresses, or one that is down anyway, is restarted at once: a change that breaks brokers stops at the
first one, and its correction begins there. A PodDisruptionBudget of the flavor agrees: it counts the broker that is
being restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from services.storage_controller.placement import Placer


class Rollout:
    """Brokers that are unavailable to their addresses, for a restart or another reason."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._under_way: set[str] = set()
        self._down: Collection[str] = ()
        self._away: dict[str, set[str]] = {}
        """Flavor → its unavailable brokers that have addresses."""

    def look(
        self, wanted: Mapping[str, str], down: Collection[str], works: Callable[[str], bool], *, now: bool
    ) -> None:
        """Update the unavailable brokers. `wanted`: broker → flavor. `down`: brokers that are known not to run.
        `works(broker)`: it is known to run by its applied manifest.

        `now`: the running brokers were read after the last `begin`, so a restart may have finished.
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
        """Return True if this broker may be restarted now, by the last `look`."""
        return name in self._down or self._is_idle(name) or not self.others(name, flavor)

    def others(self, name: str, flavor: str) -> list[str]:
        """Return the brokers that this one waits for."""
        return sorted(self._away.get(flavor, set()) - {name})

    def begin(self, name: str, flavor: str) -> None:
        """Record that the restart of this broker begins."""
        self._under_way.add(name)
        if not self._is_idle(name):
            self._away.setdefault(flavor, set()).add(name)

    def _is_idle(self, name: str) -> bool:
        """Return True if the broker is known to have no addresses."""
        inventory = self._placer.inventory
        broker = inventory.brokers.get(name)
        return broker is not None and broker.is_known and not inventory.load.get(name)

    def _unsettled(self) -> set[str]:
        """Return the brokers with addresses that do not have their desired settings, except those that they refuse."""
        placer, found = self._placer, set()
        for name, home in placer.inventory.homes.items():
            broker = placer.inventory.brokers.get(home)
            if home not in found and (
                broker is None or not (placer.is_settled(broker, name) or name in broker.refused)
            ):
                found.add(home)
        return found
