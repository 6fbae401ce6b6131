"""An order to throw away what removed addresses hold, as an annotation of a ConfigMap with addresses. Pure.

Whoever may edit addresses may give it, and it is written together with the removal. An order has an id and is carried
out once: it says nothing of an address that gets the same name later.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import NamedTuple

from enmasse.kubernetes.api import Object
from enmasse.kubernetes.labels import FORCE
from enmasse.model.names import AddressName

MAX_NAMES = 1000


class Order(NamedTuple):
    """What one annotation says."""

    id: str
    addresses: tuple[AddressName, ...]


def new(addresses: Iterable[str]) -> str:
    """The annotation of a new order. Of too many the last ones count."""
    names = list(dict.fromkeys(addresses))[-MAX_NAMES:]
    return json.dumps({"id": uuid.uuid4().hex, "addresses": names}, ensure_ascii=False)


def order(config_map: Object) -> Order | None:
    """The order that a ConfigMap has; None: none that can be read."""
    text = (config_map["metadata"].get("annotations") or {}).get(FORCE)
    try:
        found = json.loads(text or "null")
        id_, names = found["id"], found["addresses"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(id_, str) or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return Order(id_[:64], tuple(AddressName(name) for name in names[:MAX_NAMES]))
