"""What operations work on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from services.broker.core.broker import Broker
from services.broker.core.connections import Connections

VERSION = "2.44.0"  # of the Artemis whose management this follows


@dataclass
class Context:
    """`user`: who asks (becomes the `user` of queues it makes where it does not say otherwise)."""

    broker: Broker
    clients: Connections
    user: str = ""
    started: float = field(default_factory=time.monotonic)
