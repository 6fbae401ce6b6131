"""Labels and names by which the pieces of an installation find each other (docs/kubernetes.md)."""

from __future__ import annotations

PART_OF = "app.kubernetes.io/part-of"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"

CONFIG = "enmasse.io/config"
"""Label of ConfigMaps with configuration: `addresses`, `flavors`, `brokers`, `spaces` or `plans`."""
SPACE = "enmasse.io/space"
"""Label of ConfigMaps with addresses: the address space that has them; without it the default one."""
CONFIG_MAPS = "enmasse.io/config-maps"
"""Annotation of the ConfigMap `RELEASE-flavors`: the names of all with configuration that the release has made, with
commas between. For users without the permission to list ConfigMaps."""
STATUS_OF = "enmasse.io/status-of"
"""Label of ConfigMaps with a status: the name of the ConfigMap that it is about."""
BROKER = "enmasse.io/broker"
"""Label of all that belongs to a broker: the name of its StatefulSet. As an annotation: the broker's own name."""

FORCE = "enmasse.io/force"
"""Annotation of ConfigMaps with addresses: an order to throw away what removed addresses hold (`forced.py`)."""

MESH = "enmasse.io/mesh"
"""Annotation of the StatefulSet of routers: `none`, if there may be only one."""

STATUS_KEY = "status.json"


def status_name(config_map: str) -> str:
    """Return the name of the ConfigMap with the status of `config_map`."""
    return f"{config_map}-status"
