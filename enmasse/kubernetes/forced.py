"""An order to throw away what removed addresses hold, as an annotation of a ConfigMap with addresses. Pure.

Whoever may edit addresses may give it, and it is written together with the removal. An order has an id and is carried
out once: it says nothing of an address that gets the same name later.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import msgspec

from enmasse.decoding import decode
from enmasse.kubernetes.api import Object
from enmasse.kubernetes.labels import FORCE
from enmasse.model.names import AddressName

MAX_NAMES = 1000


class Order(msgspec.Struct, frozen=True):
    """What one annotation says."""

    id: str
    addresses: tuple[AddressName, ...]


def new(addresses: Iterable[str]) -> str:
    """The annotation of a new order. Of too many the last ones count."""
    names = list(dict.fromkeys(map(AddressName, addresses)))[-MAX_NAMES:]
    return msgspec.json.encode(Order(uuid.uuid4().hex, tuple(names))).decode()


def order(config_map: Object) -> Order | None:
    """The order that a ConfigMap has; None: none that can be read."""
    text = (config_map["metadata"].get("annotations") or {}).get(FORCE)
    try:
        found = decode(text, Order) if text and text != "null" else None
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return found and Order(found.id[:64], found.addresses[:MAX_NAMES])
