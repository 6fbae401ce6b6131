"""How brokers are made. `driver.py`: what a driver is. `local.py`: files shared with the supervisor of one machine.
`kubernetes.py`: StatefulSets; `objects.py` has the objects of a broker, `pod_status.py` what is seen of its pod.

A driver turns the product-neutral description of a broker into whatever runs it, and reports what runs. The controller
never looks into what a driver makes (`Manifest.content`). A further driver is added in this folder: a module, and its
settings below; `app.serve` makes it. Imports nothing else of the controller.
"""

from __future__ import annotations

from services.storage_controller.drivers.driver import (
    BrokerDriver,
    DesiredBroker,
    DriverError,
    Manifest,
    RunningBroker,
)
from services.storage_controller.drivers.kubernetes import KubernetesDriver, KubernetesSettings
from services.storage_controller.drivers.local import LocalDriver, LocalSettings

__all__ = [
    "BrokerDriver", "DesiredBroker", "DriverError", "DriverSettings", "KubernetesDriver", "KubernetesSettings",
    "LocalDriver", "LocalSettings", "Manifest", "RunningBroker",
]  # fmt: skip

DriverSettings = LocalSettings | KubernetesSettings
"""`driver` in the controller's settings, by its `kind`."""
