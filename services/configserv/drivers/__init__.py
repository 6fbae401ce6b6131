"""Sources of configuration. `driver.py`: the interface. `directory.py`: the files of a directory.
`kubernetes.py`: the ConfigMaps of a namespace.

A further driver is added in this folder: a module, and its settings below; `service.serve` makes it. Imports the model,
the settings that every service has, and what a driver needs; nothing else of configserv.
"""

from __future__ import annotations

from enmasse.process.settings import ServiceSettings
from services.configserv.drivers.directory import FilesDriver
from services.configserv.drivers.driver import Contents, Driver, Edit, NotWritable
from services.configserv.drivers.kubernetes import KubernetesDriver, KubernetesSettings

__all__ = [
    "Contents",
    "Driver",
    "DriverSettings",
    "Edit",
    "FilesDriver",
    "KubernetesDriver",
    "KubernetesSettings",
    "NotWritable",
]


class DriverSettings(ServiceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that choose the driver: `config_dir` and `data_dir` (directories of the files and of the state), or
    `driver`."""

    config_dir: str | None = None
    data_dir: str | None = None
    driver: KubernetesSettings | None = None

    def __post_init__(self) -> None:
        if self.driver is None and (self.config_dir is None or self.data_dir is None):
            raise ValueError("config_dir and data_dir are needed, or driver")
        if self.driver is not None and self.config_dir is not None:
            raise ValueError("config_dir and driver exclude each other")
