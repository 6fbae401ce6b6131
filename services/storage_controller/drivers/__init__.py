"""How brokers are made. `driver.py`: what a driver is. `local.py`: files shared with the supervisor of one machine.

A driver turns the product-neutral description of a broker into whatever runs it, and reports what runs. The controller
never looks into what a driver makes (`Manifest.content`). A driver for Kubernetes is added in this folder only: a
module, and its settings and construction below. Imports the engines; nothing else of the controller.
"""

from __future__ import annotations

from services.storage_controller.drivers.driver import (
    BrokerDriver,
    DesiredBroker,
    DriverError,
    Manifest,
    RunningBroker,
)
from services.storage_controller.drivers.local import LocalDriver, LocalSettings

__all__ = ["BrokerDriver", "DesiredBroker", "DriverError", "DriverSettings", "Manifest", "RunningBroker", "make_driver"]

DriverSettings = LocalSettings
"""`driver` in the controller's settings. With a second driver it is a union, tagged by `kind`."""


def make_driver(settings: DriverSettings) -> BrokerDriver:
    """The driver that these settings name."""
    return LocalDriver(settings)
