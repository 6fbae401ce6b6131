"""Limits of a broker as a whole, which are settings of its process (`BrokerSettings`, which states each once more)."""

from __future__ import annotations

from typing import Literal

import msgspec

CapacityPolicy = Literal["FAIL", "BLOCK", "DROP"]


class BrokerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Each limit, which is read where it is enforced; -1: none."""

    global_max_size: int = -1
    """Bytes of all messages."""
    capacity: int = -1
    """Bytes of messages, wherever they are."""
    capacity_policy: CapacityPolicy = "FAIL"
    """Treatment of messages beyond `capacity` to addresses that page."""
    max_subscriptions: int = -1
    """Durable subscriptions of one client."""
