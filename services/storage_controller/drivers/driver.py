"""What a driver is: brokers as the controller describes them, as a driver makes them, and as they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from services.storage_controller.engines import Engine


class DesiredBroker(NamedTuple):
    """A broker as the flavor describes it. Sizes are in bytes; None: the engine's default or no limit."""

    name: str
    flavor: str
    persisted: bool
    """What it accepts survives a restart."""
    memory: int
    """What it keeps in memory of messages."""
    capacity: int | None
    """What it keeps on disk of messages."""
    capacity_policy: str
    """What becomes of further messages: FAIL, BLOCK, DROP."""
    max_subscriptions: int | None
    """Durable subscriptions that one client may have."""
    defaults: Mapping[str, Any]
    """Address settings of every address, by Artemis' names."""
    template: str = ""
    """The flavor's templateName."""

    def limits_and_defaults(self) -> dict[str, Any]:
        """By the names of the settings of services/broker: the same wherever it runs."""
        found: dict[str, Any] = {}
        if self.capacity is not None:
            found |= {"capacity": self.capacity, "capacity_policy": self.capacity_policy}
        if self.max_subscriptions is not None:
            found["max_subscriptions"] = self.max_subscriptions
        return {**found, "settings": dict(self.defaults)}


class Manifest(NamedTuple):
    """What a driver makes of a DesiredBroker. Equal manifests: the same broker, nothing is to be done.

    `storage`: where its messages are kept; a broker with the same storage has the same messages. None: in memory only.
    """

    flavor: str
    storage: str | None
    content: dict[str, Any]


class RunningBroker(NamedTuple):
    """A broker as its driver sees it; `port` 0: it has none yet.

    `run`: differs after each start; empty: it does not run. `is_current`: it runs by its manifest, and not by the one
    before: if not, another process is about to come.
    """

    host: str
    port: int
    ready: bool
    detail: str
    run: str = ""
    is_current: bool = True
    is_stopped: bool = False
    """A person has stopped it: nobody waits for it to come back."""


class DriverError(Exception):
    """What was asked for cannot be done now; the text gives people the reason. It is tried again."""


class BrokerDriver(Protocol):
    """Makes brokers. Only this controller changes what it has made; what others change is put back (`altered`)."""

    engine: Engine
    """The product that it runs."""

    def manifest(self, broker: DesiredBroker) -> Manifest:
        """What `apply` is to be given for this broker. Pure."""

    async def applied(self) -> tuple[dict[str, Manifest], dict[str, str]]:
        """What was applied for each broker, also by earlier processes; and why that cannot be read, for others.

        A manifest that cannot be read is not a broker that is not desired: it may hold messages. Raises DriverError.
        """

    async def apply(self, name: str, manifest: Manifest) -> None:
        """This broker is to run by this manifest. Raises DriverError."""

    async def delete(self, name: str) -> None:
        """This broker is needed no more: it holds nothing. Raises DriverError."""

    async def altered(self) -> list[str]:
        """Brokers of which somebody else has changed or deleted what was applied."""

    async def running(self) -> Mapping[str, RunningBroker]:
        """What runs, as last seen: a broker that is not in it has never run, as far as is known."""

    def still_needed(self, name: str) -> None:
        """Nobody asks for this broker any more, and it cannot go yet: it has addresses or messages. Told again and
        again."""
