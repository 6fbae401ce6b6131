"""From the properties of addresses and flavors to settings of brokers, by Artemis' names."""

from __future__ import annotations

from typing import Any

from enmasse.model.addresses import Address
from enmasse.model.flavors import Flavor
from enmasse.model.names import AddressName, wire_name
from services.storage_controller.drivers import DesiredBroker
from services.storage_controller.engines import LEVELS, NO_LEVEL, Engine

MARK_KEY, MARK = "deadLetterQueuePrefix", "enmasse:"
"""Our mark on a topic, or on settings: a setting of exactly this address, without effect while
`autoCreateDeadLetterResources` is off, that reads back. (Queues bear it in their `user`; addresses have no such field.)
The same value for all, so that brokers can share what they make of it."""
PAGE = 10 * 1024 * 1024
DEFAULT_MEMORY = 64 * 1024 * 1024
"""Bytes of messages that a broker keeps in memory if the flavor does not state it."""

Settings = dict[str, Any]


def address_settings(name: AddressName, address: Address, engine: Engine) -> dict[str, Settings]:
    """What is set for an address, by match; empty if nothing need be. A topic's hold for everything below it too."""
    found, wire = _properties(address, engine), wire_name(name)
    if address.type != "topic":
        return {wire: {**found, MARK_KEY: MARK}} if found else {}
    exact: dict[str, Settings] = {wire: {MARK_KEY: MARK}}
    if not engine.levels_exist:
        # The match of the levels covers the topic, too: what is deleted must not come again with the next message.
        exact[wire] |= NO_LEVEL
        found |= LEVELS
    return {f"{wire}/#": found, **exact} if found else exact


def matches(name: AddressName) -> tuple[str, str]:
    """Every match that an address may have settings under."""
    wire = wire_name(name)
    return wire, f"{wire}/#"


def _properties(address: Address, engine: Engine) -> Settings:
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
        # Without an end to the attempts nothing would ever be dead; 10 is what people know from Artemis.
        found.setdefault("maxDeliveryAttempts", 10)
    _put(found, "expiryAddress", wire_name(address.expiry) if address.expiry is not None else None)
    _limit(found, address.max_size, address.full_policy)
    if address.duplicates is not None and engine.duplicates_by_address:
        found["duplicateDetectionByMessageId"] = True
    return found


def desired_broker(name: str, flavor_name: str, flavor: Flavor) -> DesiredBroker:
    """One broker of a flavor."""
    parameters = flavor.template_parameters
    settings: Settings = {
        # Without a dead letter address, giving up is losing: no end to the attempts unless the address has one.
        "maxDeliveryAttempts": -1,
        "autoCreateQueues": False,
        "autoCreateAddresses": False,
    }
    policy, capacity = parameters.full_policy, parameters.storage_capacity
    capacity_policy = policy if policy in ("BLOCK", "DROP") else "FAIL"
    if capacity is None:
        _limit(settings, None, policy)
    else:
        # What memory does not hold goes to disk, and there is an end to that too: for the broker, and (as stock Artemis
        # knows it) for each of its addresses.
        settings["addressFullMessagePolicy"] = "PAGE"
        if policy != "BLOCK":
            settings |= {"pageLimitBytes": capacity, "pageFullMessagePolicy": capacity_policy}
    return DesiredBroker(
        name,
        flavor_name,
        persisted=flavor.persisted,
        memory=parameters.memory if parameters.memory is not None else DEFAULT_MEMORY,
        capacity=capacity,
        capacity_policy=capacity_policy,
        max_subscriptions=parameters.max_subscriptions,
        defaults=settings,
        template=flavor.template_name,
    )


def _limit(found: Settings, size: int | None, policy: str | None) -> None:
    if size is not None:
        found["maxSizeBytes"] = size
        if size < PAGE:
            found["pageSizeBytes"] = max(1, size // 2)  # Artemis insists that a page is smaller than the whole
        # Refusing is what a producer can act upon.
        found["addressFullMessagePolicy"] = policy or "FAIL"
    elif policy is not None:
        found["addressFullMessagePolicy"] = policy


def _put(found: Settings, key: str, value: Any) -> None:
    if value is not None:
        found[key] = value


_ALIASES = {"deadLetterAddress": ("deadLetterAddress", "DLA")}


def holds(wanted: dict[str, Settings], read: Settings) -> bool:
    """Whether the merged settings that a broker shows for an address include what is wanted for it."""
    together: Settings = {}
    for settings in wanted.values():
        together |= settings
    return all(any(read.get(alias) == value for alias in _ALIASES.get(key, (key,))) for key, value in together.items())
