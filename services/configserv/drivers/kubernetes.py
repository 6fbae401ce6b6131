"""Configuration from ConfigMaps: each key `….json` of those with the label is a part of the file of their kind.

A ConfigMap without any key holds nothing; one whose keys are named otherwise is an error, so that a misnamed key does
not remove everything that it held.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from enmasse.kubernetes.api import CONFIG_MAP, Api, Object
from enmasse.kubernetes.labels import CONFIG
from enmasse.kubernetes.watch import View
from enmasse.model.configuration import ADDRESSES, BROKERS, FLAVORS, Content, Unreadable
from enmasse.model.merged import Source
from services.configserv.drivers.driver import Contents

FILES = {"addresses": ADDRESSES, "flavors": FLAVORS, "brokers": BROKERS}
"""Value of the label → the file that these ConfigMaps are together."""
PREFIX = "configmap/"
SELECTOR = f"{CONFIG} in ({', '.join(FILES)})"


class KubernetesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`driver` in the settings. `release`: what the names of Lease and ConfigMaps of this service begin with."""

    kind: Literal["kubernetes"]
    namespace: str
    release: str = "enmasse"


class ConfigMap(NamedTuple):
    """A ConfigMap with configuration."""

    name: str
    uid: str
    file: str


class KubernetesDriver:
    """The ConfigMaps of one namespace (a Driver)."""

    def __init__(self, api: Api) -> None:
        self._view = View(api, CONFIG_MAP, SELECTOR, self._look)
        self._changed: Callable[[Contents], None] | None = None
        self._contents: Contents | None = None

    def start(self, changed: Callable[[Contents], None]) -> None:
        self._changed = changed
        self._view.start()

    def close(self) -> None:
        self._changed = None
        self._view.close()

    @property
    def problem(self) -> str:
        """Why changes are not seen; empty if they are."""
        return self._view.problem

    def config_maps(self) -> list[ConfigMap]:
        """Those that there are, by name."""
        found = self._view.objects()
        return [
            ConfigMap(name, str(item["metadata"]["uid"]), FILES[item["metadata"]["labels"][CONFIG]])
            for name, item in sorted(found.items())
        ]

    def _look(self) -> None:
        if self._changed is None or not self._view.complete:
            return
        contents = merged(self._view.objects())
        if contents != self._contents:
            self._contents = contents
            self._changed(contents)


def merged(config_maps: Mapping[str, Object]) -> Contents:
    """The three files, of all ConfigMaps with configuration. Pure."""
    sources: dict[str, list[Source]] = {}
    for name, item in sorted(config_maps.items()):
        file = FILES.get(item["metadata"].get("labels", {}).get(CONFIG))
        if file is not None:
            sources.setdefault(file, []).extend(_sources(name, item))
    return {file: _content(kind, sources.get(file)) for kind, file in FILES.items()}


def _content(kind: str, sources: list[Source] | None) -> Content:
    if sources is not None:
        return tuple(sources)
    # Without brokers.json there just are no brokers made by hand; the others cannot be taken away.
    return None if kind == "brokers" else Unreadable(f"no ConfigMap has the label {CONFIG}={kind}")


def _sources(name: str, item: Mapping[str, Any]) -> list[Source]:
    text, binary = item.get("data") or {}, item.get("binaryData") or {}
    found = {key: value.encode() for key, value in text.items()}
    found |= {key: _binary(value) for key, value in binary.items()}  # what is not UTF-8 is put there by kubectl
    parts = [Source(f"{PREFIX}{name}/{key}", data) for key, data in sorted(found.items()) if key.endswith(".json")]
    if found and not parts:
        # It cannot be parsed, and the reason says why: the entries that it held stay.
        return [Source(f"{PREFIX}{name}/{min(found)}", b"no key of this ConfigMap ends in .json")]
    return parts


def _binary(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b"\xff"
