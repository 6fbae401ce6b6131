"""Configurations that callers give as JSON text."""

from __future__ import annotations

from typing import Any

from enmasse.storage.decoding import decode_any
from services.broker.core.errors import BrokerError


def json_object(given: str, what: str) -> dict[str, Any]:
    """Return the object in a JSON text. Raises BrokerError, in which `what` names it, if the text has no object."""
    try:
        value = decode_any(given)
    except ValueError as error:
        raise BrokerError(f"the {what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BrokerError(f"the {what} is not a JSON object")
    return value
