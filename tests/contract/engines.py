"""The brokers under test, alike to use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enmasse.engines.artemis.broker import BROKER as ARTEMIS
from enmasse.engines.embedded import BROKER as EMBEDDED
from enmasse.engines.engine import BrokerEngine
from enmasse.model.addresses import Address
from enmasse.model.flavors import Flavor
from enmasse.model.names import AddressName
from services.storage_controller import policies
from tests.artemis import Artemis
from tests.broker.harness import BrokerProcess, Management, Reachable

NAME = "b0"
FLAVOR = Flavor(type="queue", template_name="queue-persisted")
DEFAULTS: dict[str, Any] = dict(policies.desired_broker(NAME, "f", FLAVOR).defaults)
"""Settings of every address, as the storage controller gives them to a broker."""


@dataclass
class Broker(Reachable):
    """One of them. `kill` is SIGKILL; after `start` it has its port again, and what it stored."""

    engine: BrokerEngine
    server: BrokerProcess | Artemis
    url: str
    start: Callable[[], object]
    kill: Callable[[], object]
    end: Callable[[], object]

    def topic(self, m: Management, name: str) -> None:
        """Makes a topic as the storage controller does, with its settings."""
        address = Address(type="topic", flavor="f")
        for match, settings in policies.address_settings(AddressName(name), address, self.engine).items():
            m.settings(match, **settings)
        m("createAddress", name, "MULTICAST")


def _embedded(folder: Path) -> Broker:
    process = BrokerProcess(folder, settings=DEFAULTS, page_dir=str(folder / "pages"))
    return Broker(EMBEDDED, process, process.url, process.start, process.kill, process.stop)


def _artemis(folder: Path) -> Broker:
    server = Artemis(folder, name=NAME, defaults=DEFAULTS)
    return Broker(ARTEMIS, server, server.address, server.start, server.kill, server.end)


BROKERS = {EMBEDDED.name: _embedded, ARTEMIS.name: _artemis}
