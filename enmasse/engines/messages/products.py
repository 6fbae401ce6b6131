"""The products of brokers whose messages can be managed, and which one is at the other end of a connection."""

from __future__ import annotations

from enmasse import engines
from enmasse.control import Artemis, ControlConnection
from enmasse.engines.messages.artemis import StockArtemis
from enmasse.engines.messages.embedded import Embedded
from enmasse.engines.messages.product import Product

EMBEDDED: Product = Embedded()
ARTEMIS: Product = StockArtemis()


def product_at(connection: ControlConnection) -> Product | None:
    """Return the product that the peer states in its open; None: no management of it is known."""
    if connection.remote_properties.get("engine") == engines.EMBEDDED:
        return EMBEDDED
    return ARTEMIS if Artemis.is_at(connection) else None
