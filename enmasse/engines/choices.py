"""The engines by name, in the order in which users see them; the first of each is the default."""

from __future__ import annotations

from enmasse.engines import embedded
from enmasse.engines.artemis import broker as artemis
from enmasse.engines.engine import BrokerEngine, RouterEngine
from enmasse.engines.qdrouterd import router as qdrouterd

ROUTERS: dict[str, RouterEngine] = {engine.name: engine for engine in (embedded.ROUTER, qdrouterd.ROUTER)}
BROKERS: dict[str, BrokerEngine] = {engine.name: engine for engine in (embedded.BROKER, artemis.BROKER)}


def broker(name: str) -> BrokerEngine:
    """Return the engine of brokers with this name. Raises ValueError, naming the field `engine`, for other names."""
    if name not in BROKERS:
        raise ValueError(f"engine: expected one of {', '.join(BROKERS)}, got {name!r}")
    return BROKERS[name]
