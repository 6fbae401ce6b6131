"""From the properties of addresses and flavors to settings of brokers, by Artemis' names."""

from __future__ import annotations

from typing import Any

from enmasse.model.addresses import Address
from enmasse.model.flavors import Flavor

MARK_KEY, MARK = "deadLetterQueuePrefix", "enmasse:"
"""Our mark on a topic, or on settings: a setting of exactly this address, without effect while
`autoCreateDeadLetterResources` is off, that reads back. (Queues bear it in their `user`; addresses have no such field.)
The same value for all, so that brokers can share what they make of it."""
PAGE = 10 * 1024 * 1024
DEFAULT_MEMORY = 64 * 1024 * 1024
"""Bytes of messages that a broker keeps in memory, where the flavor does not say."""

Settings = dict[str, Any]


def address_settings(name: str, address: Address) -> dict[str, Settings]:
    """What is set for an address, by match; empty where nothing need be. A topic's hold for everything below it too."""
    found = _properties(address)
    if address.type != "topic":
        return {name: {**found, MARK_KEY: MARK}} if found else {}
    exact: dict[str, Settings] = {name: {MARK_KEY: MARK}}
    return {**exact, f"{name}/#": found} if found else exact


def matches(name: str) -> tuple[str, str]:
    """Every match that an address may have settings under."""
    return name, f"{name}/#"


def _properties(address: Address) -> Settings:
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
        found["deadLetterAddress"] = address.deadletter
        # Without an end to the attempts nothing would ever be dead; 10 is what people know from Artemis.
        found.setdefault("maxDeliveryAttempts", 10)
    _put(found, "expiryAddress", address.expiry)
    _limit(found, address.max_size, address.full_policy)
    if address.duplicates is not None:
        found["duplicateDetectionByMessageId"] = True  # the embedded broker's; Artemis has it for a whole acceptor
    return found


def broker_settings(name: str, flavor: Flavor) -> Settings:
    """The desired file's `settings` of one broker. Paths are relative to where brokers keep their data."""
    parameters = flavor.template_parameters
    settings: Settings = {
        # Without a dead letter address, giving up is losing: no end to the attempts unless the address says so.
        "maxDeliveryAttempts": -1,
        "autoCreateQueues": False,
        "autoCreateAddresses": False,
    }
    policy, capacity = parameters.full_policy, parameters.storage_capacity
    found: Settings = {}
    if capacity is None:
        _limit(settings, None, policy)
    else:
        # What memory does not hold goes to disk, and there is an end to that too: for the broker, and (as stock Artemis
        # knows it) for each of its addresses.
        settings["addressFullMessagePolicy"] = "PAGE"
        found = {"capacity": capacity, "capacity_policy": policy if policy in ("BLOCK", "DROP") else "FAIL"}
        if policy != "BLOCK":
            settings |= {"pageLimitBytes": capacity, "pageFullMessagePolicy": found["capacity_policy"]}
    _put(found, "max_subscriptions", parameters.max_subscriptions)
    memory = parameters.memory if parameters.memory is not None else DEFAULT_MEMORY
    return {
        "data_dir": name if flavor.persisted else None,
        "global_max_size": memory,
        "page_dir": f"{name}-pages",
        **found,
        "settings": settings,
    }


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
