"""Translates properties of addresses and flavors into broker settings, by Artemis' names."""

from __future__ import annotations

from typing import Any

from enmasse.engines.engine import BrokerEngine
from enmasse.model.addresses import Address
from enmasse.model.flavors import Flavor
from enmasse.model.names import AddressName, wire_name
from services.storage_controller.drivers import DesiredBroker

MARK_KEY, MARK = "deadLetterQueuePrefix", "enmasse:"
"""Our mark on a topic, or on settings: a setting of exactly this address that can be read back and has no effect while
`autoCreateDeadLetterResources` is off. (Queues have it in their `user`; addresses have no such field.) All addresses
have the same value, so that brokers can share the merged settings."""
PAGE = 10 * 1024 * 1024
DEFAULT_MEMORY = 64 * 1024 * 1024
"""Bytes of messages that a broker keeps in memory unless the flavor sets MEMORY."""

Settings = dict[str, Any]

LEVELS: Settings = {
    "autoCreateAddresses": True,
    # Deleting a level deletes the message-ids used to detect duplicates; Artemis deletes levels at start and while in
    # use.
    "autoDeleteAddresses": False,
    # Ids are kept in the heap, some 200 bytes each, for each level.
    "idCacheSize": 2000,
}
"""Settings below a topic if its levels are created by their first sender or receiver. `Levels` deletes them."""

NO_LEVEL: Settings = {"autoCreateAddresses": False}
"""Setting of the topic itself, which the controller creates."""


def address_settings(name: AddressName, address: Address, engine: BrokerEngine) -> dict[str, Settings]:
    """Return match → settings of an address; empty if there are none. A topic's settings also apply to its levels."""
    found, wire = _properties(address, engine), wire_name(name)
    if not address.traits.levels:
        return {wire: {**found, MARK_KEY: MARK}} if found else {}
    exact: dict[str, Settings] = {wire: {MARK_KEY: MARK}}
    if not engine.levels_exist:
        # The match of the levels also covers the topic: the next message must not create a deleted topic again.
        exact[wire] |= NO_LEVEL
        found |= LEVELS
    return {f"{wire}/#": found, **exact} if found else exact


def hold(name: AddressName) -> tuple[str, Settings]:
    """Return match and settings by which a topic that is about to move keeps new durable subscriptions waiting. Those
    of `address_settings` end that."""
    return wire_name(name), {MARK_KEY: MARK, "holdSubscriptions": True}


def matches(name: AddressName) -> tuple[str, str]:
    """Return every match under which an address may have settings."""
    wire = wire_name(name)
    return wire, f"{wire}/#"


def _properties(address: Address, engine: BrokerEngine) -> Settings:
    found: Settings = {}
    if address.message_ttl is not None:
        _put(found, "minExpiryDelay", address.message_ttl.minimum)
        _put(found, "maxExpiryDelay", address.message_ttl.maximum)
    again = address.message_redelivery
    if again is not None:
        _put(found, "maxDeliveryAttempts", again.maximum_delivery_attempts)
        _put(found, "redeliveryDelay", again.redelivery_delay)
        _put(found, "redeliveryMultiplier", again.redelivery_delay_multiplier)
        _put(found, "maxRedeliveryDelay", again.maximum_delivery_delay)
    if address.deadletter is not None:
        found["deadLetterAddress"] = wire_name(address.deadletter)
        # Without a limit no message would ever become a dead letter; 10 is Artemis' default.
        found.setdefault("maxDeliveryAttempts", 10)
    _put(found, "expiryAddress", wire_name(address.expiry) if address.expiry is not None else None)
    _limit(found, address.max_size, address.full_policy)
    if address.duplicates is not None and engine.duplicates_by_address:
        found["duplicateDetectionByMessageId"] = True
    return found


def desired_broker(name: str, flavor_name: str, flavor: Flavor) -> DesiredBroker:
    """Describe one broker of a flavor."""
    parameters = flavor.template_parameters
    settings: Settings = {
        # Without a dead letter address a limit would lose messages: unlimited attempts unless the address has one.
        "maxDeliveryAttempts": -1,
        "autoCreateQueues": False,
        "autoCreateAddresses": False,
    }
    policy, capacity = parameters.full_policy, parameters.storage_capacity
    capacity_policy = policy if policy in ("BLOCK", "DROP") else "FAIL"
    limits: Settings = {}
    if capacity is None:
        _limit(settings, None, policy)
    else:
        limits |= {"capacity": capacity, "capacity_policy": capacity_policy}
        # Messages beyond the memory limit are paged to disk. That is limited for the broker, and (by the setting of
        # stock Artemis) for each of its addresses.
        settings["addressFullMessagePolicy"] = "PAGE"
        if policy != "BLOCK":
            settings |= {"pageLimitBytes": capacity, "pageFullMessagePolicy": capacity_policy}
    _put(limits, "max_subscriptions", parameters.max_subscriptions)
    return DesiredBroker(
        name,
        flavor_name,
        persisted=flavor.persisted,
        memory=parameters.memory if parameters.memory is not None else DEFAULT_MEMORY,
        limits=limits,
        defaults=settings,
        template=flavor.template_name,
    )


def _limit(found: Settings, size: int | None, policy: str | None) -> None:
    if size is not None:
        found["maxSizeBytes"] = size
        if size < PAGE:
            found["pageSizeBytes"] = max(1, size // 2)  # Artemis requires a page to be smaller than the limit
        # Rejecting is the policy that a producer can react to.
        found["addressFullMessagePolicy"] = policy or "FAIL"
    elif policy is not None:
        found["addressFullMessagePolicy"] = policy


def _put(found: Settings, key: str, value: Any) -> None:
    if value is not None:
        found[key] = value


_ALIASES = {"deadLetterAddress": "DLA", "idCacheSize": "iDCacheSize"}
"""Setting → its other name, by which some answers have it."""
_OURS = (
    MARK_KEY, *LEVELS, "holdSubscriptions", "minExpiryDelay", "maxExpiryDelay", "maxDeliveryAttempts",
    "redeliveryDelay", "redeliveryMultiplier", "maxRedeliveryDelay", "deadLetterAddress", "expiryAddress",
    "maxSizeBytes", "pageSizeBytes", "addressFullMessagePolicy", "duplicateDetectionByMessageId",
)  # fmt: skip
"""Settings that an address may have of its own."""


def holds(wanted: dict[str, Settings], read: Settings, none: Settings) -> bool:
    """Return True if the merged settings that a broker reports for an address are the desired ones, and otherwise those
    of an address without settings (`none`)."""
    together: Settings = {}
    for settings in wanted.values():
        together |= settings
    return all(_value(read, key) == together.get(key, _value(none, key)) for key in _OURS)


def _value(read: Settings, key: str) -> Any:
    return read.get(key, read.get(_ALIASES.get(key, key)))
