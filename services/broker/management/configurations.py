"""Configurations that callers give as JSON text."""

from __future__ import annotations

from typing import Any

from enmasse.decoding import decode_any
from services.broker.core.errors import BrokerError


def json_object(given: str, what: str) -> dict[str, Any]:
    """The object. `what` names it in the BrokerError that is raised if it is none."""
    try:
        value = decode_any(given)
    except ValueError as error:
        raise BrokerError(f"the {what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BrokerError(f"the {what} is not a JSON object")
    return value
