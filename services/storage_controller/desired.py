"""Desired addresses and flavors, kept up to date from the feeds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from enmasse.model.addresses import Address
from enmasse.model.feeds import BrokerEndpoint
from enmasse.model.flavors import Flavor
from enmasse.model.names import AddressName
from enmasse.reconcile import Sources
from services.storage_controller import fleet


class Desired:
    """The desired state. Methods that take a snapshot return the addresses whose desired state it changed."""

    def __init__(self) -> None:
        self.addresses: dict[AddressName, Address] = {}
        """Addresses that are stored on brokers."""
        self.direct: dict[AddressName, str] = {}
        """Type of each address that is not stored."""
        self.flavors: dict[str, Flavor] = {}
        self.by_hand: dict[str, BrokerEndpoint] = {}
        """Brokers that flavors name: the controller neither connects to them nor creates anything there."""
        self.forced: frozenset[AddressName] = frozenset()
        """Addresses whose messages may be discarded."""
        self.invalid: frozenset[AddressName] = frozenset()
        """Names of invalid entries: existing queues and topics of these names stay unchanged."""
        self.sources = Sources(("addresses", "flavors"))
        self._referring: dict[AddressName, set[AddressName]] = {}
        self._shared: dict[Address, Address] = {}
        """One shared object for equal addresses, because thousands are equal."""

    def set_addresses(
        self,
        addresses: Mapping[AddressName, Address],
        forced: Iterable[AddressName],
        invalid: Iterable[AddressName] = (),
        removed: Iterable[AddressName] | None = None,
    ) -> tuple[set[AddressName], set[AddressName]]:
        """Take all addresses (`removed` is None), or the changed ones and the names of removed ones.

        Return the changed stored addresses, and other changed names that brokers may hold.
        """
        unclear, now = frozenset(invalid), frozenset(forced)
        if removed is None:
            removed = [name for name in chain(self.addresses, self.direct) if name not in addresses]
        old: dict[AddressName, Address | None] = {}
        others = set(unclear ^ self.invalid)
        for name, address in chain(addresses.items(), ((name, None) for name in removed)):
            before = self.addresses.get(name)
            stored = address if address is not None and address.stored else None
            if stored is None and name in unclear:
                stored = before
            if before is not stored and before != stored:
                old[name] = before
                self._set_stored(name, stored)
            if self._set_direct(name, address.type if address is not None and not address.stored else None):
                others.add(name)
        changed = old.keys() | (now ^ self.forced)
        self.forced, self.invalid = now, unclear
        for name, before in old.items():
            changed |= self._refer(name, before, self.addresses.get(name))
        return changed, others

    def _set_stored(self, name: AddressName, address: Address | None) -> None:
        if address is None:
            del self.addresses[name]
        else:
            self.addresses[name] = self._shared.setdefault(address, address)
            if len(self._shared) > 2 * len(self.addresses) + 100:
                self._shared = {each: each for each in self.addresses.values()}

    def _set_direct(self, name: AddressName, kind: str | None) -> bool:
        """Set the type of an address that is not stored (None: remove it). Return True if that changed it."""
        before = self.direct.get(name)
        if kind is not None:
            self.direct[name] = kind
        elif before is not None:
            del self.direct[name]
        return kind != before

    def _refer(self, name: AddressName, old: Address | None, new: Address | None) -> set[AddressName]:
        """Update which addresses name which queue as their dead letter or expiry queue. Return these queues."""
        before, after = set(_named_by(old)), set(_named_by(new))
        for other in before - after:
            self._referring.get(other, set()).discard(name)
        for other in after - before:
            self._referring.setdefault(other, set()).add(name)
        return before | after

    def set_flavors(self, flavors: Mapping[str, Flavor]) -> set[AddressName]:
        """Take a snapshot of the flavors. Return the addresses of changed flavors."""
        changed = {name for name in flavors.keys() | self.flavors.keys() if flavors.get(name) != self.flavors.get(name)}
        self.flavors, self.by_hand = dict(flavors), fleet.by_hand(flavors)
        if not changed:
            return set()
        return {name for name, address in self.addresses.items() if address.flavor in changed}

    def referring(self, name: AddressName) -> Iterable[AddressName]:
        """Return the addresses that name this queue as their dead letter or expiry queue."""
        return self._referring.get(name, ())

    def referred(self, name: AddressName) -> list[AddressName]:
        """Return the dead letter and expiry queues of this address: they must exist on its broker."""
        return _named_by(self.addresses.get(name)) if self._referring else []

    def brokers_for(self, name: AddressName, want: Address) -> list[str]:
        """Return the brokers that may carry an address; none if its flavor does not exist."""
        flavor = self.flavors.get(want.flavor or "")
        if flavor is None:
            return []
        return fleet.brokers_for(name, want.flavor or "", flavor, brokered=want.brokered)


def _named_by(address: Address | None) -> list[AddressName]:
    return [other for other in (address.deadletter, address.expiry) if other] if address is not None else []
