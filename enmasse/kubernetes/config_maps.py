"""Configuration in ConfigMaps: each key `….json` of those with the label is a part of the file of their kind, with the
label of a space of that file of the space. Pure.

A ConfigMap without any key holds nothing; one whose keys are named otherwise is an error, so that a misnamed key does
not remove everything that it held.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from enmasse.kubernetes.api_server import Object
from enmasse.kubernetes.labels import CONFIG, SPACE
from enmasse.model.configuration import ADDRESSES, BROKERS, FLAVORS, PLANS, SPACES
from enmasse.model.merged import Content, FilePart, Unreadable
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.tenants.spaces import space_file

FILES = {"addresses": ADDRESSES, "flavors": FLAVORS, "brokers": BROKERS, "spaces": SPACES, "plans": PLANS}
"""Value of the label → the file that these ConfigMaps are together."""
_NEEDED = (ADDRESSES, FLAVORS)
"""Files that are missing without a ConfigMap; without one of the others there just is nothing of it."""
PREFIX = "configmap/"


class Made(NamedTuple):
    """Purpose for which the release has made a ConfigMap: the kind of its entries, and their address space."""

    kind: str
    space: str = DEFAULT_SPACE


NOTHING: Mapping[str, Made] = MappingProxyType({})
SELECTOR = f"{CONFIG} in ({', '.join(FILES)})"


def merged(config_maps: Mapping[str, Object], made_for: Mapping[str, Made] = NOTHING) -> dict[str, Content]:
    """Return the content of the files, from all ConfigMaps with configuration. Pure.

    `made_for`: name → purpose of the ConfigMaps that the release created. Permission to edit addresses includes the
    labels of their ConfigMap: it is not read with other ones, so that addresses cannot be turned into flavors, nor into
    those of another space.
    """
    sources: dict[str, list[FilePart]] = {}
    for name, item in sorted(config_maps.items()):
        file = file_of(name, item, made_for)
        if file:
            sources.setdefault(file, []).extend(_checked(name, item, made_for))
    missing = {FILES[kind]: _without(kind) for kind in FILES if FILES[kind] not in sources}
    return {**missing, **{file: tuple(parts) for file, parts in sources.items()}}


def of_kind(config_maps: Mapping[str, Object], kind: str, space: str = DEFAULT_SPACE) -> dict[str, Object]:
    """Return the ConfigMaps that hold addresses of a space, or another kind, in the order of their names."""
    return {name: item for name, item in sorted(config_maps.items()) if _labels(item) == Made(kind, space)}


def file_of(name: str, item: Object, made_for: Mapping[str, Made] = NOTHING) -> str:
    """Return the file of which a ConfigMap is a part: the one that the release created it for, otherwise that of its
    labels. Empty: no file."""
    found = made_for.get(name) or _labels(item)
    file = FILES.get(found.kind, "")
    return space_file(found.space, file) if file == ADDRESSES else file


def home(source: str) -> str:
    """Return the name of the ConfigMap of a source; empty if the source is not a ConfigMap."""
    return source.removeprefix(PREFIX).partition("/")[0] if source.startswith(PREFIX) else ""


def _labels(item: Object) -> Made:
    labels = item["metadata"].get("labels") or {}
    return Made(str(labels.get(CONFIG, "")), str(labels.get(SPACE) or DEFAULT_SPACE))


def _checked(name: str, item: Object, made_for: Mapping[str, Made]) -> list[FilePart]:
    """Return the parts that a ConfigMap has, or one that says why it is not read."""
    found, made = _labels(item), made_for.get(name)
    if made is not None and made.kind != found.kind:
        reason = f"its label {CONFIG} is {found.kind!r}, and the release made it for {made.kind}: set the label back"
    elif made is not None and made.space != found.space:
        reason = f"its label {SPACE} is {found.space!r}, and the release made it for {made.space!r}: set the label back"
    elif found.space != DEFAULT_SPACE and FILES[found.kind] != ADDRESSES:
        reason = f"{found.kind} are those of all address spaces: remove its label {SPACE}"
    else:
        return _sources(name, item)
    return [FilePart(f"{PREFIX}{name}", b"", reason)]


def _without(kind: str) -> Content:
    """Return the content of a file without any ConfigMap."""
    return Unreadable(f"no ConfigMap has the label {CONFIG}={kind}") if FILES[kind] in _NEEDED else None


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
