"""Endpoints of address spaces: where clients reach one, and objects in its namespace that state the same. Pure.

All spaces have the Services of the release. Shapes and keys are those of EnMasse 0.33.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from enmasse.kubernetes.api_server import CONFIG_MAP, SECRET, SERVICE, Object, ObjectKind
from enmasse.model.jsonfile import shown
from services.configserv.resources.object_kinds import ADDRESS_SPACE

SERVICES: Final = {"messaging": "router", "mqtt": "mqtt", "console": "console"}
"""Service of an endpoint → the value of the chart that enables it."""
_KINDS: Final = {kind.name: kind for kind in (CONFIG_MAP, SECRET, SERVICE)}
_DOMAIN: Final = ".cluster.local"


class ServiceEndpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Service of the release for clients: its host in the cluster, and its ports by name; both from outside, if it is
    exposed."""

    host: str
    ports: dict[str, int]
    external_host: str = ""
    external_ports: dict[str, int] = {}


class Export(NamedTuple):
    """An object that an endpoint of an AddressSpace is exported to."""

    endpoint: str
    kind: ObjectKind
    name: str
    content: dict[str, Any]
    """All of the object but its metadata."""


def endpoint_statuses(item: Object, services: Mapping[str, ServiceEndpoint], authority: bytes) -> list[dict[str, Any]]:
    """Return the status of each endpoint of an AddressSpace. `authority`: what clients trust, in PEM."""
    return [_status(endpoint, services, authority) for endpoint in _endpoints(item)]


def exports_of(item: Object, services: Mapping[str, ServiceEndpoint], authority: bytes) -> list[Export]:
    """Return the objects that an AddressSpace asks for."""
    found = []
    for endpoint in _endpoints(item):
        service = services.get(_service(endpoint))
        if service is None:
            continue  # which the status says
        for kind, name in _exports(endpoint):
            found.append(Export(str(endpoint.get("name", "")), kind, name, _content(kind, service, authority)))
    return found


def service_names(item: Object) -> list[str]:
    """Return the hosts by which clients reach the Services that an AddressSpace is exported to, from any namespace."""
    names = [name for endpoint in _endpoints(item) for kind, name in _exports(endpoint) if kind == SERVICE]
    namespace = item["metadata"].get("namespace")
    return [f"{name}.{namespace}{end}" for name in names for end in ("", ".svc", f".svc{_DOMAIN}")]


def owner(item: Object) -> dict[str, Any]:
    """Return the reference by which an export is known, and by which Kubernetes removes it with its AddressSpace."""
    return {
        "apiVersion": ADDRESS_SPACE.version,
        "kind": ADDRESS_SPACE.name,
        "name": item["metadata"]["name"],
        "uid": str(item["metadata"]["uid"]),
        "controller": True,
        "blockOwnerDeletion": False,
    }


def is_owned(found: Object, item: Object) -> bool:
    """Return whether an object is an export of this AddressSpace."""
    references = found["metadata"].get("ownerReferences") or ()
    return any(each.get("uid") == item["metadata"]["uid"] for each in references)


def has_content(found: Object, content: Mapping[str, Any]) -> bool:
    """Return whether an object has what an export is to have; the API server adds more to a Service."""
    if "spec" not in content:
        return all((found.get(key) or {}) == value for key, value in content.items())
    spec, wanted = found.get("spec") or {}, content["spec"]
    ports = [{key: port.get(key) for key in ("name", "port", "protocol")} for port in spec.get("ports") or ()]
    same = all(spec.get(key) == wanted[key] for key in ("type", "externalName"))
    return same and ports == wanted["ports"]


def _endpoints(item: Object) -> Sequence[Mapping[str, Any]]:
    return (item.get("spec") or {}).get("endpoints") or ()


def _service(endpoint: Mapping[str, Any]) -> str:
    return str(endpoint.get("service") or "messaging")


def _exports(endpoint: Mapping[str, Any]) -> Iterator[tuple[ObjectKind, str]]:
    for each in endpoint.get("exports") or ():
        if each.get("kind") in _KINDS and each.get("name"):
            yield _KINDS[each["kind"]], str(each["name"])


def _status(endpoint: Mapping[str, Any], services: Mapping[str, ServiceEndpoint], authority: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"name": str(endpoint.get("name", ""))}
    service = services.get(_service(endpoint))
    if service is None:
        name, known = _service(endpoint), ", ".join(sorted(services)) or "none"
        remedy = f"set the value {SERVICES[name]}.enabled of the chart, or " if name in SERVICES else ""
        text = f"the service {shown(name)!r} does not run in this installation: {remedy}name one of {known}"
        return {**found, "messages": [text]}
    found |= {"serviceHost": service.host, "servicePorts": _ports(service.ports)}
    if service.external_host:
        found |= {"externalHost": service.external_host, "externalPorts": _ports(service.external_ports)}
    if authority:
        found["cert"] = base64.b64encode(authority).decode()
    return found


def _ports(ports: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "port": port} for name, port in ports.items()]


def _content(kind: ObjectKind, service: ServiceEndpoint, authority: bytes) -> dict[str, Any]:
    if kind == SERVICE:
        ports = [{**port, "protocol": "TCP"} for port in _ports(service.ports)]
        return {"spec": {"type": "ExternalName", "externalName": f"{service.host}{_DOMAIN}", "ports": ports}}
    data = {"service.host": service.host}
    data |= {f"service.port.{name}": str(port) for name, port in service.ports.items()}
    if service.external_host:
        data["external.host"] = service.external_host
        data |= {f"external.port.{name}": str(port) for name, port in service.external_ports.items()}
    if authority:
        data["ca.crt"] = authority.decode(errors="replace")
    if kind == SECRET:
        data = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"data": data}
