"""Configured addresses by name, by identity, and by the pattern that an address matches best."""

from __future__ import annotations

from enmasse.name_tries import PatternTrie
from services.router.routing.address_text import SINGLE, tokens
from services.router.routing.configuration import AddressConfig


class ConfiguredAddresses:
    """The configuration of addresses, and the tree of their patterns."""

    def __init__(self) -> None:
        self.by_name: dict[str, AddressConfig] = {}
        self.by_identity: dict[int, AddressConfig] = {}
        self._tree: PatternTrie[AddressConfig] = PatternTrie(SINGLE)

    def add(self, config: AddressConfig) -> None:
        """Add an address. Raises ValueError if its name or pattern is in use."""
        if config.name in self.by_name:
            raise ValueError("Name conflicts with an existing entity")
        if self._tree.first(config.matched) is not None:
            raise ValueError("Already exists")
        self._tree.add(config.matched, config)
        self.by_name[config.name] = config
        self.by_identity[config.identity] = config

    def remove(self, config: AddressConfig) -> None:
        """Remove a configured address. Raises KeyError if it is absent."""
        del self.by_name[config.name]
        del self.by_identity[config.identity]
        self._tree.remove(config.matched, config)

    def match(self, name: str) -> AddressConfig | None:
        """Return the configuration of the mobile address `name`."""
        return self._tree.best(tokens(name))
