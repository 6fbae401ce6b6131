"""Configuration in ConfigMaps: each key `….json` of those with the label is a part of the file of their kind. Pure.

A ConfigMap without any key holds nothing; one whose keys are named otherwise is an error, so that a misnamed key does
not remove everything that it held.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from enmasse.kubernetes.api import Object
from enmasse.kubernetes.labels import CONFIG
from enmasse.model.configuration import ADDRESSES, BROKERS, FLAVORS
from enmasse.model.merged import Content, FilePart, Unreadable

FILES = {"addresses": ADDRESSES, "flavors": FLAVORS, "brokers": BROKERS}
"""Value of the label → the file that these ConfigMaps are together."""
PREFIX = "configmap/"
NOTHING: Mapping[str, str] = MappingProxyType({})
SELECTOR = f"{CONFIG} in ({', '.join(FILES)})"


def merged(config_maps: Mapping[str, Object], made_for: Mapping[str, str] = NOTHING) -> dict[str, Content]:
    """Return the content of the three files, from all ConfigMaps with configuration. Pure.

    `made_for`: name → kind of the ConfigMaps that the release created. Permission to edit addresses includes
    the label of their ConfigMap: it is not read with another label, so that addresses cannot be turned into flavors.
    """
    sources: dict[str, list[FilePart]] = {}
    for name, item in sorted(config_maps.items()):
        kind = kind_of(name, item, made_for)
        if kind in FILES:
            found = _sources(name, item) if kind == _label(item) else [_relabelled(name, item, kind)]
            sources.setdefault(FILES[kind], []).extend(found)
    return {file: _content(kind, sources.get(file)) for kind, file in FILES.items()}


def of_kind(config_maps: Mapping[str, Object], kind: str) -> dict[str, Object]:
    """Return the ConfigMaps that hold addresses, or another kind, in the order of their names."""
    return {name: item for name, item in sorted(config_maps.items()) if _label(item) == kind}


def kind_of(name: str, item: Object, made_for: Mapping[str, str] = NOTHING) -> str:
    """Return the kind a ConfigMap was created for by the release, otherwise that of its label."""
    return made_for.get(name) or _label(item)


def home(source: str) -> str:
    """Return the name of the ConfigMap of a source; empty if the source is not a ConfigMap."""
    return source.removeprefix(PREFIX).partition("/")[0] if source.startswith(PREFIX) else ""


def _label(item: Object) -> str:
    return str(item["metadata"].get("labels", {}).get(CONFIG, ""))


def _relabelled(name: str, item: Object, kind: str) -> FilePart:
    reason = f"its label {CONFIG} is {_label(item)!r}, and the release made it for {kind}: set the label back"
    return FilePart(f"{PREFIX}{name}", b"", reason)


def _content(kind: str, sources: list[FilePart] | None) -> Content:
    if sources is not None:
        return tuple(sources)
    # Without brokers.json there just are no brokers made by hand; the others cannot be taken away.
    return None if kind == "brokers" else Unreadable(f"no ConfigMap has the label {CONFIG}={kind}")


def _sources(name: str, item: Mapping[str, Any]) -> list[FilePart]:
    text, binary = item.get("data") or {}, item.get("binaryData") or {}
    found = {key: value.encode() for key, value in text.items()}
    found |= {key: _binary(value) for key, value in binary.items()}  # what is not UTF-8 is put there by kubectl
    parts = [FilePart(f"{PREFIX}{name}/{key}", data) for key, data in sorted(found.items()) if key.endswith(".json")]
    if found and not parts:
        # The entries that it held stay.
        return [FilePart(f"{PREFIX}{name}/{min(found)}", b"", "no key of this ConfigMap ends in .json; rename the key")]
    return parts


def _binary(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b"\xff"
