"""Configurations that callers give as JSON text."""

from __future__ import annotations

import json
from typing import Any

from services.broker.core.errors import BrokerError


def json_object(given: str, what: str) -> dict[str, Any]:
    """The object. `what` names it in the BrokerError that is raised if it is none."""
    try:
        value = json.loads(given)
    except ValueError as error:
        raise BrokerError(f"the {what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BrokerError(f"the {what} is not a JSON object")
    return value
