"""The kinds of custom resources, and how their objects are called in errors."""

from __future__ import annotations

from typing import Final, NamedTuple

from enmasse.kubernetes.api_server import Object, ObjectKind

ADDRESS: Final = ObjectKind("enmasse.io/v1beta1", "addresses", "Address")
ADDRESS_SPACE: Final = ObjectKind("enmasse.io/v1beta1", "addressspaces", "AddressSpace")
USER: Final = ObjectKind("user.enmasse.io/v1beta1", "messagingusers", "MessagingUser")
ADDRESS_PLAN: Final = ObjectKind("admin.enmasse.io/v1beta2", "addressplans", "AddressPlan")
SPACE_PLAN: Final = ObjectKind("admin.enmasse.io/v1beta2", "addressspaceplans", "AddressSpacePlan")

OF_TENANTS: Final = (ADDRESS_SPACE, ADDRESS, USER)
"""Kinds that are read in each of the namespaces; the plans are those of the release's namespace."""
OF_OPERATORS: Final = (ADDRESS_PLAN, SPACE_PLAN)
_NAMES: Final = frozenset(kind.name.lower() for kind in (*OF_TENANTS, *OF_OPERATORS))


class ResourceKey(NamedTuple):
    """An object: its kind, and the namespace and name that it has there."""

    kind: ObjectKind
    namespace: str
    name: str

    def source(self, release_namespace: str) -> str:
        """Return how the object is called as a source of the configuration: `address/one.orders`, in another namespace
        than that of the release `NAMESPACE/address/one.orders`."""
        place = "" if self.namespace == release_namespace else f"{self.namespace}/"
        return f"{place}{self.kind.name.lower()}/{self.name}"


def is_resource(source: str) -> bool:
    """Return whether a source of the configuration is a custom resource."""
    parts = source.split("/")
    return 2 <= len(parts) <= 3 and parts[-2] in _NAMES and parts[0] not in ("configmap", "secret", "spaces")


def generation(item: Object) -> int:
    """Return the number of the object's specification."""
    return int(item["metadata"].get("generation") or 0)
