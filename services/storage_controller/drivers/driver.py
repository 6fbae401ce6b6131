"""Interface of drivers: brokers as the controller describes them, as a driver creates them, and as they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from enmasse.engines.engine import BrokerEngine


class DesiredBroker(NamedTuple):
    """A broker as the flavor describes it."""

    name: str
    flavor: str
    persisted: bool
    """Accepted messages survive a restart."""
    memory: int
    """Bytes of messages kept in memory."""
    limits: Mapping[str, Any]
    """Further limits, by the names of services/broker (`BrokerLimits`)."""
    defaults: Mapping[str, Any]
    """Address settings of every address, by Artemis' names."""
    template: str = ""
    """The flavor's templateName."""

    def limits_and_defaults(self) -> dict[str, Any]:
        """Return limits and address settings by the names of services/broker's settings, for every driver."""
        return {**self.limits, "settings": dict(self.defaults)}


class Manifest(NamedTuple):
    """A DesiredBroker in a driver's terms. Equal manifests describe the same broker: no action is needed.

    `storage`: location of its messages; a broker with the same storage has the same messages. None: in memory only.
    """

    flavor: str
    storage: str | None
    content: dict[str, Any]


class RunningBroker(NamedTuple):
    """A running broker as its driver sees it; `port` 0: not known yet.

    `run`: differs after each start; empty: it does not run. `is_current`: it runs by its current manifest; otherwise
    its process is being replaced.
    """

    host: str
    port: int
    ready: bool
    detail: str
    run: str = ""
    is_current: bool = True
    is_stopped: bool = False
    """Stopped by a person on purpose; its absence is not a problem."""
    authenticates: bool = True
    """Demands the credentials of its peers, if the suite has any."""


class DriverError(Exception):
    """Raised when a request cannot be carried out now; the text is the reason for users. The request is repeated."""


class BrokerDriver(Protocol):
    """Creates brokers. Changes that others make to its objects are reverted (`altered`)."""

    engine: BrokerEngine
    """The broker product."""

    def manifest(self, broker: DesiredBroker) -> Manifest:
        """Return the manifest of this broker for `apply`. Pure."""

    async def applied(self) -> tuple[dict[str, Manifest], dict[str, str]]:
        """Return broker → applied manifest, also by earlier processes; and broker → reason where it cannot be read.

        A broker whose manifest cannot be read must not be deleted: it may hold messages. Raises DriverError.
        """

    async def apply(self, name: str, manifest: Manifest) -> None:
        """Make the broker run by this manifest. Raises DriverError."""

    async def delete(self, name: str) -> None:
        """Delete a broker that is no longer needed and holds nothing. Raises DriverError."""

    async def altered(self) -> list[str]:
        """Return the brokers whose applied objects were changed or deleted from outside."""

    async def running(self) -> Mapping[str, RunningBroker]:
        """Return the brokers as last seen: an absent broker is not known to have ever run."""

    def still_needed(self, name: str) -> None:
        """Report that an unneeded broker cannot be deleted yet because it has addresses or messages. Called
        repeatedly."""
