"""Address settings by match (Artemis' ActiveMQServerControl)."""

from __future__ import annotations

import json
from typing import Any

from enmasse.storage.decoding import decode_any
from services.broker.core.errors import BrokerError
from services.broker.core.limits.settings import FIELDS, SettingsError, check, from_parameters
from services.broker.management.calls import CallContext, Operations

broker = Operations()


@broker.add("getAddressSettingsAsJSON", "s")
def get_address_settings(c: CallContext, match: str) -> str:
    """Return the settings in force for an address, as JSON."""
    merged = c.broker.catalogue.settings.merged(match)
    return json.dumps({key: value for key, value in merged.items() if value is not None})


_SETTING_KINDS = {"string": "S", "integer": "I", "real": "D", "boolean": "B"}


@broker.add("addAddressSettings", "s" + "".join(_SETTING_KINDS[field.type] for field in FIELDS))
def add_address_settings(c: CallContext, match: str, *values: Any) -> None:
    """Set the settings of a match by position, as Artemis' operation. Raises BrokerError if one is wrong."""
    try:
        c.broker.catalogue.put_settings(match, from_parameters(list(values)))
    except SettingsError as error:
        raise BrokerError(str(error)) from None


@broker.add("addAddressSettings", "ss")
def add_address_settings_json(c: CallContext, match: str, given: str) -> str:
    """Set the settings of a match from JSON. Raises BrokerError if one is wrong."""
    try:
        value = decode_any(given)
        if not isinstance(value, dict):
            raise BrokerError("the address settings are not a JSON object")
        c.broker.catalogue.put_settings(match, check(value))
    except ValueError as error:
        raise BrokerError(f"address settings: {error}") from None
    return json.dumps(value)


@broker.add("removeAddressSettings", "s")
def remove_address_settings(c: CallContext, match: str) -> None:
    """Remove the settings of a match."""
    c.broker.catalogue.remove_settings(match)
