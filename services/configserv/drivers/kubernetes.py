"""Configuration from the ConfigMaps of a namespace (enmasse/kubernetes/configuration.py), watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from enmasse.kubernetes.api import CONFIG_MAP, Api
from enmasse.kubernetes.configuration import FILES, SELECTOR, kind_of, merged, of_addresses
from enmasse.kubernetes.forced import Order, order
from enmasse.kubernetes.watch import View
from services.configserv.drivers.driver import Contents


class KubernetesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`driver` in the settings. `release`: prefix of the names of the Lease and ConfigMaps of this service.
    `config_maps`: kind (the value of the label) → names of those that the release made for it."""

    kind: Literal["kubernetes"]
    namespace: str
    release: str = "enmasse"
    config_maps: dict[Literal["addresses", "flavors", "brokers"], list[str]] = {}


class ConfigMap(NamedTuple):
    """A ConfigMap with configuration."""

    name: str
    uid: str
    file: str


class KubernetesDriver:
    """Driver for the ConfigMaps of one namespace."""

    def __init__(self, settings: KubernetesSettings, api: Api) -> None:
        self._made_for = {name: kind for kind, names in settings.config_maps.items() for name in names}
        self._view = View(api, CONFIG_MAP, SELECTOR, self._look)
        self._changed: Callable[[Contents], None] | None = None
        self._contents: Contents | None = None
        self.on_orders: Callable[[dict[str, Order]], None] = lambda _: None
        """Called with all orders, by ConfigMap, when they may have changed."""

    def start(self, changed: Callable[[Contents], None]) -> None:
        self._changed = changed
        self._view.start()

    def close(self) -> None:
        self._changed = None
        self._view.close()

    @property
    def problem(self) -> str:
        """Reason for which changes are not seen; empty if they are."""
        return self._view.problem

    def config_maps(self) -> list[ConfigMap]:
        """The ConfigMaps with configuration, by name."""
        found = self._view.objects()
        return [
            ConfigMap(name, str(item["metadata"]["uid"]), FILES[kind_of(name, item, self._made_for)])
            for name, item in sorted(found.items())
        ]

    def _look(self) -> None:
        if self._changed is None or not self._view.complete:
            return
        found = self._view.objects()
        contents = merged(found, self._made_for)
        if contents != self._contents:
            self._contents = contents
            self._changed(contents)
        self.on_orders({name: each for name, item in of_addresses(found).items() if (each := order(item)) is not None})
