"""Ids of messages seen lately, per address, if no store remembers them: non-durable messages, brokers in memory."""

from __future__ import annotations

from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.keys import Keys


class DuplicateIds:
    """Duplicate keys by address, in memory."""

    def __init__(self) -> None:
        self._seen: dict[str, Keys[None]] = {}

    def seen(self, address: BrokerAddress, key: bytes) -> bool:
        """Return True if the address remembers this key."""
        keys = self._seen.get(address.name)
        return keys is not None and keys.seen(key)

    def add(self, address: BrokerAddress, key: bytes) -> None:
        """Remember a key; those beyond the address's `iDCacheSize` are forgotten."""
        keys = self._seen.get(address.name)
        if keys is None:
            keys = self._seen[address.name] = Keys()
        limit = max(0, address.settings.id_cache_size)
        if limit != keys.limit:
            keys.set_limit(limit)
        keys.add(key, None)

    def remove(self, address: BrokerAddress, key: bytes) -> None:
        """Forget one key."""
        keys = self._seen.get(address.name)
        if keys is not None and key in keys:
            keys.remove(key)

    def forget(self, address: BrokerAddress) -> None:
        """Remove all keys of an address."""
        self._seen.pop(address.name, None)
