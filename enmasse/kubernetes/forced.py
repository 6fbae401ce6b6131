"""An order to throw away what removed addresses hold, as an annotation of a ConfigMap with addresses. Pure.

Permission to edit addresses is enough for it, and it is written together with the removal. An order has an id and is
carried out once: it does not apply to an address that gets the same name later.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import msgspec

from enmasse.kubernetes.api_server import Object
from enmasse.kubernetes.labels import FORCE
from enmasse.model.names import AddressName
from enmasse.storage.decoding import decode

MAX_NAMES = 1000


class ForceOrder(msgspec.Struct, frozen=True):
    """Content of one annotation."""

    id: str
    addresses: tuple[AddressName, ...]


def new(addresses: Iterable[str]) -> str:
    """Return the annotation of a new order; of more than MAX_NAMES addresses the last ones are kept."""
    names = list(dict.fromkeys(map(AddressName, addresses)))[-MAX_NAMES:]
    return msgspec.json.encode(ForceOrder(uuid.uuid4().hex, tuple(names))).decode()


def order(config_map: Object) -> ForceOrder | None:
    """Return the order of a ConfigMap, or None if it has no valid one."""
    text = (config_map["metadata"].get("annotations") or {}).get(FORCE)
    try:
        found = decode(text, ForceOrder) if text and text != "null" else None
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return found and ForceOrder(found.id[:64], found.addresses[:MAX_NAMES])
