"""Routing types as callers write them."""

from __future__ import annotations

from services.broker.core.errors import BrokerError
from services.broker.core.names import ANYCAST, MULTICAST


def routing_types(given: str) -> frozenset[str]:
    found = frozenset(part.strip().upper() for part in given.split(",") if part.strip())
    if not found or not found <= {ANYCAST, MULTICAST}:
        raise BrokerError(f"AMQ229206: Invalid routing type {given}")
    return found


def routing_type(given: str) -> str:
    found = routing_types(given)
    if len(found) != 1:
        raise BrokerError(f"AMQ229206: Invalid routing type {given}")
    return next(iter(found))
