"""Keeps the running brokers equal to the requested ones, through the driver."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from enmasse.logs import log
from enmasse.network.backoff import SOON_AGAIN
from enmasse.reconcile import Reconciler
from services.storage_controller.drivers import BrokerDriver, DriverError, Manifest, RunningBroker

POLL_SETTLED, POLL_UNSETTLED = 1.0, 0.05
"""Seconds between two looks at the running brokers."""


class Provisioner:
    """The set of brokers as the shared reconciler manages it (enmasse.reconcile.Managed), keyed by broker name.

    `applied(name, fresh)`: the driver has taken a manifest; fresh: the broker is new and holds nothing yet.
    `deleted(name)`: the broker was deleted. `looked(running)`: the running brokers, after every look. `is_settled()`:
    no broker is pending.
    """

    def __init__(
        self,
        driver: BrokerDriver,
        *,
        applied: Callable[[str, bool], None],
        deleted: Callable[[str], None],
        looked: Callable[[Mapping[str, RunningBroker]], None],
        is_settled: Callable[[], bool],
    ) -> None:
        self.manifests: dict[str, Manifest] = {}
        """Broker → manifest that was applied last."""
        self.asked: dict[str, Manifest] = {}
        """Broker → requested manifest."""
        self.damaged: dict[str, str] = {}
        """Broker → why its applied manifest cannot be read."""
        self._driver = driver
        self._applied = applied
        self._deleted = deleted
        self._looked = looked
        self._is_settled = is_settled
        self._altered: set[str] = set()
        self._unsettled: set[str] = set()
        """Brokers that the driver is changing, or could not change: what is in force is unknown."""
        self._log = log.get()
        self._reconciler: Reconciler[str] = Reconciler(
            self,
            changed=lambda _: None,
            lost=lambda _: None,
            errors=(DriverError,),
            refused_waits=SOON_AGAIN,  # such as a full disk
            logger=self._log,
        )

    @property
    def refused(self) -> Mapping[str, str]:
        """Return broker → why the driver cannot create it now."""
        return self._reconciler.refused

    def ask(self, name: str, manifest: Manifest) -> None:
        """Request that this broker run by this manifest."""
        self.asked[name] = manifest
        self._reconciler.queue((name,))

    def give_up(self, name: str) -> None:
        """Withdraw the request for a broker that is no longer needed and holds nothing."""
        self.asked.pop(name, None)
        self._reconciler.queue((name,))

    def is_applied(self, name: str) -> bool:
        """Return True if the requested manifest of this broker is in force."""
        return name not in self._unsettled and self.asked.get(name) == self.manifests.get(name)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._reconciler.run()

    # what the reconciler asks

    @property
    def is_gone(self) -> bool:
        """False: the driver can always be asked again."""
        return False

    async def open(self) -> None:
        """Do nothing: a driver needs no conversation."""

    def failed(self, error: Exception) -> None:
        """Do nothing: what was applied stays known."""

    async def read(self) -> None:
        """Read the manifests that were applied before. Raises DriverError."""
        manifests, damaged = await self._driver.applied()
        for name, reason in damaged.items():
            if self.damaged.get(name) != reason:
                self._log.error("controller.manifest.unreadable", broker=name, reason=reason)
        self.damaged = damaged
        for name, manifest in manifests.items():
            if name not in self.manifests:
                self.manifests[name] = manifest
                self.asked.setdefault(name, manifest)
                self._applied(name, False)

    async def apply(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Create, change or delete these brokers. Returns those that the driver refuses, with the reason."""
        refused: dict[str, str] = {}
        for name in keys:
            try:
                await self._bring_about(name)
            except DriverError as error:
                refused[name] = str(error)
        await self._look()
        return refused

    async def _bring_about(self, name: str) -> None:
        wanted, there = self.asked.get(name), self.manifests.get(name)
        if wanted is None:
            if there is not None:
                self._unsettled.add(name)
                await self._driver.delete(name)
                del self.manifests[name]
                self._deleted(name)
            self._unsettled.discard(name)
        elif wanted != there or name in self._altered or name in self._unsettled:
            self._unsettled.add(name)
            await self._driver.apply(name, wanted)
            self.manifests[name] = wanted
            self._altered.discard(name)
            self._unsettled.discard(name)
            was_damaged = self.damaged.pop(name, None) is not None
            self._applied(name, there is None and not was_damaged)

    async def verify(self, keys: Collection[str]) -> Mapping[str, str]:
        """Return nothing: running brokers are looked at after each change and in each sweep."""
        return {}

    async def reread(self, keys: Collection[str]) -> Iterable[str]:
        """Return all keys: refused ones are applied again."""
        return keys

    async def sweep(self) -> float:
        """Look at the running brokers, and apply those again whose objects were changed from outside. Returns the
        seconds until the next time."""
        altered = set(await self._driver.altered()) & self.asked.keys()
        for name in altered - self._altered:
            self._log.warning("controller.broker.drift-corrected", broker=name)
        self._altered = altered
        self._reconciler.queue(altered - self.refused.keys())
        if self.damaged:
            await self.read()  # the damage may have been repaired
        await self._look()
        return POLL_SETTLED if self._is_settled() else POLL_UNSETTLED

    async def _look(self) -> None:
        self._looked(await self._driver.running())
