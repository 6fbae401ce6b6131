"""Where configuration is read from. `driver.py`: what a driver is. `files.py`: the files of a directory.

A further driver is added in this folder only (docs/extending.md, "Kubernetes"): a module, and its settings and
construction below. Imports the model and the settings that every service has; nothing else of configserv.
"""

from __future__ import annotations

from enmasse.settings import ServiceSettings
from services.configserv.drivers.driver import Contents, Driver
from services.configserv.drivers.files import FilesDriver

__all__ = ["Contents", "Driver", "DriverSettings", "make_driver"]


class DriverSettings(ServiceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that state the driver. `config_dir`: the directory of the files."""

    config_dir: str


def make_driver(settings: DriverSettings) -> Driver:
    """The driver that these settings name."""
    return FilesDriver(settings.config_dir)
