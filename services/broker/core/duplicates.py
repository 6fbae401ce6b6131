"""Ids of messages seen lately, per address, if no store remembers them: non-durable messages, brokers in memory."""

from __future__ import annotations

from services.broker.core.broker_address import BrokerAddress


class DuplicateIds:
    """Duplicate ids by address, in memory."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[bytes, None]] = {}

    def seen(self, address: BrokerAddress, key: bytes) -> bool:
        """Return True if the address remembers this key."""
        ids = self._seen.get(address.name)
        return ids is not None and key in ids

    def add(self, address: BrokerAddress, key: bytes) -> None:
        """Remember a key; the oldest beyond the address's `iDCacheSize` is forgotten."""
        ids = self._seen.setdefault(address.name, {})
        ids[key] = None
        while len(ids) > address.settings.id_cache_size:
            del ids[next(iter(ids))]

    def forget(self, address: BrokerAddress) -> None:
        """Remove all keys of an address."""
        self._seen.pop(address.name, None)
