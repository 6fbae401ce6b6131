"""Describes for users how a broker runs, from its StatefulSet and its pod. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from enmasse.kubernetes.api_server import Object


class Seen(NamedTuple):
    """State of a broker's pod. `run` as in RunningBroker."""

    ready: bool
    detail: str
    run: str
    applied: str
    """Annotation with the hash of the pod's manifest; empty without a pod."""
    authenticates: bool = False
    """The broker in the pod demands certificates."""


def pod_name(stateful_set: str) -> str:
    """Return the name of the single pod of a StatefulSet."""
    return f"{stateful_set}-0"


def seen(stateful_set: Object, pod: Object | None, annotation: str, identity: str) -> Seen:
    """Return the state of one broker's pod. `identity`: name of the volume with a certificate."""
    replicas = stateful_set["spec"].get("replicas", 1)
    if replicas == 0:
        return Seen(False, "it was scaled to 0: scale it to 1 to have it run again", "", "")
    if pod is None:
        return Seen(False, "its pod has not been made yet", "", "")
    metadata, status = pod["metadata"], pod.get("status") or {}
    container: dict[str, Any] = next(iter(status.get("containerStatuses") or ()), {})
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
    ready = ready and "deletionTimestamp" not in metadata
    run = f"{metadata['uid']}/{container.get('restartCount', 0)}" if status.get("phase") == "Running" else ""
    detail = "" if ready else _why(metadata, status, container)
    if replicas > 1:
        extra = f"it was scaled to {replicas}: only its first pod is a broker of this suite; scale it back to 1"
        detail = f"{detail}; {extra}" if detail else extra
    applied = str((metadata.get("annotations") or {}).get(annotation, ""))
    certified = any(each["name"] == identity for each in (pod.get("spec") or {}).get("volumes") or ())
    return Seen(ready, detail, run, applied, certified)


def _why(metadata: dict[str, Any], status: dict[str, Any], container: dict[str, Any]) -> str:
    if "deletionTimestamp" in metadata:
        return "its pod is being ended"
    state = container.get("state") or {}
    for kind in ("waiting", "terminated"):
        found = state.get(kind)
        if found and found.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            message = f": {found['message']}" if found.get("message") else ""
            return f"its container: {found['reason']}{message}"[:500]
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"its pod has no node: {condition.get('message', '')}"[:500]
    return "its pod is starting" if status.get("phase") in (None, "Pending") else "its pod is not ready yet"
