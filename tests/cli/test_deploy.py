"""`enmasse deploy`: what it shows while Helm waits. (tests/kubernetes runs it against a cluster.)"""

from __future__ import annotations

from typing import Any

from enmasse.cli.commands.suite.deploy import waits_for


def workload(name: str, wanted: int, ready: int, updated: int, *, seen: int = 2) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "generation": 2},
        "spec": {"replicas": wanted},
        "status": {"readyReplicas": ready, "updatedReplicas": updated, "observedGeneration": seen},
    }


def status(**resources: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": "mq", "info": {"resources": {kind.replace("_", "/"): found for kind, found in resources.items()}}}


def test_what_is_not_ready_is_named() -> None:
    found = status(
        v1_Deployment=[workload("mq-ragent", 1, 1, 1), workload("mq-mqtt-gateway", 3, 3, 2)],
        v1_StatefulSet=[workload("mq-router", 1, 0, 1), workload("mq-redis", 1, 1, 1, seen=1)],
        v1_Service=[workload("mq-router", 1, 0, 0)],
    )
    assert waits_for(found) == "waits for: mqtt-gateway 2/3, redis 0/1, router 0/1"


def test_nothing_is_shown_if_nothing_is_missing_or_known() -> None:
    assert waits_for(status(v1_Deployment=[workload("mq-ragent", 1, 1, 1)])) == ""
    assert waits_for({"name": "mq", "info": {}}) == ""
