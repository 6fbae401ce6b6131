"""Routing types as callers write them."""

from __future__ import annotations

from services.broker.core.errors import BrokerError
from services.broker.core.legal_names import ANYCAST, MULTICAST


def routing_types(given: str) -> frozenset[str]:
    """Return the routing types in a text with commas. Raises BrokerError for others or none."""
    found = frozenset(part.strip().upper() for part in given.split(",") if part.strip())
    if not found or not found <= {ANYCAST, MULTICAST}:
        raise BrokerError(f"AMQ229206: Invalid routing type {given}")
    return found


def routing_type(given: str) -> str:
    """Return the one routing type that the text states. Raises BrokerError for others."""
    found = routing_types(given)
    if len(found) != 1:
        raise BrokerError(f"AMQ229206: Invalid routing type {given}")
    return next(iter(found))
