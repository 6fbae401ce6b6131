"""Our own router and broker: services like the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from enmasse.engines import EMBEDDED
from enmasse.engines.engine import AMQP, DATA, HEALTH, BrokerEngine, Entities, Pod, RouterEngine
from enmasse.engines.program import Program

MIB = 1024 * 1024


def _find(service: Program) -> Program:
    return service


def _router_settings(
    name: str, entities: Entities, address: Callable[[str], str], log_level: str, _: str
) -> dict[str, Any]:
    return {"name": name, "health": address(f"{name}/health"), "log_level": log_level, "entities": entities}


def _pod(name: str, settings: Mapping[str, Any], log_level: str) -> Pod:
    own = dict(settings)
    persisted = own.pop("persisted")
    whole = {
        "name": name,
        "listen": f"0.0.0.0:{AMQP}",
        "health": f"0.0.0.0:{HEALTH}",
        "log_level": log_level,
        "data_dir": f"{DATA}/data" if persisted else None,
        "page_dir": f"{DATA}/pages",
        **own,
    }
    probe = {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 5, "timeoutSeconds": 6}
    live = {"httpGet": {"path": "/livez", "port": "health"}, "periodSeconds": 10, "timeoutSeconds": 6}
    container = {
        "ports": [{"name": "amqp", "containerPort": AMQP}, {"name": "health", "containerPort": HEALTH}],
        "readinessProbe": probe,
        # The broker is live while it recovers a large journal.
        "livenessProbe": {**live, "failureThreshold": 6},
        "startupProbe": {**live, "failureThreshold": 60},
    }
    text = json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False)
    return Pod({"settings.json": f"{text}\n"}, container, 192 * MIB + 2 * settings["global_max_size"])


ROUTER = RouterEngine(
    EMBEDDED, help=f"{EMBEDDED} (default)", shares_ports=True, serves_http=True, find=_find, settings=_router_settings
)
BROKER = BrokerEngine(
    EMBEDDED,
    help=f"{EMBEDDED} (default)",
    kind="broker",
    serves_http=True,
    find=_find,
    pod=_pod,
    duplicates_by_address=True,
    levels_exist=True,
    holds_subscriptions=True,
    refused={},
    peers=lambda _: {},
    blocks_at_capacity=True,
)
