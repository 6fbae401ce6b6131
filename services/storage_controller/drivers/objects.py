"""The Kubernetes objects of a broker: StatefulSet, Service, ConfigMap, PodDisruptionBudget. Pure.

`spec.replicas` is in none of them: without it a StatefulSet is made with one pod, and what a person has scaled stays.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from enmasse.engines import EMBEDDED, choices
from enmasse.engines.engine import AMQP, DATA, ETC, TMP, Pod
from enmasse.kubernetes.api_server import BUDGET, CONFIG_MAP, SERVICE, STATEFUL_SET, Object, ObjectKind
from enmasse.kubernetes.labels import BROKER, COMPONENT, INSTANCE, MANAGED_BY, PART_OF
from enmasse.storage.decoding import decode, decode_any
from services.storage_controller.drivers.driver import Manifest

MANAGER = "enmasse-storage-controller"
MANIFEST = "enmasse.io/manifest"
"""Annotation of the StatefulSet and of its claim: the applied manifest as JSON."""
FLAVOR = "enmasse.io/flavor"
APPLIED = "enmasse.io/applied"
"""Annotation of a pod: the hash of its manifest."""
MIB = 1024 * 1024
LONGEST = 52
"""Longest name of a StatefulSet, in characters: a label of its pods has it with eleven more (63 in all)."""
GRACE = 60
IDENTITY, IDENTITY_VOLUME = "/etc/enmasse-identity", "identity"
"""Folder in a pod with the broker's certificate, and the volume that has it."""


class Template(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Installation's settings for the pods of brokers (docs/kubernetes.md); objects in the form of Kubernetes."""

    image: str
    image_pull_policy: str = ""
    image_pull_secrets: list[str] = []
    resources: dict[str, Any] | None = None
    storage_size: str = "1Gi"
    """Size of the volume, unless the flavor's STORAGE_CAPACITY needs a larger one."""
    storage_class: str = ""
    affinity: dict[str, Any] | None = None
    tolerations: list[dict[str, Any]] = []
    node_selector: dict[str, str] | None = None
    topology_spread_constraints: list[dict[str, Any]] = []
    priority_class_name: str = ""
    service_account_name: str = ""
    pod_labels: dict[str, str] = {}
    pod_annotations: dict[str, str] = {}
    fs_group: int | None = None
    """Group that owns the volumes; absent: the platform chooses (OpenShift)."""
    identity_secret: str = ""
    """Secret with the brokers' certificate (docs/identity.md, "By certificates"); absent: brokers take all peers."""
    log_level: str = "warning"
    metrics_addresses: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Addresses with metrics of their own; absent: as many as without this setting. Not for Artemis."""
    traces: dict[str, str] | None = None
    """Variables of OpenTelemetry; absent: messages are not traced. Not for Artemis."""
    traces_secret: str = ""
    """Secret whose keys are further variables, which win; absent: none. Not for Artemis."""
    termination_grace_period_seconds: int = GRACE


class TemplatesError(ValueError):
    """Raised for an invalid templates file; the text is the reason in one line."""


def read_templates(path: str) -> dict[str, dict[str, Any]]:
    """Return templateName → the template of the file, merged over `default`. Raises TemplatesError."""
    try:
        found = decode(Path(path).read_bytes(), dict[str, dict[str, Any]])
    except OSError as error:
        raise TemplatesError(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise TemplatesError(f"{path}: {error}") from None
    default = found.setdefault("default", {})
    merged = {name: {**default, **entry} for name, entry in found.items()}
    for name, entry in merged.items():
        try:
            msgspec.convert(entry, Template)
        except msgspec.ValidationError as error:
            raise TemplatesError(f"{path}: template {name!r}: {error}") from None
    return merged


def object_name(release: str, broker: str) -> str:
    """Return the name of a broker's objects, legal for all kinds, with a hash if sanitising changed it."""
    wanted = f"{release}-{broker}"
    legal = re.sub(r"[^a-z0-9-]+", "-", wanted.lower()).strip("-")
    if legal == wanted and len(legal) <= LONGEST:
        return legal
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:8]
    return f"{legal[: LONGEST - 9].rstrip('-')}-{digest}"


def claim_name(name: str) -> str:
    """Return the name of the volume claim that the StatefulSet `name` creates."""
    return f"data-{name}-0"


def encoded(manifest: Manifest) -> str:
    """Encode a manifest for the annotation; `decoded` is the inverse."""
    return json.dumps(manifest._asdict(), sort_keys=True, ensure_ascii=False)


def decoded(text: str) -> Manifest:
    """Decode a manifest from the annotation. Raises ValueError if it is damaged."""
    try:
        found = decode_any(text)
        flavor, storage, content = found["flavor"], found["storage"], found["content"]
        if isinstance(flavor, str) and isinstance(storage, str | None) and isinstance(content["engine"], str):
            return Manifest(flavor, storage, content)
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"the annotation {MANIFEST} is damaged")


def applied_hash(manifest: Manifest) -> str:
    """Return a short hash of the manifest; a pod restarts when it changes."""
    return hashlib.sha256(encoded(manifest).encode()).hexdigest()[:16]


class Place(NamedTuple):
    """Release and namespace of the brokers, and the object that owns theirs, so that they are deleted with the
    release."""

    release: str
    namespace: str
    owner: Object


def objects(
    place: Place, broker: str, manifest: Manifest, claim: Mapping[str, Any] | None
) -> list[tuple[ObjectKind, Object]]:
    """Return all objects of a broker, in the order in which they are applied.

    `claim`: the volume claim template of the StatefulSet that there is: it cannot be changed.
    """
    name = object_name(place.release, broker)
    content = manifest.content
    template = msgspec.convert(content["template"], Template)
    engine = choices.broker(content["engine"])
    settings = content["settings"]
    if template.identity_secret:
        settings = {**settings, "peers": IDENTITY}
    if template.metrics_addresses is not None and content["engine"] == EMBEDDED:
        settings = {**settings, "metrics_addresses": template.metrics_addresses}
    if template.traces is not None and content["engine"] == EMBEDDED:
        settings = {**settings, "traces": template.traces}
    made = engine.pod(broker, settings, template.log_level)
    return [
        (CONFIG_MAP, {"metadata": _metadata(place, name, broker), "data": made.files}),
        (SERVICE, _service(place, name, broker)),
        (BUDGET, _budget(place, manifest.flavor, template)),
        (STATEFUL_SET, _stateful_set(place, name, broker, manifest, template, made, claim)),
    ]


def budget_name(release: str, flavor: str) -> str:
    """Return the name of the PodDisruptionBudget of a flavor's brokers."""
    return object_name(release, f"{flavor}-brokers")


def _metadata(place: Place, name: str, broker: str) -> dict[str, Any]:
    return {
        "name": name,
        "labels": {**_labels(place), BROKER: name},
        "annotations": {BROKER: broker},
        "ownerReferences": [_owner(place)],
    }


def _labels(place: Place) -> dict[str, str]:
    return {PART_OF: "enmasse", INSTANCE: place.release, COMPONENT: "broker", MANAGED_BY: MANAGER}


def _owner(place: Place) -> dict[str, str]:
    owner = place.owner
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _service(place: Place, name: str, broker: str) -> Object:
    spec = {
        "clusterIP": "None",
        "selector": {BROKER: name},
        # The controller has to reach a broker before it is ready for other clients.
        "publishNotReadyAddresses": True,
        "ports": [{"name": "amqp", "port": AMQP, "targetPort": "amqp", "protocol": "TCP"}],
    }
    return {"metadata": _metadata(place, name, broker), "spec": spec}


def _flavor_label(flavor: str) -> str:
    """Return a flavor as the value of a label."""
    return object_name("f", flavor)


def _budget(place: Place, flavor: str, template: Template) -> Object:
    """Let node drains evict one broker of a flavor at a time."""
    metadata = {
        "name": budget_name(place.release, flavor),
        "labels": _labels(place),
        "annotations": {FLAVOR: flavor},
        "ownerReferences": [_owner(place)],
    }
    selector = {"matchLabels": {INSTANCE: place.release, FLAVOR: _flavor_label(flavor)}}
    return {"metadata": metadata, "spec": {"maxUnavailable": 1, "selector": selector}}


def _stateful_set(
    place: Place,
    name: str,
    broker: str,
    manifest: Manifest,
    template: Template,
    made: Pod,
    claim: Mapping[str, Any] | None,
) -> Object:
    persisted = manifest.storage is not None
    certified = bool(template.identity_secret)
    variables = template.traces_secret if manifest.content["engine"] == EMBEDDED else ""
    own = {**_labels(place), BROKER: name, FLAVOR: _flavor_label(manifest.flavor)}
    volumes: list[dict[str, Any]] = [
        {"name": "etc", "configMap": {"name": name}},
        {"name": "tmp", "emptyDir": {}},
        *([{"name": IDENTITY_VOLUME, "secret": {"secretName": template.identity_secret}}] if certified else []),
        *([] if persisted else [{"name": "data", "emptyDir": {}}]),
    ]
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": template.termination_grace_period_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            **({} if template.fs_group is None else {"fsGroup": template.fs_group}),
        },
        "containers": [_container(template, made, variables, certified=certified)],
        "volumes": volumes,
    }
    optional = {
        "affinity": template.affinity,
        "nodeSelector": template.node_selector,
        "tolerations": template.tolerations,
        "topologySpreadConstraints": template.topology_spread_constraints,
        "imagePullSecrets": [{"name": name} for name in template.image_pull_secrets],
        "priorityClassName": template.priority_class_name,
        "serviceAccountName": template.service_account_name,
    }
    pod |= {key: value for key, value in optional.items() if value}
    metadata = _metadata(place, name, broker)
    metadata["annotations"] = {**metadata["annotations"], MANIFEST: encoded(manifest)}
    spec: dict[str, Any] = {
        "serviceName": name,
        # Not OrderedReady: it would withhold the next change from a pod that never becomes ready.
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "selector": {"matchLabels": {BROKER: name}},
        "template": {
            "metadata": {
                "labels": {**template.pod_labels, **own},
                "annotations": {**template.pod_annotations, BROKER: broker, APPLIED: applied_hash(manifest)},
            },
            "spec": pod,
        },
    }
    if persisted:
        spec["volumeClaimTemplates"] = [dict(claim) if claim else _claim(place, name, broker, manifest, template)]
    return {"metadata": metadata, "spec": spec}


def _container(template: Template, made: Pod, variables: str, *, certified: bool) -> dict[str, Any]:
    """Build the container. `variables`: Secret whose keys are variables of its environment; empty: none."""
    identity = {"name": IDENTITY_VOLUME, "mountPath": IDENTITY, "readOnly": True}
    memory = f"{-(-made.memory // MIB)}Mi"
    found: dict[str, Any] = {
        "name": "broker",
        "image": template.image,
        "resources": template.resources or {"requests": {"cpu": "100m", "memory": memory}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "etc", "mountPath": ETC, "readOnly": True},
            {"name": "tmp", "mountPath": TMP},
            {"name": "data", "mountPath": DATA},
            *([identity] if certified else []),
        ],
        **made.container,
    }
    if variables:
        found["envFrom"] = [{"secretRef": {"name": variables}}]
    if template.image_pull_policy:
        found["imagePullPolicy"] = template.image_pull_policy
    return found


def _claim(place: Place, name: str, broker: str, manifest: Manifest, template: Template) -> dict[str, Any]:
    """Build the volume claim. It carries the manifest too, so that the broker of a volume that was left is known."""
    capacity = manifest.content["settings"].get("capacity") or 0
    needed = -(-2 * capacity // MIB)  # compaction writes new files before it deletes the old ones
    size = template.storage_size if quantity(template.storage_size) >= needed * MIB else f"{needed}Mi"
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if template.storage_class:
        spec["storageClassName"] = template.storage_class
    metadata = {
        "name": "data",
        "labels": {**_labels(place), BROKER: name},
        "annotations": {BROKER: broker, MANIFEST: encoded(manifest)},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quantity(text: str) -> float:
    """Return the bytes of a Kubernetes quantity (`10Gi`); 0 if it is invalid, which the API server reports."""
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    if found is None or found[2] not in _UNITS:
        return 0.0
    try:
        return float(found[1]) * _UNITS[found[2]]
    except ValueError:
        return 0.0
