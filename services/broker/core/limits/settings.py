"""Address settings by Artemis' names: what management sets for a match, and what that comes to for one address.

A match is an address name or a pattern (`#`, `a/#`, `a/+/b`). For an address all matches that cover it are merged,
the more specific one winning key by key; if none sets anything, the defaults below hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from enmasse.name_tries import PatternTrie
from services.broker.core.wildcards import is_pattern, specificity

Value = str | int | float | bool | None

_QUICK_ATTEMPTS = 10
_SLOWEST_ATTEMPTS = 10_000  # milliseconds between two

FULL_POLICIES = ("PAGE", "BLOCK", "FAIL", "DROP")
ROUTING_TYPES = ("ANYCAST", "MULTICAST")


class SettingsError(ValueError):
    """A setting that is unknown, of the wrong type, or out of range; the text names it."""


@dataclass(frozen=True, slots=True)
class Field:
    """One setting: Artemis' name, its type ("string", "integer", "real", "boolean"), its default (None = not set)."""

    name: str
    type: str
    default: Value


# In the order of the 57 parameters that follow `addressMatch` in addAddressSettings.
FIELDS: tuple[Field, ...] = (
    Field("DLA", "string", None),
    Field("expiryAddress", "string", None),
    Field("expiryDelay", "integer", -1),
    Field("defaultLastValueQueue", "boolean", False),
    Field("maxDeliveryAttempts", "integer", 10),
    Field("maxSizeBytes", "integer", -1),
    Field("pageSizeBytes", "integer", 10 * 1024 * 1024),
    Field("pageCacheMaxSize", "integer", 5),
    Field("redeliveryDelay", "integer", 0),
    Field("redeliveryMultiplier", "real", 1.0),
    Field("maxRedeliveryDelay", "integer", 0),
    Field("redistributionDelay", "integer", -1),
    Field("sendToDLAOnNoRoute", "boolean", False),
    Field("addressFullMessagePolicy", "string", "PAGE"),
    Field("slowConsumerThreshold", "integer", -1),
    Field("slowConsumerCheckPeriod", "integer", 5),
    Field("slowConsumerPolicy", "string", "NOTIFY"),
    Field("autoCreateJmsQueues", "boolean", False),
    Field("autoDeleteJmsQueues", "boolean", False),
    Field("autoCreateJmsTopics", "boolean", False),
    Field("autoDeleteJmsTopics", "boolean", False),
    Field("autoCreateQueues", "boolean", False),
    Field("autoDeleteQueues", "boolean", True),
    Field("autoCreateAddresses", "boolean", False),
    Field("autoDeleteAddresses", "boolean", True),
    Field("configDeleteQueues", "string", "OFF"),
    Field("configDeleteAddresses", "string", "OFF"),
    Field("maxSizeBytesRejectThreshold", "integer", -1),
    Field("defaultLastValueKey", "string", None),
    Field("defaultNonDestructive", "boolean", False),
    Field("defaultExclusiveQueue", "boolean", False),
    Field("defaultGroupRebalance", "boolean", False),
    Field("defaultGroupBuckets", "integer", -1),
    Field("defaultGroupFirstKey", "string", None),
    Field("defaultMaxConsumers", "integer", -1),
    Field("defaultPurgeOnNoConsumers", "boolean", False),
    Field("defaultConsumersBeforeDispatch", "integer", 0),
    Field("defaultDelayBeforeDispatch", "integer", -1),
    Field("defaultQueueRoutingType", "string", "MULTICAST"),
    Field("defaultAddressRoutingType", "string", "MULTICAST"),
    Field("defaultConsumerWindowSize", "integer", 1024 * 1024),
    Field("defaultRingSize", "integer", -1),
    Field("autoDeleteCreatedQueues", "boolean", False),
    Field("autoDeleteQueuesDelay", "integer", 0),
    Field("autoDeleteQueuesMessageCount", "integer", 0),
    Field("autoDeleteAddressesDelay", "integer", 0),
    Field("redeliveryCollisionAvoidanceFactor", "real", 0.0),
    Field("retroactiveMessageCount", "integer", 0),
    Field("autoCreateDeadLetterResources", "boolean", False),
    Field("deadLetterQueuePrefix", "string", "DLQ."),
    Field("deadLetterQueueSuffix", "string", ""),
    Field("autoCreateExpiryResources", "boolean", False),
    Field("expiryQueuePrefix", "string", "EXP."),
    Field("expiryQueueSuffix", "string", ""),
    Field("minExpiryDelay", "integer", -1),
    Field("maxExpiryDelay", "integer", -1),
    Field("enableMetrics", "boolean", True),
)
# Known to the JSON form only: newer than the long parameter list, or (the last two) this broker's own.
EXTRA_FIELDS: tuple[Field, ...] = (
    Field("noExpiry", "boolean", False),
    Field("maxSizeMessages", "integer", -1),
    Field("pageLimitBytes", "integer", -1),
    Field("pageFullMessagePolicy", "string", None),
    Field("iDCacheSize", "integer", 20000),
    Field("duplicateDetectionByMessageId", "boolean", False),
    Field("holdSubscriptions", "boolean", False),
)
BY_NAME = {field.name: field for field in FIELDS + EXTRA_FIELDS}
# Names other versions use for the same thing in JSON.
ALIASES = {
    "deadLetterAddress": "DLA",
    "lastValueQueue": "defaultLastValueQueue",
    "addressFullPolicy": "addressFullMessagePolicy",
    "pageFullPolicy": "pageFullMessagePolicy",
    "idCacheSize": "iDCacheSize",
    "maxExpiryDelayMillis": "maxExpiryDelay",
}


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """Settings of one address. Delays in milliseconds, sizes in bytes, -1 = none or no limit."""

    dead_letter_address: str | None
    expiry_address: str | None
    expiry_delay: int
    min_expiry_delay: int
    max_expiry_delay: int
    no_expiry: bool
    max_delivery_attempts: int
    redelivery_delay: int
    redelivery_multiplier: float
    max_redelivery_delay: int
    max_size_bytes: int
    max_size_messages: int
    page_limit_bytes: int
    page_full_policy: str | None
    full_policy: str
    reject_threshold: int
    send_to_dla_on_no_route: bool
    auto_create_queues: bool
    auto_delete_queues: bool
    auto_create_addresses: bool
    auto_create_dead_letter: bool
    dead_letter_prefix: str
    dead_letter_suffix: str
    auto_create_expiry: bool
    expiry_prefix: str
    expiry_suffix: str
    default_max_consumers: int
    default_purge_on_no_consumers: bool
    default_exclusive: bool
    default_address_routing_type: str
    default_ring_size: int
    id_cache_size: int
    duplicates_by_message_id: bool
    hold_subscriptions: bool
    """Attaches that would make a durable subscription wait: the topic is about to move."""

    def redelivery_after(self, attempts: int) -> int:
        """Return milliseconds to wait before the delivery that follows `attempts` failed ones (>= 1); 0 = at once. A
        message that fails again and again, with neither a delay nor an end, waits all the same: it would keep the
        broker busy."""
        if self.redelivery_delay <= 0:
            if self.max_delivery_attempts >= 0 or attempts <= _QUICK_ATTEMPTS:
                return 0
            return min(_SLOWEST_ATTEMPTS, 5 << min(attempts - _QUICK_ATTEMPTS, 32))
        delay = self.redelivery_delay * self.redelivery_multiplier ** min(attempts - 1, 64)
        cap = self.max_redelivery_delay if self.max_redelivery_delay > 0 else self.redelivery_delay * 10
        return int(min(delay, cap))


def _resolve(merged: dict[str, Value]) -> AddressSettings:
    get: Any = merged.__getitem__
    return AddressSettings(
        dead_letter_address=get("DLA") or None,
        expiry_address=get("expiryAddress") or None,
        expiry_delay=get("expiryDelay"),
        min_expiry_delay=get("minExpiryDelay"),
        max_expiry_delay=get("maxExpiryDelay"),
        no_expiry=get("noExpiry"),
        max_delivery_attempts=get("maxDeliveryAttempts"),
        redelivery_delay=get("redeliveryDelay"),
        redelivery_multiplier=get("redeliveryMultiplier"),
        max_redelivery_delay=get("maxRedeliveryDelay"),
        max_size_bytes=get("maxSizeBytes"),
        max_size_messages=get("maxSizeMessages"),
        page_limit_bytes=get("pageLimitBytes"),
        page_full_policy=get("pageFullMessagePolicy"),
        full_policy=get("addressFullMessagePolicy"),
        reject_threshold=get("maxSizeBytesRejectThreshold"),
        send_to_dla_on_no_route=get("sendToDLAOnNoRoute"),
        auto_create_queues=get("autoCreateQueues"),
        auto_delete_queues=get("autoDeleteQueues"),
        auto_create_addresses=get("autoCreateAddresses"),
        auto_create_dead_letter=get("autoCreateDeadLetterResources"),
        dead_letter_prefix=get("deadLetterQueuePrefix") or "",
        dead_letter_suffix=get("deadLetterQueueSuffix") or "",
        auto_create_expiry=get("autoCreateExpiryResources"),
        expiry_prefix=get("expiryQueuePrefix") or "",
        expiry_suffix=get("expiryQueueSuffix") or "",
        default_max_consumers=get("defaultMaxConsumers"),
        default_purge_on_no_consumers=get("defaultPurgeOnNoConsumers"),
        default_exclusive=get("defaultExclusiveQueue"),
        default_address_routing_type=get("defaultAddressRoutingType"),
        default_ring_size=get("defaultRingSize"),
        id_cache_size=min(max(0, get("iDCacheSize")), 1_000_000),
        duplicates_by_message_id=get("duplicateDetectionByMessageId"),
        hold_subscriptions=get("holdSubscriptions"),
    )


def check(values: dict[str, Any]) -> dict[str, Value]:
    """Return the settings in `values` (Artemis' names or their aliases) in canonical form; null leaves one out.

    Raises SettingsError naming the first unknown key or wrong value.
    """
    checked: dict[str, Value] = {}
    for given, value in values.items():
        name = ALIASES.get(given, given)
        field = BY_NAME.get(name)
        if field is None:
            raise SettingsError(f"address setting {given!r} is not known")
        if value is None:
            continue
        checked[name] = _check_value(field, value)
    return checked


def _check_value(field: Field, value: Any) -> Value:
    name = field.name
    if field.type == "string":
        if not isinstance(value, str):
            raise SettingsError(f"address setting {name}: a string is needed, not {value!r}")
        if name == "addressFullMessagePolicy" and value not in FULL_POLICIES:
            raise SettingsError(f"address setting {name}: {value!r} is none of {', '.join(FULL_POLICIES)}")
        if name in ("defaultQueueRoutingType", "defaultAddressRoutingType") and value not in ROUTING_TYPES:
            raise SettingsError(f"address setting {name}: {value!r} is none of {', '.join(ROUTING_TYPES)}")
        return str(value)
    if field.type == "boolean":
        if not isinstance(value, bool):
            raise SettingsError(f"address setting {name}: true or false is needed, not {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"address setting {name}: a number is needed, not {value!r}")
    if field.type == "real":
        if not 0 <= value <= 1000:
            raise SettingsError(f"address setting {name}: {value!r} is out of range")
        return float(value)
    if isinstance(value, float) and not value.is_integer():
        raise SettingsError(f"address setting {name}: a whole number is needed, not {value!r}")
    whole = int(value)
    if not -1 <= whole < 2**63:
        raise SettingsError(f"address setting {name}: {value!r} is out of range (-1 = no limit)")
    return whole


def from_parameters(values: list[Any]) -> dict[str, Value]:
    """Return the 57 values that follow the match in addAddressSettings, in their order. Raises SettingsError."""
    if len(values) != len(FIELDS):
        raise SettingsError(f"{len(FIELDS)} address settings are needed, not {len(values)}")
    return check(dict(zip((field.name for field in FIELDS), values, strict=True)))


class SettingsRepository:
    """Settings by match. `version` grows with every change."""

    def __init__(self, defaults: dict[str, Any] | None = None) -> None:
        self._defaults: dict[str, Value] = {field.name: field.default for field in FIELDS + EXTRA_FIELDS}
        self._defaults.update(check(defaults or {}))
        self._exact: dict[str, dict[str, Value]] = {}
        self._patterns: dict[str, dict[str, Value]] = {}
        self._tree: PatternTrie[str] = PatternTrie()
        self._same: dict[tuple[Value, ...], AddressSettings] = {}
        self.version = 0

    def put(self, match: str, values: dict[str, Value]) -> None:
        """Replace what is set for `match`; `values` are canonical (see `check`)."""
        if is_pattern(match):
            self._patterns[match] = values
            self._tree.add(match, match)
        else:
            self._exact[match] = values
        self.version += 1

    def remove(self, match: str) -> bool:
        """Remove the settings of a match. Return False if it has none."""
        known = self._exact.pop(match, None) is not None
        if self._patterns.pop(match, None) is not None:
            self._tree.remove(match, match)
            known = True
        self.version += 1
        return known

    def matches(self) -> list[tuple[str, dict[str, Value]]]:
        """Return the settings of each match."""
        return [*self._patterns.items(), *self._exact.items()]

    def merged(self, address: str) -> dict[str, Value]:
        """Return every setting by name as it holds for `address` (which may itself be a match such as `#`)."""
        merged = dict(self._defaults)
        patterns = self._tree.match(address)
        if address in self._patterns and address not in patterns:
            patterns.append(address)
        for pattern in sorted(patterns, key=specificity):
            merged.update(self._patterns[pattern])
        merged.update(self._exact.get(address, {}))
        return merged

    def get(self, address: str) -> AddressSettings:
        """Return the settings of one address; addresses with equal settings share one object."""
        merged = self.merged(address)
        key = tuple(merged.values())
        found = self._same.get(key)
        if found is None:
            if len(self._same) > 4096:
                self._same.clear()
            found = self._same[key] = _resolve(merged)
        return found
